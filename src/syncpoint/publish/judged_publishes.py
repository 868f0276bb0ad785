"""JudgedPublishes: requests whose messages `message_ids` judges before the forwarder takes what is new of them.

Place: between `forwarder.publish` and the turn, for topics that drop duplicates and for what the service itself
forwards; nothing else comes here.
Promise: ids are answered in the order of the request's messages; those of messages that are stored already are those
messages' ids, and are answered once they are persisted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from google.protobuf.message import DecodeError

from syncpoint.kernel import schedules
from syncpoint.metadata.records import Topic
from syncpoint.model.errors import SyncpointError, Unavailable, not_a
from syncpoint.model.identity import format_message_id
from syncpoint.publish.append import PublishCaller
from syncpoint.publish.commit import GroupCommit
from syncpoint.publish.message_ids import PUBLISHED, Judgement, MessageIds, MessagePlace, accepted_before, check_ids
from syncpoint.publish.origin import PublishOrigin
from syncpoint.publish.scheduled import ScheduledPart
from syncpoint.publish.source import Source, SourceTable
from syncpoint.wire.messages import pubsub


class AddToTurn(Protocol):
    """Gives the messages of a request to the turn; returns where those of them are that wait for their time."""

    def __call__(
        self,
        caller: PublishCaller,
        topic: Topic,
        source: Source,
        request: bytes | memoryview,
        room: int,
        added: int,
        origin: PublishOrigin,
    ) -> ScheduledPart | None: ...


class JudgedPublishes:
    """See the module."""

    def __init__(self, ids: MessageIds, commit: GroupCommit, sources: SourceTable, add: AddToTurn) -> None:
        self._ids, self._commit, self._sources, self._add = ids, commit, sources, add

    def add(
        self,
        caller: PublishCaller,
        topic: Topic,
        source: Source,
        request: bytes,
        room: int,
        added: int,
        origin: PublishOrigin,
        kinds: Sequence[str],
        batch: bytes,
    ) -> ScheduledPart | None:
        """Give those messages of a request to the turn that are new by their ids of all these kinds."""
        try:
            parsed = pubsub.PublishRequest.FromString(request)
        except DecodeError:
            raise not_a("PublishRequest") from None
        if origin is PublishOrigin.CLIENT:
            check_ids(parsed.messages)
        judgements: list[Judgement] = []
        second = self._commit.turn_time()[0]
        for kind in kinds:
            later = b"" if kind != PUBLISHED else _later(parsed.messages, request, origin)
            judged = self._ids.judge(topic, parsed.messages, second, name=kind, batch=batch, later=later)
            judgements.append(judged)
            if not judged.same:
                continue
            self._commit.admission.counts.duplicates += len(judged.same)
            caller = answered = JudgedCaller(caller, judged, self._sources.universe)
            if not judged.fresh:
                self._when_persisted(answered, judged)
                break
            fresh = [parsed.messages[number] for number in judged.fresh]
            parsed = pubsub.PublishRequest(topic=parsed.topic, messages=fresh)
            request = parsed.SerializeToString()
        part, places = None, list[MessagePlace]()
        if judgements[-1].fresh:
            first = source.end
            part = self._add(caller, topic, source, request, room, added, origin)
            places = _places(request, part, MessagePlace(source.number, first))
        for judged in reversed(judgements):
            self._note(judged, places)
            places = judged.places(places)
        return part

    def _note(self, judged: Judgement, places: Sequence[MessagePlace]) -> None:
        if self._commit.failed is None:
            try:
                self._ids.note(judged, places)
            except Exception as error:  # they are taken, and would be again
                self._commit.on_inconsistency(error)

    def _when_persisted(self, caller: JudgedCaller, judged: Judgement) -> None:
        """Answer a request of which nothing is new once all that it is the same as is persisted."""

        def done(error: Exception | None) -> None:
            if error is None:
                caller.answer([])
            else:
                caller.fail(error if isinstance(error, SyncpointError) else Unavailable(str(error)))

        same = judged.places([])
        sources = [self._sources.by_number.get(place.source) for place in same]
        if all(one is None or one.visible > place.offset for one, place in zip(sources, same, strict=True)):
            done(None)
            return
        self._commit.append_pending()
        self._commit.when_appended_persisted(done)


class JudgedCaller:
    """Gets the answer to the fresh messages of a request, and gives that to all of it."""

    def __init__(self, caller: PublishCaller, judged: Judgement, universe: int) -> None:
        self._caller, self._judged, self._universe = caller, judged, universe

    def reply(self, message: bytes) -> None:
        """The fresh messages are persisted."""
        self.answer(list(pubsub.PublishResponse.FromString(message).message_ids))

    def fail(self, error: SyncpointError) -> None:
        """They are not, or nobody knows."""
        self._caller.fail(error)

    def answer(self, fresh: Sequence[str]) -> None:
        """All ids, given those of the fresh messages."""
        judged = self._judged
        own = dict(zip(judged.fresh, fresh, strict=True))
        sames = (judged.same.get(number, number) for number in range(len(judged.hashes)))
        ids = [own[one] if isinstance(one, int) else format_message_id(self._universe, *one) for one in sames]
        self._caller.reply(pubsub.PublishResponse(message_ids=ids).SerializeToString())


def _later(messages: Sequence[pubsub.PubsubMessage], request: bytes, origin: PublishOrigin) -> bytes:
    """Which messages no id of a publisher decides about now."""
    return accepted_before(messages) if origin is PublishOrigin.FIRING else schedules.divided(request)[2]


def _places(request: bytes, part: ScheduledPart | None, first: MessagePlace) -> list[MessagePlace]:
    """Where the messages of a request are, all of which were just taken."""
    rest, waiting = first.offset, 0 if part is None else part.first_offset
    found = []
    for later in schedules.divided(request)[2]:
        if part is not None and later:
            found.append(MessagePlace(part.source, waiting))
            waiting += 1
        else:
            found.append(MessagePlace(first.source, rest))
            rest += 1
    return found
