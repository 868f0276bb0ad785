"""One mapping of a settings file, read key by key: a wrong value or an unknown key is refused with its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import InvalidArgument


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
            close = get_close_matches(unknown[0], self._asked, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidArgument(self.place or unknown[0], f"unknown: {', '.join(unknown)}{hint}")


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
