"""Hardware counters, in process: CUPTI's range profiler through ctypes; knows neither torch nor kernels."""
