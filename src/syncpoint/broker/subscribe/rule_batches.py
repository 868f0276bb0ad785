"""Rule batches: messages as the rules of their lane leave them.

Place: in `source_reader`, where everything that is read to be lent comes by, and before a message becomes a dead
letter. Batches of a subscription without rules go through untouched, and so do those of lanes that the kernel judges.
Promise: what is stored is not changed. What a lane is not for is acknowledged in it, on the subscriber's behalf; what
its rules fail at becomes a dead letter, where the subscription asks for that.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.delivery import Batch, Fetched
from syncpoint.base.model.lanes import lane_of
from syncpoint.base.model.names import project_of
from syncpoint.broker.subscribe.lane_rules import NOTHING, Judge, LaneRules, RuleFailure
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.rule_work import JUDGED_BYTES, Judged, standing
from syncpoint.broker.subscribe.shared_state import Reason, SharedState

JUDGED_S = 0.05
"""How long one subscription may judge messages before others have their turn."""
KEPT_S = 60.0
"""How long what was judged after its pull had ended is kept for the next pull."""
_SIZE = struct.Struct("<I")


class RuleBatches:
    """Evaluate rules on batches of messages."""

    def __init__(self, state: SharedState, leases: LeaseManager) -> None:
        self._state, self._leases = state, leases
        self.late = False  # the last answer took long: who reads on lets others have their turn
        self._elsewhere = 0  # pieces of work of other processes
        self._kept_until = -math.inf

    @property
    def at_rest(self) -> bool:
        """Whether nothing is judged elsewhere, or waits since then. Who pulls for less time than that takes would never
        get a message if it began anew with every pull.
        """
        return not self._elsewhere and self._state.now() >= self._kept_until

    def elsewhere(
        self,
        batches: Sequence[Batch],
        end: int,
        then: Callable[[Judged | Exception], None],
        *,
        some: bool = False,
        judged: Judged | None = None,
    ) -> bool:
        """Whether other processes judge the batches before they are `applied`: `then` is called with what comes of it.
        `judged`: what came of it already, perhaps by earlier rules.
        """
        state, rules = self._state, self._state.rules
        if state.work is None or rules is None or (judged is not None and judged.rules is rules):
            return False

        def finished(found: Judged | Exception) -> None:
            self._elsewhere -= 1
            if not (state.consumers or isinstance(found, Exception)):
                self._kept_until = state.now() + KEPT_S
            then(found)

        project = project_of(state.record.name)
        begun = state.work.begin(
            project, rules, batches, end, lambda found: state.soon(partial(finished, found)), some=some
        )
        self._elsewhere += begun
        return begun

    def applied(
        self,
        batches: Sequence[Batch],
        end: int,
        *,
        some: bool = False,
        given_up: bool = False,
        judged: Judged | None = None,
    ) -> Sequence[Batch]:
        """The batches of an answer as they are to be lent. `end`: what was asked for ends there. `some`: the first of
        them will do, what is left is asked for again. `given_up`: they become dead letters, for which messages that
        rules fail at are left as they came. `judged`: what other processes have made of them; nothing comes after
        the last of these. Raises `ResourceExhausted` while the project is in arrears for what is judged here.
        """
        rules, work = self._state.rules, self._state.work
        if rules is None:
            return batches
        if judged is not None and judged.rules is not rules:
            judged = None
        with nullcontext() if work is None else work.here(project_of(self._state.record.name)):
            return self._applied(rules, batches, end, judged, some=some, given_up=given_up)

    def _applied(
        self,
        rules: Mapping[int, LaneRules],
        batches: Sequence[Batch],
        end: int,
        judged: Judged | None,
        *,
        some: bool,
        given_up: bool,
    ) -> Sequence[Batch]:
        self.late = False
        found, room = [], JUDGED_BYTES
        until = self._state.now() + JUDGED_S if some else math.inf
        for batch in batches:
            judge = rules.get(lane_of(batch.begin), NOTHING).judge
            if judge is None:
                found.append(batch)
                continue
            if batch.begin >= end:  # what is small comes with more than was asked for
                break
            batch = batch._replace(end=min(batch.end, end))
            if judged is not None:
                judge = partial(_outcome, judged)
                known = _known_until(batch, judged)
                if known < batch.end and known <= batch.begin:
                    break
                made = self._judged(batch._replace(end=known), judge, sys.maxsize, math.inf, given_up)
            else:
                made = self._judged(batch, judge, room if some else sys.maxsize, until, given_up)
            found.append(made)
            room -= len(made.payload)
            if made.end < batch.end or self.late or (some and room <= 0):
                break
        if not isinstance(batches, Fetched):
            return found
        return Fetched(found, batches.passed, batches.attempts, batches.expired, batches.freshness)

    def _judged(self, batch: Batch, judge: Judge, room: int, until: float, given_up: bool) -> Batch:
        """One message at least, and no others once their copies are `room` bytes, or it is `until`."""
        payload, letters = batch.payload, self._leases.letters
        skip = bytearray(batch.skip or bytes((batch.end - batch.first_offset + 7) // 8))
        parts: list[bytes] = []
        unfit: list[tuple[int, int]] = []
        copied = 0
        for place, begin, at in standing(batch):
            index = place - batch.first_offset
            message = payload[begin:at]
            copy = judge(message, batch.source, place)
            if isinstance(copy, RuleFailure):
                if not letters.takes_failures:
                    copy = None
                elif given_up:
                    copy = message
                else:
                    skip[index >> 3] |= 1 << (index & 7)
                    letters.take((batch.source, place), Reason(*copy))
                    copy = message
            room -= len(copy or b"")
            if copy is None:
                skip[index >> 3] |= 1 << (index & 7)
                unfit.append((place, 1))
            elif copy is not message:
                parts += (payload[copied : begin - _SIZE.size], _SIZE.pack(len(copy)), copy)
                copied = at
            self.late = self._state.now() > until
            if room <= 0 or self.late:
                batch = batch._replace(end=place + 1)
                skip = skip[: (place - batch.first_offset >> 3) + 1]
                payload = payload[:at]
                break
        letters.go_on()
        if unfit:
            self._leases.drop_filtered(batch.source, encode_runs(unfit))
        if parts:
            payload = b"".join((*parts, payload[copied:]))
        return batch._replace(skip=bytes(skip), payload=payload)


def _known_until(batch: Batch, judged: Judged) -> int:
    """The first place that nobody has judged; the end of the batch where all is."""
    for place, _, _ in standing(batch):
        if (batch.source, place) not in judged.outcomes:
            return place
    return batch.end


def _outcome(judged: Judged, message: bytes, source: int, place: int) -> bytes | RuleFailure | None:
    found = judged.outcomes[source, place]
    return message if found is True else None if found is False else found
