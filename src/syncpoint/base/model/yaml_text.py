"""YAML that people write, read with bounds: the one loader of the project.

Place: under every room that reads a file of YAML.
Promise: what is nested deeper, or has more values once its aliases are followed, is refused as a mistake of the file,
with `YAMLError`, like any other; no file makes reading it take long or fail otherwise. So is a key given twice:
the last one would win, and what stands under the first be missed by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from syncpoint.base.model.errors import InvalidArgument

DEPTH_MAX: Final = 64
VALUES_MAX: Final = 1_000_000


def load_yaml(text: str | bytes) -> Any:
    """The one document of a text. Raises `YAMLError`."""
    return yaml.load(text, _BoundedLoader)  # a SafeLoader


def load_yaml_file(path: Path) -> Any:
    """The one document of a file. Raises `InvalidArgument` naming it, `OSError` when it cannot be read."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(str(path), f"is not YAML: {error}") from None


def load_yaml_documents(text: str | bytes) -> Iterator[Any]:
    """The documents of a text, one after the other. Raises `YAMLError`."""
    return iter(yaml.load_all(text, _BoundedLoader))


class _BoundedLoader(yaml.SafeLoader):
    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._values = 0
        self._weights: dict[yaml.Node, int] = {}  # of complete nodes: values, with aliases followed

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias, before = self.check_event(yaml.AliasEvent), self._values
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {DEPTH_MAX} levels", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            if is_alias and node not in self._weights:
                raise yaml.composer.ComposerError(None, None, "an alias stands within what it stands for", mark)
            self._values += self._weights[node] if is_alias else 1
            if self._values > VALUES_MAX:
                raise yaml.composer.ComposerError(None, None, f"more than {VALUES_MAX} values", mark)
            if not is_alias:
                self._weights[node] = self._values - before
                if isinstance(node, yaml.MappingNode):
                    _refuse_repeated(node)
        return node


def _refuse_repeated(mapping: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                raise yaml.composer.ComposerError(None, None, f"the key {key.value!r} is given twice", key.start_mark)
            seen.add((key.tag, key.value))
