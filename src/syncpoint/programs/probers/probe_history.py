"""What happened in one run of a prober: what was sent, what came, what took how long, and what failed.

Place: written by the scripts, read by `judgement`. Plain values without clock or network, so that a test can write one.
Times are seconds of any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class SentMessage:
    """A message that was published, or was about to be. `id`: as the publish was answered; empty until then."""

    number: int
    data: bytes
    key: str
    sent_at: float
    answered: bool = False
    id: str = ""


@dataclass(frozen=True)
class ArrivedMessage:
    """A delivery. `number`: as its attributes say, -1 if they do not; `path`: where it arrived, if that matters."""

    number: int
    run: str
    data: bytes
    key: str
    id: str
    at: float
    path: str = ""


@dataclass(frozen=True)
class ReadBack:
    """Something of a resource that a call returned, and what was expected."""

    what: str
    expected: object
    found: object


@dataclass
class ProbeHistory:
    """Events of one run of a prober.

    `failure`: the error that ended the run, "" if it completed. `paths`: the expected arrivals of each message.
    `again`: the required deliveries of messages that are redelivered. `copies`: arriving messages have their own ids.
    """

    run: str
    sent: list[SentMessage] = field(default_factory=list)
    arrived: list[ArrivedMessage] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    paths: Sequence[str] = ("",)
    again: dict[int, int] = field(default_factory=dict)
    copies: bool = False
    acknowledged_at: dict[int, float] = field(default_factory=dict)  # when the acknowledgement was answered
    not_before: dict[int, float] = field(default_factory=dict)  # when a second delivery may come at the earliest
    earlier_ids: frozenset[str] = frozenset()  # of runs before
    read: list[ReadBack] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    undeleted: list[str] = field(default_factory=list)
    forwarders: list[frozenset[str]] = field(default_factory=list)  # as each endpoint lists them
    failure: str = ""

    def took(self, step: str, seconds: float) -> None:
        """A timed step is over; the slowest of its name is kept."""
        self.steps[step] = max(seconds, self.steps.get(step, 0.0))

    def sent_at(self, number: int) -> float | None:
        """When a message was sent; None for one that was not."""
        return next((one.sent_at for one in self.sent if one.number == number), None)

    def missing(self, numbers: Iterable[int] | None = None, path: str | None = None, times: int = 1) -> set[int]:
        """Return those messages (None: all sent) that arrived fewer than `times` times, at a path or (None) at any
        path.
        """
        wanted = {one.number for one in self.sent} if numbers is None else set(numbers)
        found: set[int] = set()
        for where in self.paths if path is None else (path,):
            came = [one.number for one in self.arrived if one.path == where]
            found |= {number for number in wanted if came.count(number) < times}
        return found
