"""The architecture's rules, read from the sources and from a fresh process."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("kernels", "profiler", "app")  # each may import itself and those before it
SIBLINGS = (
    "app/views",
    "profiler/counters",
    "kernels",
)  # their members are found by a scan and know nothing of another
FORBIDDEN_IN_APP = ("torch", "triton", "pynvml", "cupti")


def sources() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    above = LAYERS[LAYERS.index(layer) + 1 :]
    assert [name for name in imports(path) if name.split(".")[0] in above] == []


@pytest.mark.parametrize("folder", SIBLINGS)
def test_siblings_do_not_know_each_other(folder: str) -> None:
    package = folder.replace("/", ".")
    members = [path for path in (ROOT / folder).iterdir() if path.stem != "__init__" and path.suffix == ".py"]
    if folder == "kernels":
        members = [path for path in (ROOT / folder).iterdir() if (path / "__init__.py").is_file()]
    names = {path.stem for path in members}
    for member in members:
        for path in member.rglob("*.py") if member.is_dir() else [member]:
            known = {
                name.removeprefix(f"{package}.").split(".")[0] for name in imports(path) if name.startswith(package)
            }
            assert known & (names - {member.stem}) == set(), path


def test_app_never_loads_torch() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources()
        if path.is_relative_to(ROOT / "app") and path.stem != "main"
    ]
    code = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & set({FORBIDDEN_IN_APP})))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
