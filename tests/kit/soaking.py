"""One round of a soak: official clients work while a nemesis breaks processes; then everything is received and judged.

Used by `tests/soak` (one server) and `tests/faults/soak` (a cluster), which say what is broken and how.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncpoint.testing.rigs import checkers, official
from syncpoint.testing.rigs.history import History
from syncpoint.testing.rigs.workload import LoadPublisher, Receiver, clean, furnish, rescue

DRAIN_SECONDS = 120.0


class Nemesis(threading.Thread):
    """Breaks one thing at a time; what it broke is whole again before it ends. `weights`: action -> how often."""

    weights: Mapping[str, int]

    def __init__(self, every: float, seed: str) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.every, self.chance = every, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        while not self.stop.wait(self.chance.uniform(0.3, 1.7) * self.every):
            (action,) = self.chance.choices(list(self.weights), list(self.weights.values()))
            self.done[action] += 1
            try:
                self.break_one(action)
            except Exception as error:
                self.failure = error
                return

    @abstractmethod
    def break_one(self, action: str) -> None: ...

    def end(self) -> None:
        self.stop.set()
        if self.ident is not None:
            self.join()
        if self.failure is not None:
            raise self.failure


@dataclass(frozen=True)
class RoundOutcome:
    """`stuck`: how many messages of each kind of subscription did not arrive in time."""

    counts: dict[str, int]
    stuck: dict[str, int]
    verdicts: list[checkers.CheckResult]

    @property
    def good(self) -> bool:
        return not any(self.stuck.values()) and all(verdict.good for verdict in self.verdicts)


def soak_round(
    endpoints: Sequence[str],
    number: int,
    seconds: float,
    rate: float,
    nemesis: Nemesis,
    look: Callable[[], object] = lambda: None,
) -> RoundOutcome:
    """Publish and receive for this time, then drain. `look` is called often in the meantime, and after the drain."""
    history = History()
    api = official.Api(endpoints[0])
    topic, names = furnish(api, history, number)
    publishers = [
        LoadPublisher(endpoints[n % len(endpoints)], history, topic, f"p{n}", rate / 3, keys=20 if n == 2 else 0)
        for n in range(3)
    ]
    receivers = [
        Receiver(endpoints[n % len(endpoints)], history, name, f"r-{kind}-{n}", confirm=kind == "once")
        for kind, name in names.items()
        for n in range(2 if kind != "ordered" else 1)
    ]
    end = time.monotonic() + seconds
    for publisher in publishers:
        publisher.start()
    if nemesis.every > 0:
        nemesis.start()
    while time.monotonic() < end and nemesis.failure is None:
        time.sleep(0.2)
        look()
    nemesis.end()
    for publisher in publishers:
        publisher.end()
    drained = time.monotonic() + DRAIN_SECONDS
    while any(history.missing(name, topic) for name in names.values()) and time.monotonic() < drained:
        time.sleep(0.2)
    stuck = {kind: len(history.missing(name, topic)) for kind, name in names.items()}
    for receiver in receivers:
        receiver.end()
    if any(stuck.values()):
        rescue(api, history, topic, names)
    look()
    verdicts = [checker(history) for checker in checkers.CHECKERS if checker is not checkers.sync_point]
    clean(api, topic, names)
    api.close()
    return RoundOutcome(history.counts(), stuck, verdicts)


def quiet_clients() -> None:
    """Silence what clients log about lost connections and expired leases, which soaks cause on purpose."""
    for noisy in ("google", "grpc"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
