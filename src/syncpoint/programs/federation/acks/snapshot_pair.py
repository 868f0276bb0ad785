"""Snapshots of one subscription at both ends of a flow: what is taken, or deleted, at one end is at the other, too.

Place: a machine under `ack_pair`, between its reports and what it brings. What lasts stands at the ends; what is
remembered here are reports and remarks.
Promises: no acknowledgement from after a snapshot is brought before the other end keeps what the snapshot holds (rule
30). A copy that would lack messages is not made. One that was deleted is known by its identity, so none of the same
name is deleted for it, or overwritten; an end that lacks it because it was restored to an earlier state gets it again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.snapshot_marks import WAS_DELETED
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method

EXCHANGE = methods.ACK_EXCHANGE
TRY_ROUNDS = 20  # between two attempts at what was refused, or is not copied yet
AWAITED_ROUNDS = 200  # how long acknowledgements wait for one that is being taken, or comes from a third site
CHANGES_MAX = 20  # of one round
REMARKED = (
    Code.ALREADY_EXISTS, Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT, Code.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED, Code.UNIMPLEMENTED,
)  # fmt: skip


class SiteEnd(NamedTuple):
    """A subscription at one site."""

    site: str
    subscription: str


class AckCall(NamedTuple):
    """A call that the machine asks for: at the flow's source, or at its target."""

    at_source: bool
    method: Method
    request: Any


class OriginLinks(NamedTuple):
    """Messages of one site: the links by which the flow's source and its target have them; "": they are its own."""

    at_source: str
    at_target: str


Calls = Generator[AckCall, Any, Any]


