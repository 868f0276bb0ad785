"""Routing on paper: how evenly a million clients spread over a thousand forwarders, and how many move, by e.

Place: under `syncpoint simulate routing`. The packing is the one that routers use; only the rendezvous orders are
computed by numpy, with the very same hash.
Leaves out: everything but the assignment. A heavy client stands for a topic and is split into parts as topics are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from syncpoint.broker.router.packing import NOWHERE, Packing
from syncpoint.broker.router.rendezvous import MULTIPLY_1, MULTIPLY_2, hash_name

FIRST = 3  # choices that are computed for every client; of a few, all
THREADS = 2
_ROWS = 64
_SHIFT = np.uint64(33)
_MULTIPLY_1, _MULTIPLY_2 = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2)

Numbers = npt.NDArray[np.uint64]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`skew`: exponent of the clients' loads (0: all alike); `share`: maximum of a part, relative to an average
    forwarder; `churn`: share of the clients whose load doubles or halves."""

    forwarders: int = 1_000
    clients: int = 1_000_000
    skew: float = 0.8
    share: float = 0.2
    churn: float = 0.01
    epsilons: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    seed: int = 1


class SpreadRow(NamedTuple):
    """For one e: the highest load in terms of the average, and the shares of all load that move when one forwarder
    goes, when one comes, and when loads change; kept by the sticky rule, and where all is computed anew. None: e is
    unbounded."""

    e: float | None
    highest: float
    gone: float
    gone_anew: float
    come: float
    come_anew: float
    churn: float
    churn_anew: float


class SpreadResult(NamedTuple):
    """`heaviest`: the heaviest part in terms of an average forwarder."""

    scenario: Scenario
    parts: int
    heaviest: float
    rows: list[SpreadRow]


def simulate(scenario: Scenario, say: Progress = lambda text: None) -> SpreadResult:
    """Run it. The last forwarder is the one that comes later."""
    chance = np.random.default_rng(scenario.seed)
    weights = _weights(scenario, chance)
    say(f"{len(weights):,} parts of {scenario.clients:,} clients; their orders of {scenario.forwarders:,} forwarders")
    orders = _Orders(len(weights), scenario.forwarders + 1)
    changed = _churned(weights, scenario.churn, chance)
    rows = []
    for e in (*scenario.epsilons, None):
        say("e unbounded" if e is None else f"e = {e:g}")
        rows.append(_row(e, weights, changed, orders, scenario.forwarders))
    average = sum(weights) / scenario.forwarders
    return SpreadResult(scenario, len(weights), max(weights) / average, rows)


def _row(e: float | None, weights: list[float], changed: list[float], orders: _Orders, count: int) -> SpreadRow:
    total = sum(weights)
    new, gone = count, count // 3

    def packing(weights: list[float], without: set[int], homes: list[int] | None) -> Packing:
        alive = count + 1 - len(without)
        bound = math.inf if e is None else max((1 + e) * sum(weights) / alive, max(weights))
        caps = [0.0 if bin in without else bound for bin in range(count + 1)]
        made = Packing(weights, caps, orders.without(without), homes)
        made.rebalance()
        return made

    def moved(after: Sequence[int]) -> float:
        return float(loads[at != np.array(after)].sum()) / total

    begin = packing(weights, {new}, None)
    homes = begin.homes
    at, loads = np.array(homes), np.array(weights)
    orphans = [NOWHERE if home == gone else home for home in homes]
    return SpreadRow(
        e,
        max(begin.loads) * count / total,
        moved(packing(weights, {new, gone}, orphans).homes),
        moved(packing(weights, {new, gone}, None).homes),
        moved(packing(weights, set(), homes).homes),
        moved(packing(weights, set(), None).homes),
        moved(packing(changed, {new}, homes).homes),
        moved(packing(changed, {new}, None).homes),
    )


def _weights(scenario: Scenario, chance: np.random.Generator) -> list[float]:
    """Loads of the parts, heaviest first; equal ones are as good as shuffled, because their hashes are."""
    ranks = np.arange(1, scenario.clients + 1, dtype=np.float64)
    raw = ranks**-scenario.skew
    raw *= scenario.clients / raw.sum()
    most = scenario.share * raw.sum() / scenario.forwarders
    parts = np.ceil(raw / most).astype(np.int64)
    split: npt.NDArray[np.float64] = np.sort(np.repeat(raw / parts, parts))[::-1]
    found: list[float] = split.tolist()
    return found


def _churned(weights: list[float], share: float, chance: np.random.Generator) -> list[float]:
    changed = np.array(weights)
    some = chance.choice(len(weights), max(1, int(share * len(weights))), replace=False)
    changed[some] *= chance.choice((0.5, 2.0), len(some))
    found: list[float] = changed.tolist()
    return found


class _Orders:
    """The rendezvous order of every client: the first choices of all, and the rest of those that need it."""

    def __init__(self, clients: int, forwarders: int) -> None:
        self._names = np.array([hash_name(f"forwarder-{number}") for number in range(forwarders)], dtype=np.uint64)
        self._keys = mixed(np.arange(1, clients + 1, dtype=np.uint64))
        self._first = min(FIRST, forwarders)
        found = np.empty((clients, self._first), dtype=np.int32)
        step = -(-clients // THREADS)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda begin: self._fill(found, begin, begin + step), range(0, clients, step)))
        self._rows: list[list[int]] = found.tolist()
        self._whole: dict[int, list[int]] = {}

    def _fill(self, found: npt.NDArray[np.int32], begin: int, end: int) -> None:
        end = min(end, len(self._keys))
        for at in range(begin, end, _ROWS):
            keys = self._keys[at : min(at + _ROWS, end)]
            scores = mixed(keys[:, None] ^ self._names[None, :])
            rows = np.arange(len(keys))
            for place in range(self._first):
                best = scores.argmax(axis=1)
                found[at : at + len(keys), place] = best
                scores[rows, best] = 0

    def without(self, gone: set[int]) -> Callable[[int], Iterator[int]]:
        """Orders in which some forwarders do not occur."""
        rows, whole, known = self._rows, self.whole, self._first

        def order_of(item: int) -> Iterator[int]:
            for bin in rows[item]:
                if bin not in gone:
                    yield bin
            for bin in whole(item)[known:]:
                if bin not in gone:
                    yield bin

        return order_of

    def whole(self, item: int) -> list[int]:
        """All of a client's order."""
        found = self._whole.get(item)
        if found is None:
            scores = mixed(self._keys[item] ^ self._names)
            found = self._whole[item] = np.argsort(scores)[::-1].tolist()
        return found


def mixed(values: Numbers) -> Numbers:
    """`rendezvous.mix` of many numbers."""
    values = values ^ (values >> _SHIFT)
    values *= _MULTIPLY_1
    values ^= values >> _SHIFT
    values *= _MULTIPLY_2
    values ^= values >> _SHIFT
    return values
