"""JudgedPublishes: requests whose messages `message_ids` judges before the forwarder takes what is new of them.

Place: between `intake` and the turn, for topics that drop duplicates and for what the service itself
forwards; nothing else comes here.
Promise: ids are answered in the order of the request's messages; those of messages that are stored already are those
messages' ids, and are answered once they are persisted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from syncpoint.base.kernel import schedules
from syncpoint.base.model.errors import SyncpointError, Unavailable, not_a
from syncpoint.base.model.identity import format_message_id
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller
from syncpoint.broker.publish.commit.commit import GroupCommit
from syncpoint.broker.publish.facts.judged_batches import JudgedBatches, batch_of
from syncpoint.broker.publish.facts.message_ids import (
    PUBLISHED,
    Judgement,
    MessageIds,
    accepted_before,
    check_ids,
    not_derived,
)
from syncpoint.broker.publish.facts.origin import Allowance, Publication, PublishOrigin
from syncpoint.broker.publish.facts.scheduled import ScheduledPart
from syncpoint.broker.publish.facts.source import MessagePlace, Source, SourceTable
from syncpoint.wire.protobuf.messages import pubsub

NoteTaken = Callable[[ScheduledPart | None], object]
"""Called in the step in which the messages of a request are added; given where those of them are that wait."""
AddToTurn = Callable[[PublishCaller, Source, bytes, Allowance, NoteTaken], object]
"""Gives the messages of a request to the turn."""


class JudgedPublishes:
    """Publish to topics that drop duplicates."""

    def __init__(
        self, ids: MessageIds, batches: JudgedBatches, commit: GroupCommit, sources: SourceTable, add: AddToTurn
    ) -> None:
        self._ids, self._batches, self._commit, self._sources, self._add = ids, batches, commit, sources, add

    def add(
        self,
        caller: PublishCaller,
        published: Publication,
        source: Source,
        kinds: Sequence[str],
        allowance: Allowance,
    ) -> None:
        """Give those messages of a request to the turn that are not known by its batch, and are new by their ids of all
        these kinds.
        """
        topic, request, origin, batch = published.topic, bytes(published.request), published.origin, published.batch
        try:
            parsed = pubsub.PublishRequest.FromString(request)
        except DecodeError:
            raise not_a("PublishRequest") from None
        if origin is PublishOrigin.CLIENT and kinds:
            check_ids(parsed.messages)
        messages, judgements = list(parsed.messages), list[Judgement]()
        second = self._commit.turn_time()[0]
        for kind in ("", *kinds) if batch is not None and batch.known else kinds:
            if batch is not None and not kind:
                judged = Judgement.of_known(batch.known)
            else:
                later = b"" if kind != PUBLISHED else _later(messages, request, origin)
                sent = b"%d/%d" % (batch.sender, batch.number) if batch is not None and batch.resent else b""
                judged = self._ids.judge(topic, messages, second, name=kind, batch=sent, later=later)
                self._commit.admission.counts.duplicates += len(judged.same)
            judgements.append(judged)
            if judged.same:
                messages = [messages[number] for number in judged.fresh]
                request = pubsub.PublishRequest(topic=parsed.topic, messages=messages).SerializeToString()
        some_known = len(messages) < len(parsed.messages)
        answered = list[MessagePlace]()  # where all of them are, once that is known
        if some_known:
            caller = self._answering(caller, answered)
        first = MessagePlace(source.number, source.end)

        def note(part: ScheduledPart | None) -> None:
            places = _places(request, part, first) if messages else []
            for judged in reversed(judgements):
                self._ids.note_judged(judged, places)
                places = judged.places(places)
            if batch is not None and messages:
                self._batches.note(batch_of(topic.incarnation, batch.sender, batch.number, places))
            answered.extend(places)

        if messages or not some_known:  # none at all is refused
            self._add(caller, source, request, allowance, note)
        else:
            note(None)
            self._when_persisted(caller, answered)

    def answer(self, caller: PublishCaller, places: Sequence[MessagePlace]) -> None:
        """Answer a request all of whose messages were taken before, once they are persisted."""
        self._when_persisted(self._answering(caller, places), places)

    def _answering(self, caller: PublishCaller, places: Sequence[MessagePlace]) -> PublishCaller:
        """The caller for the new messages of a request; answers the whole request with their outcome."""

        def reply(response: bytes) -> None:
            ids = [format_message_id(self._sources.universe, *place) for place in places]
            caller.reply(pubsub.PublishResponse(message_ids=ids).SerializeToString())

        return FunctionCaller(reply, caller.fail)

    def _when_persisted(self, caller: PublishCaller, places: Sequence[MessagePlace]) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                caller.reply(b"")
            else:
                caller.fail(error if isinstance(error, SyncpointError) else Unavailable(str(error)))

        sources = [self._sources.by_number.get(place.source) for place in places]
        if all(one is None or one.visible > place.offset for one, place in zip(sources, places, strict=True)):
            done(None)
            return
        self._commit.append_pending()
        self._commit.when_appended_persisted(done)


def _later(messages: Sequence[pubsub.PubsubMessage], request: bytes, origin: PublishOrigin) -> bytes:
    """Which messages no id of a publisher decides about now."""
    if origin is PublishOrigin.FIRING:
        return accepted_before(messages)
    return not_derived(messages) if origin.own else schedules.divided(request)[2]


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
