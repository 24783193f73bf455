"""Recording the allocator does not cost what it need not."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_naming_frames_does_not_import_torchs_compiler() -> None:
    """A process of its own, where nothing has imported it yet; torch looks for it on every other way to a frame."""
    program = """
import sys, torch
from profiler.memory_recorder import no_inductor
with no_inductor():
    (stack,) = torch._C._profiler.symbolize_tracebacks([torch._C._profiler.gather_traceback(True, False, False)])
print(stack[0]["name"], "torch._inductor" in sys.modules, hasattr(torch, "__version__"))
import torch._inductor
print(torch._inductor.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<module> False True", "torch._inductor"]
