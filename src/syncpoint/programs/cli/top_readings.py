"""What `syncpoint top` reads: the metrics of processes at one instant, and how they moved from one instant to the next.

Place: under `cli.top`; the texts come from `/metrics` (room `metrics`), which shows one process, or all workers of one.
Promise: a process that does not answer in time is named, and takes nothing else with it. A counter that fell began
anew, and what it shows is what was counted since. A process that was not read before has no rates yet.
"""

from __future__ import annotations

import math
import ssl
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from syncpoint.base.model.histogram import quantile
from syncpoint.watch.metrics.scraped_page import PATH
from syncpoint.watch.monitor.scraped_text import ScrapedText

PROCESS: Final = "process"
THREADS_MAX: Final = 16

Labels = Mapping[str, str]
Row = tuple[str, ...]


@dataclass(frozen=True)
class MetricsAddress:
    """Where metrics are read. `process`: whose they are, where the text does not say it."""

    address: str
    process: str = ""
    tls: ssl.SSLContext | None = None
    headers: Callable[[], Mapping[str, str]] = dict
    path: str = PATH

    @property
    def called(self) -> str:
        """What it is called where it does not answer."""
        return self.process or self.address


@dataclass(frozen=True)
class MetricsReading:
    """All samples at one instant: by name, the labels, which always have `process`, and the value. `silent`: who did
    not answer, and why."""

    at_s: float
    samples: Mapping[str, Sequence[tuple[Labels, float]]]
    silent: Mapping[str, str]


def read(
    places: Sequence[MetricsAddress], timeout_s: float, now: Callable[[], float] = time.monotonic
) -> MetricsReading:
    """Ask all of them at once."""
    samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
    silent: dict[str, str] = {}
    with ThreadPoolExecutor(min(THREADS_MAX, len(places))) as threads:
        texts = list(threads.map(lambda place: text_of(place, timeout_s), places))
    for place, text in zip(places, texts, strict=True):
        if isinstance(text, Exception):
            silent[place.called] = str(text)
            continue
        for name, found in parsed(text, place.called).items():
            samples[name] += found
    return MetricsReading(now(), samples, silent)


def text_of(place: MetricsAddress, timeout_s: float) -> bytes | Exception:
    """The page of metrics of one process, or why there is none."""
    scheme = "https" if place.tls else "http"
    request = urllib.request.Request(f"{scheme}://{place.address}{place.path}", headers=dict(place.headers()))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=place.tls) as answer:
            text: bytes = answer.read()
            return text
    except urllib.error.HTTPError as refused:
        return OSError(f"{refused.code} {refused.reason}")
    except OSError as error:
        return error


def parsed(text: bytes, process: str) -> Mapping[str, Sequence[tuple[Labels, float]]]:
    """A text's samples by their names. A process is called what its samples say, else what it calls itself, else
    `process`."""
    found = ScrapedText(lambda _: True).read(text)
    itself = next((dict(one.labels).get("name", "") for one in found if one.name == "syncpoint_process_info"), "")
    samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
    for one, value in found.items():
        samples[one.name].append(({PROCESS: itself or process, **dict(one.labels)}, value))
    return samples


class Movement:
    """From one reading to a later one: rates and shares of what lies between, sums of the later one.

    Every method groups by the values of the labels `by`, and looks only at samples that have the labels `within`.
    """

    def __init__(self, before: MetricsReading, after: MetricsReading) -> None:
        self._before, self._after = before, after
        self.seconds = max(after.at_s - before.at_s, 1e-9)
        self._known = {labels[PROCESS] for rows in before.samples.values() for labels, _ in rows}

    def values(self, name: str, *by: str, **within: str) -> dict[Row, float]:
        """The sum over the later reading."""
        sums: dict[Row, float] = defaultdict(float)
        for labels, value in self._chosen(self._after, name, within):
            sums[_row(labels, by)] += value
        return dict(sums)

    def most(self, name: str, *by: str, **within: str) -> dict[Row, float]:
        """The maximum of the later reading."""
        largest: dict[Row, float] = {}
        for labels, value in self._chosen(self._after, name, within):
            row = _row(labels, by)
            largest[row] = max(value, largest.get(row, value))
        return largest

    def labels(self, name: str) -> Sequence[Labels]:
        """Return the labels of all samples of the later reading."""
        return [labels for labels, _ in self._after.samples.get(name, ())]

    def growth(self, name: str, *by: str, **within: str) -> dict[Row, float]:
        """How much counters grew."""
        began = {frozenset(labels.items()): value for labels, value in self._chosen(self._before, name, within)}
        sums: dict[Row, float] = defaultdict(float)
        for labels, value in self._chosen(self._after, name, within):
            if labels[PROCESS] in self._known:
                first = began.get(frozenset(labels.items()), 0.0)
                sums[_row(labels, by)] += value - first if value >= first else value
        return dict(sums)

    def rates(self, name: str, *by: str, **within: str) -> dict[Row, float]:
        """How much counters grew in a second."""
        return {row: grown / self.seconds for row, grown in self.growth(name, *by, **within).items()}

    def rate(self, name: str, **within: str) -> float:
        """Return the total rate per second."""
        return self.rates(name, **within).get((), 0.0)

    def shares(self, name: str, share: float, *by: str, **within: str) -> dict[Row, float]:
        """The value that so large a share of what a histogram noted in between stays within; rows that noted nothing
        are missing."""
        buckets: dict[Row, dict[float, float]] = defaultdict(dict)
        for (*row, bound), grown in self.growth(f"{name}_bucket", *by, "le", **within).items():
            buckets[tuple(row)][float(bound)] = grown
        found = {row: quantile(sorted(one.items()), share) for row, one in buckets.items()}
        return {row: value for row, value in found.items() if not math.isnan(value)}

    def share(self, name: str, share: float, **within: str) -> float | None:
        """Return the quantile over all series, or None without observations."""
        return self.shares(name, share, **within).get(())

    @staticmethod
    def _chosen(reading: MetricsReading, name: str, within: Mapping[str, str]) -> Iterable[tuple[Labels, float]]:
        for labels, value in reading.samples.get(name, ()):
            if all(labels.get(label) == wanted for label, wanted in within.items()):
                yield labels, value


def _row(labels: Labels, by: Sequence[str]) -> Row:
    return tuple(labels.get(label, "") for label in by)
