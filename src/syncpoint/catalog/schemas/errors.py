"""What can be wrong with a definition or with a message, before it is an error of an API."""

from __future__ import annotations

from typing import Final

FIELD_CHARS_MAX: Final = 300  # of the path of a field: names and levels are many


class BadDefinition(ValueError):
    """The definition of a schema is not legal; the text explains why to its author."""


class Incompatible(ValueError):
    """A definition does not go together with the one before it."""


class Mismatch(ValueError):
    """A message does not match a schema. `field`: the path of the field that does not; "" for the whole message."""

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(problem, field)
        self.problem, self.field = problem, field

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem

    def within(self, field: str) -> Mismatch:
        """The problem as the record around the field sees it."""
        return Mismatch(self.problem, (f"{field}.{self.field}" if self.field else field)[:FIELD_CHARS_MAX])
