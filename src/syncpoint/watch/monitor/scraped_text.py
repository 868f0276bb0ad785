"""The text of a process's metrics as numbers: which series it has, and whether each is a counter or a gauge.

Place: what every look at a process begins with, wherever the text is from: this process, its workers, or HTTP.
Promise: only wanted families are read. What a line means is remembered by its beginning, so a line that was there
before costs two look-ups. A line that is none is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""

KNOWN_MAX: Final = 100_000  # lines remembered
_HELP: Final = "# HELP "
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class ScrapedSeries(NamedTuple):
    """Which numbers these are: a histogram has the names NAME_bucket, NAME_sum and NAME_count, all of them counters."""

    name: str
    labels: Labels
    counts: bool  # whether it only grows, until its process ends


class ScrapedText:
    """Reads texts of one process after the other. `wanted`: of which families, "" for samples before any help;
    `labels`: that every series gets."""

    def __init__(self, wanted: Callable[[str], bool], labels: Mapping[str, str] | None = None) -> None:
        self._wanted, self._labels = wanted, dict(labels or {})
        self._known: dict[str, ScrapedSeries] = {}

    def read(self, text: bytes) -> dict[ScrapedSeries, float]:
        """The numbers of the families that are wanted; what is no number is left out."""
        found: dict[ScrapedSeries, float] = {}
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        for block in ("\n" + text.decode("utf-8", "replace")).split("\n" + _HELP):
            lines = block.split("\n")
            name = lines[0].partition(" ")[0]
            if not self._wanted(name):
                continue
            kind = GAUGE
            for line in lines[1:]:
                if line.startswith("# TYPE "):
                    kind = line.rpartition(" ")[2]
                    continue
                begin, _, number = line.rpartition(" ")
                if not begin or line.startswith("#"):
                    continue
                series = self._known.get(begin)
                if series is None:
                    series = self._known[begin] = self._series(begin, kind != GAUGE)
                try:
                    value = float(number)
                except ValueError:
                    continue
                if value == value and abs(value) != float("inf"):
                    found[series] = value
        return found

    def _series(self, begin: str, counts: bool) -> ScrapedSeries:
        name, _, rest = begin.partition("{")
        labels = {key: _ESCAPED.sub(_unescaped, value) for key, value in _LABEL.findall(rest)}
        return ScrapedSeries(name, tuple(sorted({**self._labels, **labels}.items())), counts)


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
