"""Gaps of delivery records: times in which a writer may have done what no record shows.

Place: pure, over what the messages of a records topic say of themselves; `client.message_path` reads them one by one,
`analytics.recorded_topic` on Spark.
Promise: a gap is a number that is missing, records that were dropped, or a writer that was followed by another one of
its name and never said that it ends. What nobody can bound may be of any time. Where nothing is missing there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from syncpoint.base.model.wording import utc_text

ALWAYS_US: Final = (1 << 62) - 1
"""Behind any time."""
CLOCKS_US: Final = 1_000_000
"""Clocks of two processes may differ by that."""


class RecordsMessage(NamedTuple):
    """What a message of a records topic states about itself. `lost`: records that its writer has dropped so far;
    `ended`: it is the last one of its writer; `first_us`, `last_us`: the times of its records, None: it has none.
    """

    writer: str
    number: int
    lost: int
    ended: bool
    first_us: int | None
    last_us: int | None


@dataclass(frozen=True, slots=True)
class RecordGap:
    """What a writer did in this time, in microseconds since 1970, nobody knows; why, in words."""

    writer: str
    begin_us: int
    end_us: int
    why: str

    @property
    def sentence(self) -> str:
        """All of that in words."""
        return f"what {self.writer} did {_time(self.begin_us, self.end_us)}, since {self.why}"


def of_content(content: dict[str, Any]) -> RecordsMessage:
    """Parse the content of a records message."""
    times = [int(record["at"]) for record in content["records"]]
    return RecordsMessage(
        content["writer"], int(content["number"]), int(content["lost"]), bool(content.get("ended", False)),
        min(times, default=None), max(times, default=None),
    )  # fmt: skip


def gaps_of(messages: Iterable[RecordsMessage], *, since_us: int = 0, whole: bool = False) -> Iterator[RecordGap]:
    """What these messages do not say. `since_us`: what was before is not asked for; `whole`: they begin where the
    records of each writer do, so a first message that is missing is one.
    """
    by_writer: dict[str, list[RecordsMessage]] = {}
    for message in sorted(messages, key=lambda one: (one.writer, one.number)):
        by_writer.setdefault(message.writer, []).append(message)
    for writer, own in by_writer.items():
        yield from _missing(writer, own, since_us, whole=whole)
        lost = max(message.lost for message in own)
        if lost:
            why = f"it has dropped {lost} records, which the records topic did not take in time"
            yield RecordGap(writer, 0, ALWAYS_US, why)
    yield from _ended_silently(by_writer)


def _missing(writer: str, own: list[RecordsMessage], since_us: int, *, whole: bool) -> Iterator[RecordGap]:
    number, last_us = 0 if whole else own[0].number - 1, since_us
    for message in own:
        if message.number > number + 1:
            end_us = ALWAYS_US if message.first_us is None else message.first_us
            first, last = number + 1, message.number - 1
            one = f"message {first} of its records is"
            which = one if first == last else f"messages {first} to {last} of its records are"
            yield RecordGap(writer, last_us, end_us, f"{which} not stored (any more)")
        number, last_us = message.number, last_us if message.last_us is None else message.last_us


def _ended_silently(by_writer: dict[str, list[RecordsMessage]]) -> Iterator[RecordGap]:
    """Lives of processes that were followed by another one of the same name: a writer is NAME/LIFE."""
    lives: dict[str, list[tuple[int, str]]] = {}
    for writer, own in by_writer.items():
        began_us = min((one.first_us for one in own if one.first_us is not None), default=0)
        lives.setdefault(writer.rpartition("/")[0], []).append((began_us, writer))
    for of_name in lives.values():
        for (_, writer), (next_us, _) in pairwise(sorted(of_name)):
            own = by_writer[writer]
            if not any(one.ended for one in own):
                last_us = max((one.last_us for one in own if one.last_us is not None), default=0)
                why = "it ended without saying so: the last tenth of a second of its records may be missing"
                yield RecordGap(writer, last_us, next_us + CLOCKS_US, why)


def _time(begin_us: int, end_us: int) -> str:
    if begin_us <= 0 and end_us >= ALWAYS_US:
        return "at any time"
    if end_us >= ALWAYS_US:
        return f"from {utc_text(begin_us)} on"
    return f"until {utc_text(end_us)}" if begin_us <= 0 else f"between {utc_text(begin_us)} and {utc_text(end_us)}"
