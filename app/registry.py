"""Finds the pages: every module in app/views is one."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from app import views


@cache
def all_views() -> tuple[ModuleType, ...]:
    """The view modules, by ORDER."""
    modules = [importlib.import_module(f"app.views.{found.name}") for found in pkgutil.iter_modules(views.__path__)]
    return tuple(sorted(modules, key=lambda module: int(module.ORDER)))
