"""The kernel's modules loaded a second time from their sources, beside the ones in use; and small protobuf helpers."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from syncpoint.base import kernel

FOLDER = Path(kernel.__file__).parent


@pytest.fixture(scope="session")
def pure() -> SimpleNamespace:
    """The uncompiled modules, whatever the process uses, under another package's name."""
    name = "kernel_from_sources"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(FOLDER)]
        sys.modules[name] = package
        sys.meta_path.insert(0, kernel.SourceFinder(name, FOLDER))
    modules = {module: import_module(f"{name}.{module}") for module in kernel.MODULES}
    assert all(module.__file__ is not None and module.__file__.endswith(".py") for module in modules.values())
    return SimpleNamespace(**modules)
