"""A worker's child runs its own modules and never the parent's main module again."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNGUARDED = """
import sys
sys.path.insert(0, {root!r})
print("main runs", flush=True)
from multiprocessing import spawn
from profiler.spawn import LEFT_WITH_0, LoneContext

child = LoneContext().Process(target=print, args=("child runs",))
child.start()
child.join()
print(child.exitcode % LEFT_WITH_0, "init_main_from_path" in spawn.get_preparation_data("another"))
"""


def test_an_unguarded_script_runs_once(tmp_path: Path) -> None:
    """Plain spawn would run the script again in the child and end in multiprocessing's bootstrapping error."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(root=str(ROOT)))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n") == ["main runs", "child runs", "0 True", ""], done.stderr


INTERRUPTED = """
import signal, sys
sys.path.insert(0, {root!r})
from profiler.spawn import LEFT_WITH_0, LoneContext

for _ in range(2):
    child = LoneContext().Process(target=signal.raise_signal, args=(signal.SIGINT,))
    child.start()
    child.join()
    print(child.exitcode % LEFT_WITH_0, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def test_ctrl_c_is_for_the_parent_alone() -> None:
    """From the first child on, before which multiprocessing starts a process of its own."""
    code = INTERRUPTED.format(root=str(ROOT))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n") == ["0 False", "0 False", ""], done.stderr
