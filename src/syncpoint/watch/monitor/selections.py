"""Which series of a family are meant, for looks taken here and for Prometheus alike.

Place: indicators, rules and dashboards are expressed in these, so that what is computed here and what Prometheus
computes from the same families is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from syncpoint.watch.monitor.increases import Look
from syncpoint.watch.monitor.scraped_text import Labels

SERVER_CODES = ("UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
"""Ends of calls that are the server's failure: HTTP's 5xx, but for methods that there are not."""


class SeriesSelection(NamedTuple):
    """Series called `name` that have one of the values of each label in `where`, and none of those in `without`."""

    name: str
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    without: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def found(self, look: Look) -> Iterator[tuple[Labels, float]]:
        """The series of a look, with their numbers."""
        for labels, value in look.get(self.name, {}).items():
            known = dict(labels)
            if all(known.get(key) in values for key, values in self.where) and not any(
                known.get(key) in values for key, values in self.without
            ):
                yield labels, value

    def total(self, look: Look) -> float:
        """Their sum."""
        return sum(value for _, value in self.found(look))

    def bucket(self, bound: float) -> SeriesSelection:
        """Select a histogram's observations of at most `bound`."""
        return SeriesSelection(f"{self.name}_bucket", (*self.where, ("le", (str(bound),))), self.without)

    def notes(self) -> SeriesSelection:
        """Select the number of a histogram's observations."""
        return SeriesSelection(f"{self.name}_count", self.where, self.without)

    @property
    def promql(self) -> str:
        """Return the selection in PromQL."""
        parts = [_matched(key, values, "=", "=~") for key, values in self.where]
        parts += [_matched(key, values, "!=", "!~") for key, values in self.without]
        return f"{self.name}{{{','.join(parts)}}}" if parts else self.name


def _matched(key: str, values: tuple[str, ...], one: str, several: str) -> str:
    return f'{key}{one}"{values[0]}"' if len(values) == 1 else f'{key}{several}"{"|".join(values)}"'
