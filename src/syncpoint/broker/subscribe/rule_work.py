"""Rule work: messages judged by other processes, where the rules of their lane cost more than a moment of the loop.

Place: between an answer of the publish side and `rule_batches`, for lanes that the kernel does not judge. To whoever
asked it looks like an answer that came late.
Promise: what was judged by rules that have changed in the meantime is judged anew. A piece of work is bounded by the
length of the rules times the messages; where the first messages will do, only one piece is done.
"""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from syncpoint.base.model.delivery import Batch
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.lanes import lane_of
from syncpoint.base.runtime.child_processes import Apart
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.subscribe.lane_rules import (
    NOTHING,
    LaneRules,
    LaneWork,
    Outcome,
    is_unread,
    judged_by,
    kernel_program,
)

log = logging.getLogger(__name__)

AT_ONCE_CHARS: Final = 4_000
"""Characters of rules, times messages, that are judged on the loop: a millisecond or two, of the worst patterns 12."""
PIECE_CHARS: Final = 400_000
JUDGED_BYTES: Final = 2 << 20
"""How much may be made of messages before others have their turn."""
_SIZE: Final = struct.Struct("<I")

Asked = tuple[int, int, bytes]  # source, place, message


class Judging(NamedTuple):
    """What is to be judged for a project, of each piece as many messages as have copies of `room` bytes; and the rules
    that it is all of."""

    project: str
    rules: Mapping[int, LaneRules]
    pieces: Sequence[tuple[LaneWork, Sequence[Asked]]]
    room: int


class Judged(NamedTuple):
    """Outcomes by source and place, and the rules that they come of."""

    rules: Mapping[int, LaneRules]
    outcomes: Mapping[tuple[int, int], Outcome]


class RuleWork:
    """Judges messages in other processes; one for a process."""

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self._tasks = Tasks()
        self.here = apart.here

    def begin(
        self,
        project: str,
        rules: Mapping[int, LaneRules],
        batches: Sequence[Batch],
        end: int,
        then: Callable[[Judged | Exception], object],
        *,
        some: bool,
    ) -> bool:
        """Whether messages before `end` are judged elsewhere, which `then` is called with; not where it may be done at
        once. `some`: the first of them will do.
        """
        pieces = self._pieces(rules, batches, end, some=some)
        if pieces:
            self.start(Judging(project, rules, pieces, JUDGED_BYTES if some else sys.maxsize), then)
        return bool(pieces)

    def start(self, judging: Judging, then: Callable[[Judged | Exception], object]) -> None:
        """Have it judged; `then` is called with what came of it."""
        self._tasks.start(self._run(judging, then))

    def _pieces(
        self, rules: Mapping[int, LaneRules], batches: Sequence[Batch], end: int, *, some: bool
    ) -> list[tuple[LaneWork, list[Asked]]]:
        found: list[tuple[LaneWork, list[Asked]]] = []
        left, whole, dear = 0, 0, self._apart.busy
        for batch in batches:
            lane = rules.get(lane_of(batch.begin), NOTHING)
            work = lane.work
            if work is None:
                continue
            dear = dear or is_unread(lane)
            left = 0  # another lane is another piece
            for place, begin, at in standing(batch):
                if place >= end or (some and whole >= PIECE_CHARS):
                    break
                if left <= 0:
                    found.append((work, []))
                    left = PIECE_CHARS
                found[-1][1].append((batch.source, place, batch.payload[begin:at]))
                left -= work.message_chars
                whole += work.message_chars
        return found if dear or whole > AT_ONCE_CHARS else []

    async def _run(self, judging: Judging, then: Callable[[Judged | Exception], object]) -> None:
        outcomes: dict[tuple[int, int], Outcome] = {}
        try:
            for work, asked in judging.pieces:
                found = await self._apart(partial(judged_by, work, asked, judging.room), judging.project)
                outcomes.update(zip(((source, place) for source, place, _ in asked), found, strict=False))
        except Exception as error:  # the caller has to continue, whatever it was
            if not isinstance(error, SyncpointError):
                log.exception("rules of %s could not be judged by another process", judging.project)
            then(error)
            return
        then(Judged(judging.rules, outcomes))

    def prepare(self, project: str, work: LaneWork, then: Callable[[bytes], object]) -> None:
        """`then` is called with the kernel's program of a lane, if there is one."""
        self._tasks.start(self._prepare(project, work, then))

    async def _prepare(self, project: str, work: LaneWork, then: Callable[[bytes], object]) -> None:
        try:
            program = await self._apart(partial(kernel_program, work), project)
        except SyncpointError as error:
            log.info("rules of %s are judged by other processes: %s", project, error.message)
            return
        if program is not None:
            then(program)

    async def stop(self) -> None:
        """Judge nothing more; who waits is not notified."""
        await self._tasks.stop()


async def judged_messages(apart: Apart, project: str, rules: LaneRules, asked: Sequence[Asked]) -> list[Outcome]:
    """What becomes of each message in a lane that is judged message by message. Raises `SyncpointError`."""
    work = rules.work
    assert work is not None
    if not (apart.busy or is_unread(rules) or work.message_chars * len(asked) > AT_ONCE_CHARS):
        with apart.here(project):
            return judged_by(work, asked, sys.maxsize)
    most, found = max(1, PIECE_CHARS // work.message_chars), list[Outcome]()
    while len(found) < len(asked):
        part = asked[len(found) : len(found) + most]
        found += await apart(partial(judged_by, work, part, JUDGED_BYTES), project)
    return found


def standing(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """The place of each message of a batch that is to be delivered, and where it begins and ends in the payload."""
    skip, payload, at = batch.skip, batch.payload, 0
    for place in range(batch.first_offset, batch.end):
        begin = at + _SIZE.size
        at = begin + _SIZE.unpack_from(payload, at)[0]
        index = place - batch.first_offset
        if place >= batch.begin and not (skip and skip[index >> 3] >> (index & 7) & 1):
            yield place, begin, at
