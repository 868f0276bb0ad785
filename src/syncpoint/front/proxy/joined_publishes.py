"""Publishes of one caller that came together and are plain: they go to their chain as one request.

Place: between a batch of calls and `publisher`, for which they are one call.
Promise: each call is answered with the ids of its own messages. Where nothing was stored because of what one of them
holds, each goes alone, and only that one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from syncpoint.base.kernel import split
from syncpoint.base.kernel.errors import Malformed
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.call_batches import CallBatch
from syncpoint.wire.transport.stream_state import Message

log = logging.getLogger(__name__)


class JoinedPublishes:
    """Calls of a batch from `first` on; `counts`: the messages of each. As `calls.Call`, as far as a publish asks."""

    cancelled = False  # a caller that has gone is found when its answer is given
    on_cancel: Callable[[], object] | None = None

    def __init__(self, batch: CallBatch, first: int, counts: list[int]) -> None:
        self._batch, self._first, self._counts = batch, first, counts
        self.deadline = batch.deadline
        self.calls = len(counts)

    @property
    def request(self) -> bytes:
        """All of them as one PublishRequest."""
        return b"".join(self._batch.requests[self._first : self._first + len(self._counts)])

    def reply(self, response: Message) -> None:
        """Answer each with the ids of its messages."""
        assert isinstance(response, bytes)
        try:
            answers = split.responses_of(response, self._counts)
        except Malformed:
            log.exception("a publish was answered with other ids than were asked for")
            self.fail(SyncpointError(Code.INTERNAL, "Internal error."))
            return
        self._batch.reply(self._first, answers)

    def fail(self, error: SyncpointError) -> None:
        """Fail each, or let it be tried alone."""
        if error.code is Code.INVALID_ARGUMENT:
            self._batch.serve_alone(self._first, len(self._counts))
        else:
            self._batch.fail(self._first, len(self._counts), error)
