"""Callers of a publish of which only a part is stored: the rest is known by its ids.

Place: made by the forwarder for requests in which `message_ids` found something.
Promise: ids are answered in the order of the request's messages; those of messages that are stored already are those
messages' ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.model.errors import SyncpointError
from syncpoint.model.identity import format_message_id
from syncpoint.publish.append import PublishCaller
from syncpoint.publish.message_ids import Judgement
from syncpoint.wire.messages import pubsub


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
