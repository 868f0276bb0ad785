"""Rule work: messages judged by other processes, where the rules of their lane cost more than a moment of the loop.

Place: between an answer of the publish side and `rule_batches`, for lanes that the kernel does not judge. To whoever
asked it looks like an answer that came late.
Promise: what was judged by rules that have changed in the meantime is judged anew. A piece of work is bounded by the
length of the rules times the messages; where the first messages will do, only one piece is done.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from syncpoint.model.delivery import Batch
from syncpoint.model.errors import SyncpointError
from syncpoint.model.lanes import lane_of
from syncpoint.runtime.child_processes import Apart
from syncpoint.runtime.tasks import Tasks
from syncpoint.subscribe.lane_rules import NOTHING, LaneRules, LaneWork, Outcome, judged_by, kernel_program

log = logging.getLogger(__name__)

AT_ONCE_CHARS: Final = 4_000
"""Characters of rules, times messages, that are judged on the loop: a millisecond or two, of the worst patterns 12."""
PIECE_CHARS: Final = 400_000
MESSAGE_CHARS: Final = 80  # what a message costs besides its rules
_SIZE: Final = struct.Struct("<I")

Asked = tuple[int, int, bytes]  # source, place, message


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

    def pieces(
        self, rules: Mapping[int, LaneRules], batches: Sequence[Batch], end: int, *, some: bool
    ) -> list[tuple[LaneWork, list[Asked]]]:
        """What is to be judged elsewhere; nothing where it may be done at once."""
        found: list[tuple[LaneWork, list[Asked]]] = []
        left, whole = 0, 0
        for batch in batches:
            work = rules.get(lane_of(batch.begin), NOTHING).work
            if work is None:
                continue
            cost = work.chars + MESSAGE_CHARS
            left = 0  # another lane is another piece
            for place, begin, at in standing(batch):
                if place >= end or (some and whole >= PIECE_CHARS):
                    break
                if left <= 0:
                    found.append((work, []))
                    left = PIECE_CHARS
                found[-1][1].append((batch.source, place, batch.payload[begin:at]))
                left -= cost
                whole += cost
        return found if whole > AT_ONCE_CHARS or self._apart.busy else []

    def begin(
        self,
        project: str,
        rules: Mapping[int, LaneRules],
        pieces: Sequence[tuple[LaneWork, list[Asked]]],
        then: Callable[[Judged | Exception], object],
        room: int,
    ) -> None:
        """Judge them, or the first of each piece, once copies have `room` bytes; `then` is called with the result."""
        self._tasks.start(self._run(project, rules, pieces, then, room))

    async def _run(
        self,
        project: str,
        rules: Mapping[int, LaneRules],
        pieces: Sequence[tuple[LaneWork, list[Asked]]],
        then: Callable[[Judged | Exception], object],
        room: int,
    ) -> None:
        outcomes: dict[tuple[int, int], Outcome] = {}
        try:
            for work, asked in pieces:
                found = await self._apart(partial(judged_by, work, asked, room), project)
                outcomes.update(zip(((source, place) for source, place, _ in asked), found, strict=False))
        except Exception as error:  # whoever asked has to go on, whatever it was
            if not isinstance(error, SyncpointError):
                log.exception("rules of %s could not be judged by another process", project)
            then(error)
            return
        then(Judged(rules, outcomes))

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


def standing(batch: Batch) -> Iterator[tuple[int, int, int]]:
    """The place of each message of a batch that is to be delivered, and where it begins and ends in the payload."""
    skip, payload, at = batch.skip, batch.payload, 0
    for place in range(batch.first_offset, batch.end):
        begin = at + _SIZE.size
        at = begin + _SIZE.unpack_from(payload, at)[0]
        index = place - batch.first_offset
        if place >= batch.begin and not (skip and skip[index >> 3] >> (index & 7) & 1):
            yield place, begin, at
