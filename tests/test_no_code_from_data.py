"""The repository's own code: nothing reads a pickle, no text becomes code, and no shell is started; spots are named."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kernels", "profiler", "app", "examples", "benchmarks")
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "pandas")
# Modules whose very import is a question; then the calls that turn data into objects or code, by their last words.
RISKY_MODULES = frozenset({*PICKLES, "yaml", "code", "codeop", "xmlrpc"})
RISKY_CALLS = frozenset(
    {
        *("eval", "exec", "compile", "__import__", "execfile", "runpy.run_path", "runpy.run_module", "os.system"),
        *("os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "importlib.import_module"),
        *("importlib.__import__", "importlib.util.spec_from_file_location", "torch.load", "torch.hub.load", "np.load"),
        *("numpy.load", "pickle.load", "pickle.loads", "pickle.Unpickler", "yaml.load", "yaml.unsafe_load"),
        *("asyncio.create_subprocess_shell", "pd.read_pickle", "np.fromfile", "ctypes.CDLL", "CDLL", "load_library"),
        *("os.execv", "os.execvp", "os.execve", "pty.spawn", "types.FunctionType", "types.CodeType", "builtins.eval"),
    }
)
# What the repository has of these, each with what it is given.
ALLOWED = {
    # Written, for pytorch.org/memory_viz; plain values only.
    ("profiler/memory_snapshot.py", "import pickle"): "a snapshot is dumped, none is loaded",
    # Between a worker and its own process, on a socket that no other process has.
    ("profiler/task_pipe.py", "import pickle"): "tasks and answers, as multiprocessing sends them",
    ("profiler/task_pipe.py", "pickle.loads"): "what came on that socket",
    ("profiler/gpu_sample.py", "os.execv"): "itself, once more, when the driver's library has been replaced",
    ("app/frame.py", "import pandas"): "so that it is whole before plotly uses it; nothing of it is called",
    ("app/registry.py", "importlib.import_module"): "modules of app/views, by a scan of that folder",
    ("profiler/counter.py", "importlib.import_module"): "modules of profiler/counters, by a scan of that folder",
    ("profiler/probe.py", "importlib.import_module"): "one of those, by its name in the scan",
    ("kernels/base.py", "importlib.import_module"): "folders of kernels/, by a scan, and two modules by name",
    ("kernels/own.py", "importlib.import_module"): "kernels.own_forward, so that the app does not load torch",
    ("kernels/own_import.py", "importlib.import_module"): "an own kernel that the command line or bytescope.toml named",
    ("benchmarks/stub_cells.py", "importlib.import_module"): "profiler.measure, by name",
    ("profiler/cupti/library.py", "ctypes.CDLL"): "NVIDIA's libraries, from torch's packages and CUDA's folders",
    ("profiler/cupti/driver.py", "ctypes.CDLL"): "the NVIDIA driver",
    ("kernels/launching.py", "ctypes.CDLL"): "the NVIDIA driver",
    ("profiler/cupti/launches.py", "ctypes.CDLL"): "the C and C++ libraries of this process",
    ("profiler/orphans.py", "ctypes.CDLL"): "the C library of this process",
}


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def risky(tree: ast.AST) -> Iterator[str]:
    """What a file has that could turn data into objects or code, each as ALLOWED spells it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.partition(".")[0] in RISKY_MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in RISKY_MODULES:
                yield f"import {node.module}"
            # A name that is imported for itself would be called without its module.
            yield from (name for a in node.names if (name := f"{node.module}.{a.name}") in RISKY_CALLS)
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if (name in RISKY_CALLS and not name.startswith(("pickle.", "marshal."))) or (
                name.partition(".")[0] in PICKLES and name not in ("pickle.dumps", "pickle.dump")
            ):
                yield name
            for keyword in node.keywords:
                is_on = not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
                if keyword.arg in ("shell", "allow_pickle", "unsafe_allow_html", "unsafe_allow_javascript") and is_on:
                    yield f"{keyword.arg}="
                if keyword.arg == "weights_only":
                    yield "weights_only="


def _name(function: ast.expr) -> str:
    """`a.b.c` of a call's function; of anything before the last names that is no name, nothing."""
    if isinstance(function, ast.Attribute):
        before = _name(function.value)
        return f"{before}.{function.attr}" if before else ""
    return function.id if isinstance(function, ast.Name) else ""


def found() -> Counter[tuple[str, str]]:
    return Counter(
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources()
        for name in risky(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_only_named_spots_import_by_name_or_touch_a_pickle() -> None:
    assert set(found()) == set(ALLOWED)


def test_the_one_import_of_the_users_code_asks_for_permission_first() -> None:
    """kernels/own_import.py: `imported` is the only way to `_import`, and refuses what was not permitted before it."""
    tree = ast.parse((ROOT / "kernels" / "own_import.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    callers = [
        name
        for name, node in functions.items()
        if any(isinstance(call, ast.Call) and _name(call.func) == "_import" for call in ast.walk(node))
    ]
    assert callers == ["imported"]
    first = next(node for node in functions["imported"].body if not isinstance(node, ast.Expr))
    assert ast.unparse(first).startswith("if name not in _permitted:\n    raise Refused(")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import pickle\npickle.loads(x)", ["import pickle", "pickle.loads"]),
        ("from pickle import loads", ["import pickle", "pickle.loads"]),
        ("import numpy as np\nnp.load(x, allow_pickle=True)", ["np.load", "allow_pickle="]),
        ("torch.load(x)", ["torch.load"]),
        ("eval(x)", ["eval"]),
        ("subprocess.run(x, shell=True)", ["shell="]),
        ("subprocess.run(x, shell=is_shell)", ["shell="]),
        ("st.html(x, unsafe_allow_javascript=True)", ["unsafe_allow_javascript="]),
        ("re.compile(x); ast.literal_eval(x); subprocess.run(x, shell=False); pickle.dumps(x)", []),
    ],
)
def test_what_is_looked_for_is_seen(code: str, names: list[str]) -> None:
    assert sorted(risky(ast.parse(code))) == sorted(names)
