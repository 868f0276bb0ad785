"""Callers of a publish whose request was divided: one answer, once both parts have theirs.

Place: made by the forwarder and by `ingress` where some messages of a request wait for their time and others do not.
Promise: ids are answered in the order of the request's messages; a failure of either part is answered at once, and
once. What the other part comes to is not known to the caller then.
"""

from __future__ import annotations

from functools import partial

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller
from syncpoint.wire.protobuf.messages import pubsub


class PartsCaller:
    """`says`: one byte for each message of the request: 0 of the first part, 1 of the second."""

    def __init__(self, caller: PublishCaller, says: bytes) -> None:
        self._caller, self._says = caller, says
        self._ids: dict[int, list[str]] = {}
        self._over = False

    def part(self, number: int) -> PublishCaller:
        """The caller of one part."""
        return FunctionCaller(partial(self._replied, number), self._failed)

    def _replied(self, number: int, response: bytes) -> None:
        """A part is persisted."""
        self._ids[number] = list(pubsub.PublishResponse.FromString(response).message_ids)
        if len(self._ids) == 2 and not self._over:
            self._over = True
            ids = {part: iter(found) for part, found in self._ids.items()}
            merged = pubsub.PublishResponse(message_ids=[next(ids[part]) for part in self._says])
            self._caller.reply(merged.SerializeToString())

    def _failed(self, error: SyncpointError) -> None:
        """A part is not, or nobody knows."""
        if not self._over:
            self._over = True
            self._caller.fail(error)
