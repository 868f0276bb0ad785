"""`syncpoint serve` without its counters: what counting costs is the difference.

    python -m bench.uncounted serve --port 0 ...

Statements that do nothing but count (`counts.messages += n`, `self.counts.sync.note(...)`) are taken out of the rooms'
sources as they are imported, so that nothing of them is left, not even a call of something that does nothing. The
sources on disk stay as they are; the compiled kernel counts nothing. Its `/metrics` shows 0 where others count.
"""

from __future__ import annotations

import ast
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

ROOMS = ("publish", "subscribe", "storage", "diskserver", "transport", "api", "rest")
HELD = ("counts", "counting")  # what rooms call the numbers that they keep for operators
STATEMENTS_MIN = 30
removed: list[str] = []


class WithoutCounts(ast.NodeTransformer):
    """Takes the statements out; a body that is empty then does nothing."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`counts.x += ...`, wherever the counts are held."""
        return self._out(node) if isinstance(node.target, ast.Attribute) and _holds(node.target.value) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """`counts.x(...)`, for its effect alone."""
        call = node.value
        counting = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _holds(call.func.value)
        return self._out(node) if counting and not _keeps(call) else node

    def _out(self, node: ast.stmt) -> ast.AST:
        removed.append(f"{self._module}:{node.lineno}: {ast.unparse(node)}")
        return ast.copy_location(ast.Pass(), node)


def _holds(node: ast.AST) -> bool:
    """Whether it is the counts, or something of them."""
    while isinstance(node, ast.Attribute):
        if node.attr in HELD:
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id in HELD


def _keeps(call: ast.AST) -> bool:
    """What bounds the numbers has to go on: which subscriptions there are."""
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("keep", "forget")


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path)
        tree = WithoutCounts(fullname).visit(ast.parse(source, self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith(tuple(f"syncpoint.{room}." for room in ROOMS)) or fullname.endswith("_counts"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def main() -> None:
    """Serve, and say in the end what was taken out."""
    sys.meta_path.insert(0, _Finder())
    from syncpoint.programs.cli.main import cli

    try:
        cli(prog_name="syncpoint")
    finally:
        if len(removed) < STATEMENTS_MIN:
            raise SystemExit(f"only {len(removed)} statements count: the rooms no longer call them {HELD}")
        print("not counted:", *removed, sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    main()