class SnapshotPair:
    """`ends`: the flow's source and its target. `notes`: by snapshot, why it is not at both."""

    def __init__(self, ends: tuple[SiteEnd, SiteEnd], origins: Sequence[OriginLinks]) -> None:
        self.ends, self.origins = ends, origins
        self.notes: dict[str, str] = {}
        self.copied = 0
        self._round = 0
        self._found: list[dict[str, Any]] = [{}, {}]
        self._seen = [(0, ""), (0, "")]  # state of the catalog, place
        self._reports: dict[str, list[tuple[OriginLinks, Any]]] = {}
        self._since: dict[str, int] = {}  # the round in which it was first waited for, or may be tried again

    def seen(self, at_source: bool) -> int:
        """Which state of an end's catalog is known."""
        return self._seen[not at_source][0]

    def round(self, there: Any, here: Any) -> Generator[AckCall, Any, bool]:
        """Bring snapshots, by reports of both ends; returns whether acknowledgements may be brought then."""
        self._round += 1
        if not (there.place and here.place):
            return True  # an earlier version
        self._take(0, there)
        self._take(1, here)
        known = self._found[0].keys() | self._found[1].keys()
        for kept in (self.notes, self._reports, self._since):
            for gone in kept.keys() - known:
                kept.pop(gone, None)
        ready, changes = True, 0
        for identity in sorted(known):
            calls = self._step(identity)
            if calls is None:
                ready &= not self._is_awaited(identity)
            elif changes == CHANGES_MAX:
                return False
            else:
                changes += 1
                yield from calls
        return ready

    def _take(self, end: int, report: Any) -> None:
        if not report.snapshots_at or self._seen[end] != (report.snapshots_at, report.place):
            self._found[end] = {one.identity: one for one in report.snapshots}
        self._seen[end] = report.snapshots_at, report.place

    def _step(self, identity: str) -> Calls | None:
        """What is to be done about a snapshot now; None: nothing."""
        both: list[Any] = [found.get(identity) for found in self._found]
        if None not in both:
            for end in (0, 1):
                if both[1 - end].copying and _is_whole(both[end]):
                    return self._copy(end, both[end], both[1 - end]) if self._is_due(identity) else None
            self.notes.pop(identity, None)
            for end in (0, 1):
                if all(map(_is_whole, both)) and self._seen[1 - end][1] not in both[end].known_at:
                    return self._follow(end, both[end], "KNOWN", known_at=[self._seen[1 - end][1]])
            return None
        end = 0 if both[0] is not None else 1
        if both[end] is None:
            return None  # a later round has seen that it is gone
        if both[end].copying and self._seen[1 - end][1] in both[end].known_at:
            return self._follow(end, both[end], "DROP")
        return self._copy(end, both[end], None) if _is_whole(both[end]) and self._is_due(identity) else None

    def _is_awaited(self, identity: str) -> bool:
        """Whether one end has a snapshot that cannot be copied from there yet, as of not long ago."""
        both: list[Any] = [found.get(identity) for found in self._found]
        if None not in both or all(one is None or _is_whole(one) for one in both):
            return False
        return self._round - self._since.setdefault(identity, self._round) < AWAITED_ROUNDS

    def _is_due(self, identity: str) -> bool:
        return identity not in self.notes or self._round >= self._since.get(identity, 0)

    # -- a copy ------------------------------------------------------------------------------------------------------

    def _copy(self, end: int, one: Any, begun: Any) -> Calls:
        """Let the other end have a snapshot of this one."""
        copy, short = pipeline.SiteSnapshot(), one.snapshot.rpartition("/")[2]
        copy.CopyFrom(one if begun is None else begun)
        copy.snapshot = f"{self.ends[1 - end].subscription.partition('/subscriptions/')[0]}/snapshots/{short}"
        try:
            if begun is None:
                asked = {"expire_time": one.expire_time, "labels": one.labels}
                known_at = [*one.known_at, self._seen[end][1]]
                answer = yield from self._follow(1 - end, copy, "BEGIN", known_at=known_at, **asked)
                copy.incarnation = answer.copy
            note = yield from self._fill(end, one, copy, checked=begun is not None and begun.checked)
        except SyncpointError as error:
            if error.code not in (*REMARKED, Code.NOT_FOUND):
                raise
            note = error.message
            if WAS_DELETED in note and self._seen[1 - end][1] in one.known_at:
                yield from self._follow(end, one, "DROP")
                return
            if error.code is Code.ALREADY_EXISTS:
                note = f"{self.ends[1 - end].site} has another one of this name"
        self._since[one.identity] = self._round + TRY_ROUNDS
        if note:
            self.notes[one.identity] = f"{short}: {note}"
        else:
            self.notes.pop(one.identity, None)

    def _fill(self, end: int, one: Any, copy: Any, *, checked: bool) -> Generator[AckCall, Any, str]:
        """Returns why the copy is not whole; "": it is."""
        reports = self._reports.get(one.identity) or (yield from self._ask(end, one))
        self._reports[one.identity] = reports
        lacking = missing = 0
        for origin, report in reports:
            asked = pipeline.MergeAcksRequest(
                subscription=self.ends[1 - end].subscription,
                link=origin[1 - end],
                source_topic=report.source_topic,
                snapshot=copy.snapshot,
                copy=copy.incarnation,
                held=report.held,
                check=not checked,
            )
            try:
                answer = yield self._call(1 - end, EXCHANGE.MergeAcks, asked)
            except SyncpointError as error:
                if error.code is not Code.NOT_FOUND or not origin[1 - end]:
                    raise
                missing += sum(held.end for held in report.held)  # the link has copied nothing yet
            else:
                lacking, missing = lacking + answer.lacking, missing + answer.not_copied
        site = self.ends[1 - end].site
        if lacking:
            yield from self._follow(1 - end, copy, "DROP")
            return f"{lacking:,} of its messages may be gone at {site}: they were acknowledged there, or never copied"
        if missing:
            if not checked:
                yield from self._follow(1 - end, copy, "CHECKED", copy=copy.incarnation)
            return f"{missing:,} messages before it are not at {site} yet"
        if (yield from self._follow(end, one, "KNOWN", known_at=[self._seen[1 - end][1]])) is None:
            return "it was deleted in the meantime"  # and no mark of it was left there
        yield from self._follow(1 - end, copy, "FINISH", copy=copy.incarnation)
        self._reports.pop(one.identity, None)
        self.copied += 1
        return ""

    def _ask(self, end: int, one: Any) -> Generator[AckCall, Any, list[tuple[OriginLinks, Any]]]:
        """What a snapshot holds, of each origin."""
        found = []
        for origin in self.origins:
            asked = pipeline.AckChangesRequest(
                subscription=self.ends[end].subscription, link=origin[end], snapshot=one.snapshot
            )
            try:
                found.append((origin, (yield self._call(end, EXCHANGE.AckChanges, asked))))
            except SyncpointError as error:
                if error.code is not Code.NOT_FOUND or not origin[end]:
                    raise  # a link that has copied nothing has nothing in it
        return found

    def _follow(self, end: int, one: Any, step: str, **fields: Any) -> Calls:
        asked = pipeline.FollowSnapshotRequest(
            subscription=self.ends[end].subscription, snapshot=one.snapshot, identity=one.identity, step=step, **fields
        )
        try:
            return (yield self._call(end, EXCHANGE.FollowSnapshot, asked))
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND or step == "BEGIN":
                raise
            return None  # it is gone, or another one has taken its name: the next report shows it

    def _call(self, end: int, method: Method, request: Any) -> AckCall:
        return AckCall(end == 0, method, request)


def _is_whole(one: Any) -> bool:
    return not (one.unfinished or one.copying)
