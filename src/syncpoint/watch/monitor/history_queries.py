"""Samples of history put together: one family, by labels, in steps of one length.

Place: under `QueryHistory`, and under the values of indicators.
Promise: parts add up: whichever labels samples are grouped by, the sum of all groups is the same (of ages, and of
where the largest shows that something is wrong). A step without a look has no number; a counter's
rate is that of the time that looks stand for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from syncpoint.base.model.histogram import COUNTS, SECONDS, quantile
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.history_file import TIERS, HistoryFile
from syncpoint.watch.monitor.kept_families import is_kept, takes_largest
from syncpoint.watch.monitor.scraped_text import COUNTER, GAUGE, HISTOGRAM

STEPS_MAX: Final = 2000
NAN: Final = math.nan
_OF_COUNTS: Final = ("syncpoint_publish_batch_messages",)
_KINDS: Final = {one.name: str(one.kind) for one in FAMILIES}


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """`where`: one of these values of each label; `quantile`: of a histogram, 0: notes per second."""

    family: str
    begin_s: float
    end_s: float
    step_s: float = 0.0
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()
    quantile: float = 0.0


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """`series`: by the values of the labels that were grouped by, a number for each step."""

    begin_s: int
    step_s: int
    kind: str
    series: dict[tuple[str, ...], list[float]]


def answered(file: HistoryFile, query: HistoryQuery, now_s: float) -> HistoryAnswer:
    """Ask the densest tier that has all of the time; LookupError for a family that is not kept."""
    tier, step_s = chosen(query, now_s)
    begin = int(query.begin_s) // step_s * step_s
    steps = max(1, min(STEPS_MAX, -(-(int(query.end_s) - begin) // step_s)))
    end = begin + steps * step_s
    kind, name = kind_of(file, query.family)
    if kind == HISTOGRAM and query.quantile:
        name = f"{query.family}_bucket"
    group_by = (*query.group_by, "le") if name.endswith("_bucket") else query.group_by
    looks = [0] * steps
    for t, count in file.looks(tier, begin, end).items():
        looks[(t - begin) // step_s] += count
    found: dict[tuple[str, ...], list[float]] = {}
    groups: dict[int, tuple[str, ...] | None] = {}
    largest = kind == GAUGE and takes_largest(name)
    weights = file.looks(tier, begin, end) if kind == GAUGE and not largest else {}
    for row in file.rows(tier, name, begin, end):
        place = (row.t - begin) // step_s
        weight = weights.get(row.t, 1) / max(1, looks[place]) if weights else 1.0
        for number, value in row.numbers.items():
            if number not in groups:
                groups[number] = _group(dict(file.labels_of(number)), query.where, group_by)
            group = groups[number]
            if group is None:
                continue
            values = found.setdefault(group, [0.0] * steps)
            values[place] = max(values[place], value) if largest else values[place] + value * weight
    if kind == HISTOGRAM and query.quantile:
        known = COUNTS if query.family in _OF_COUNTS else SECONDS
        return HistoryAnswer(begin, step_s, kind, _quantiles(found, query.quantile, steps, known))
    for values in found.values():
        for place, count in enumerate(looks):
            if not count:
                values[place] = NAN
            elif kind != GAUGE:
                values[place] /= count * TIERS[0].step_s
    return HistoryAnswer(begin, step_s, kind, found)


def totals(file: HistoryFile, name: str, begin_s: float, end_s: float) -> dict[tuple[tuple[str, str], ...], float]:
    """How much each series of a counter grew within the last hours, by the densest tier."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for row in file.rows(0, name, int(begin_s), int(end_s) + 1):
        for number, value in row.numbers.items():
            labels = file.labels_of(number)
            found[labels] = found.get(labels, 0.0) + value
    return found


def kind_of(file: HistoryFile, family: str) -> tuple[str, str]:
    """(kind, the name that its plain numbers are kept under). Raises `LookupError`."""
    counts = file.counts(family)
    if counts is not None:
        return (COUNTER if counts else GAUGE), family
    if file.counts(f"{family}_count"):
        return HISTOGRAM, f"{family}_count"
    kind = _KINDS.get(family, "")
    if not kind or not is_kept(family):
        raise LookupError(family)
    return (HISTOGRAM, f"{family}_count") if kind == HISTOGRAM else (kind, family)


def chosen(query: HistoryQuery, now_s: float) -> tuple[int, int]:
    """(tier, length of a step)."""
    span = max(1.0, query.end_s - query.begin_s)
    wanted = max(query.step_s, span / STEPS_MAX, 1.0)
    for tier, (step_s, kept_s) in enumerate(TIERS):
        dense_enough = tier + 1 == len(TIERS) or wanted < TIERS[tier + 1].step_s or query.begin_s > now_s - kept_s
        if (query.begin_s >= now_s - kept_s - step_s and dense_enough) or tier + 1 == len(TIERS):
            return tier, step_s * math.ceil(wanted / step_s)
    raise AssertionError("the last tier takes all")


def quantile_of(buckets: Mapping[float, float], share: float, known: Sequence[float] = SECONDS) -> float:
    """The value at a share of cumulated buckets, by upper bounds; NaN of nothing. `known`: bounds that the histogram
    has; those that `buckets` begins without are empty.
    """
    first = min(buckets, default=0.0)
    return quantile(sorted(buckets.items()), share, max((one for one in known if one < first), default=0.0))


def _quantiles(
    found: Mapping[tuple[str, ...], list[float]], share: float, steps: int, known: Sequence[float]
) -> dict[tuple[str, ...], list[float]]:
    groups: dict[tuple[str, ...], dict[float, list[float]]] = {}
    for (*group, bound), values in found.items():
        groups.setdefault(tuple(group), {})[float(bound)] = values
    return {
        group: [
            quantile_of({bound: values[place] for bound, values in by_bound.items()}, share, known)
            for place in range(steps)
        ]
        for group, by_bound in groups.items()
    }


def _group(
    labels: Mapping[str, str], where: Mapping[str, Sequence[str]], group_by: Sequence[str]
) -> tuple[str, ...] | None:
    if any(labels.get(key, "") not in values for key, values in where.items()):
        return None
    return tuple(labels.get(key, "") for key in group_by)
