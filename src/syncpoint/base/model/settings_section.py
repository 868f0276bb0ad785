"""Settings in files of YAML: one mapping, read key by key; what is wrong or unknown is refused with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from syncpoint.base.model.errors import InvalidArgument

_T = TypeVar("_T")


class SettingsSection:
    """`place`: where in the file it stands, "" for the whole file. Every reader raises `InvalidArgument`."""

    def __init__(self, content: Any, place: str) -> None:
        if not isinstance(content, dict):
            raise InvalidArgument(place, "a mapping of keys to values is needed")
        self.place, self._content = place, content
        self._asked: set[str] = set()

    def refused(self, key: str, problem: str) -> InvalidArgument:
        """The error about a key of this section."""
        return InvalidArgument(f"{self.place}.{key}" if self.place else key, problem)

    def value(self, key: str) -> Any:
        """The value as it stands in the file; None where there is none."""
        self._asked.add(key)
        return self._content.get(key)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise self.refused(key, "true or false is needed")
        return default if value is None else value

    def text(self, key: str) -> str:
        """A text, or a number as it is written; "" where there is none."""
        value = self.value(key)
        if value is not None and not isinstance(value, (str, int)):
            raise self.refused(key, "a text is needed")
        return "" if value is None else str(value)

    def texts(self, key: str) -> list[str]:
        """The entries of a list."""
        return [str(one) for _, one in self.each(key)]

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """One of these words."""
        value = self.text(key) or default
        if value not in allowed:
            raise self.refused(key, f"{value!r} is none of {', '.join(allowed)}")
        return value

    def whole(self, key: str, default: int) -> int:
        """A whole number, 0 or more."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.refused(key, "a whole number is needed")
        return value

    def number(self, key: str, default: float = 0.0) -> float:
        """Any number."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.refused(key, "a number is needed")
        return float(value)

    def each(self, key: str) -> list[tuple[int, Any]]:
        """The entries of a list, numbered."""
        value = self.value(key)
        if value is not None and not isinstance(value, list):
            raise self.refused(key, "a list is needed")
        return list(enumerate(value or []))

    def done(self) -> None:
        """Refuse keys that were not asked for."""
        unknown = sorted(str(key) for key in self._content if str(key) not in self._asked)
        if unknown:
            from difflib import get_close_matches

            close = get_close_matches(unknown[0], self._asked, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidArgument(self.place or unknown[0], f"unknown: {', '.join(unknown)}{hint}")


def load_settings(key: str, path: Path, parse: Callable[[Any, Path], _T]) -> _T:
    """What `parse` makes of the document in a file that a key names, and of its folder. Raises `InvalidArgument` naming
    the file.
    """
    from syncpoint.base.model.yaml_text import load_yaml_file  # not at a start without such files

    with file_named(key, path):
        content = load_yaml_file(path)
    try:
        return parse({} if content is None else content, path.parent)
    except InvalidArgument as error:
        raise InvalidArgument(str(path), error.message) from None


@contextmanager
def file_named(key: str, path: Path) -> Iterator[None]:
    """Around the use of a file that a key of the settings names: what the operating system refuses is said with both.
    Raises `InvalidArgument`.
    """
    try:
        yield
    except OSError as error:
        todo = "Put it there, or correct the path; a relative one starts at the folder of the file that names it"
        raise InvalidArgument(key, f"{path} cannot be used: {error.strerror or error}. {todo}.") from None
