"""Imports the user's own kernels: only those that this process was told it may, from the folder they work in."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.own import likes
from kernels.own_fault import RefusedKernel, is_ctrl_c, trace_of, words_of
from kernels.problem import Refused

TAKES = ("q", "k", "v", "causal")
TILE_NAMES = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
OURS = ("kernels", "profiler", "app")  # packages of Bytescope's
NOT_PERMITTED = (
    "{name} may not be imported here: name it on the command line, or under [kernels] own in bytescope.toml and start "
    "Bytescope again. A Run's file alone never imports anything."
)


@dataclass(frozen=True)
class OwnCallable:
    """call(q, k, v, causal, **{the tile's that it takes}) -> o.

    `like` is the kernel whose schedule it has, empty without one; reference(q, k, v, causal) is what it computes, in
    float64, None for attention.
    """

    name: str
    call: Callable[..., Any]
    takes: tuple[str, ...] = ()
    like: str = ""
    reference: Callable[..., Any] | None = None


_permitted: set[str] = set()
_imported: dict[str, OwnCallable] = {}
_modules: set[str] = set()


def permit(names: Iterable[str], folder: str) -> None:
    """Allow these and no others, looked up in `folder` before anywhere else; a file that was changed is read anew."""
    _permitted.clear()
    _permitted.update(names)
    if folder and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    # A warm process would go on with the code of yesterday.
    for module in _modules:
        sys.modules.pop(module, None)
    # torch compiles a function for a few problems, and then no more of them: later ones would run uncompiled.
    if _modules and (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
    _modules.clear()
    _imported.clear()
    importlib.invalidate_caches()


def permitted() -> tuple[tuple[str, ...], str]:
    """What `permit` was told last, for a process that measures the same."""
    return tuple(sorted(_permitted)), sys.path[0] if _permitted else ""


def imported(name: str) -> OwnCallable:
    """The callable of a name. Raises RefusedKernel, with a traceback where the module's code failed, and Refused."""
    if name not in _permitted:
        raise Refused(NOT_PERMITTED.format(name=name))
    if name not in _imported:
        module, _, function = name.partition(":")
        found = _import(module)
        with _looked_at(name):
            call = _member(found, module, function)
        _imported[name] = offered(name, call)
    return _imported[name]


def offered(name: str, call: Any) -> OwnCallable:
    """What a callable takes and offers. Raises RefusedKernel for one that cannot be a kernel."""
    with _looked_at(name):
        return _offered(name, call)


def _offered(name: str, call: Any) -> OwnCallable:
    if not callable(call):
        raise RefusedKernel(f"{name} is {_a(call)}, which cannot be called; name a function (q, k, v, causal) -> o.")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # of some that are written in C nothing is known
        return OwnCallable(name, call)
    if why_not := _unbound(signature):
        raise RefusedKernel(
            f"{name} takes {signature}, and is called with q, k, v and causal ({why_not}); give it these four, and a "
            "default for everything else."
        )
    takes = tuple(part for part in TILE_NAMES if part in signature.parameters)
    takes = takes if {"BLOCK_M", "BLOCK_N"} & set(takes) else ()
    like, reference = getattr(call, "schedule", ""), getattr(call, "reference", None)
    if like and (not isinstance(like, str) or like not in likes()):
        raise RefusedKernel(f"{name}.schedule is {like!r:.60}; it names one of {', '.join(likes())}.")
    if like and not {"BLOCK_M", "BLOCK_N"} <= set(takes):
        raise RefusedKernel(f"{name}.schedule is {like!r}, so the function must take BLOCK_M and BLOCK_N.")
    if reference is not None and not callable(reference):
        raise RefusedKernel(f"{name}.reference is {_a(reference)}; it is a function (q, k, v, causal) -> o in float64.")
    return OwnCallable(name, call, takes, like, reference)


def _unbound(signature: inspect.Signature) -> str:
    """Why TAKES do not fit; empty where they do."""
    try:
        signature.bind(*TAKES)
    except TypeError as error:
        return str(error)
    return ""


@contextmanager
def _looked_at(name: str) -> Iterator[None]:
    """Attributes, signature and defaults may be code of the user's too, which may raise anything."""
    try:
        yield
    except Refused:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise RefusedKernel(
            f"{name} cannot be looked at: {words_of(error)}; name a plain function (q, k, v, causal) -> o.",
            trace_of(error),
        ) from None


def _import(module: str) -> Any:
    top = module.partition(".")[0]
    if top in OURS:
        raise RefusedKernel(f"{top} is a package of Bytescope's; give yours another name, or move {module} out of it.")
    before = set(sys.modules)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(module, error) from None
        raise RefusedKernel(
            f"There is no module {error.name} in {sys.path[0] or Path.cwd()} or where else Python looks; start in the "
            "folder that holds it, or name that folder in PYTHONPATH."
        ) from None
    # Whatever the user's code raises: also SystemExit.
    except BaseException as error:
        raise _failed(module, error) from None
    finally:
        _modules.update(name for name in set(sys.modules) - before if _is_theirs(name, module))
    return found


def _member(found: Any, module: str, function: str) -> Any:
    if not hasattr(found, function):
        members = getattr(found, "__dict__", {})  # a module may have put anything in its place
        public = [name for name, value in members.items() if inspect.isfunction(value) and name[0] != "_"]
        has = f"; it has {', '.join(public[:8])}" if public else ""
        raise RefusedKernel(f"The module {module} has no {function}{has}.")
    return getattr(found, function)


def _failed(module: str, error: BaseException) -> RefusedKernel:
    return RefusedKernel(f"The module {module} does not import: {words_of(error)}.", trace_of(error))


def _is_theirs(name: str, module: str) -> bool:
    """Whether a module that came with theirs is the user's too, and no library."""
    top = name.partition(".")[0]
    try:
        file = getattr(sys.modules.get(name), "__file__", None)
        here = Path(file) if file is not None else None
    except Exception:  # what it has put in its place answers with an error
        here = None
    if top in OURS or here is None:
        return top == module.partition(".")[0] and top not in OURS
    return top == module.partition(".")[0] or (Path(sys.path[0]) in here.parents and "site-packages" not in here.parts)


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
