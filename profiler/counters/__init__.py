"""Sources of numbers, one file each; profiler.counter says what each file offers."""
