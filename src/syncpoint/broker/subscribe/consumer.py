"""Flow control towards one subscriber.

A consumer is one streaming pull, or one unary pull waiting for messages. It has room while fewer messages and fewer
bytes are outstanding (delivered, not yet acknowledged, not expired) than it asked for; who counts is the kernel's
lease table, so there is one truth. A first message larger than the byte limit is still delivered when nothing else is
outstanding: it would be stuck for ever otherwise.
"""

from collections.abc import Callable, Sequence

from syncpoint.base.kernel.leases import LeaseTable

PULLS = 0  # all unary pulls share one number in the lease table


class Consumer:
    """Somebody who takes messages. `send(parts, serials)` hands over the pieces of one response."""

    __slots__ = (
        "beside",
        "by_response",
        "came_ns",
        "changed",
        "closed",
        "deadline_s",
        "gone",
        "holder",
        "max_bytes",
        "max_messages",
        "number",
        "send",
        "single",
        "transforming",
        "uses",
        "writable",
    )

    def __init__(
        self,
        number: int,
        holder: int,
        send: Callable[[Sequence[bytes], Sequence[int]], None],
        *,
        max_messages: int,
        max_bytes: int,
        deadline_s: int,
        gone: Callable[[], None],
        changed: Callable[[], None] = lambda: None,
        single: bool = False,
        beside: Callable[[], int] | None = None,
        uses: bool = True,
        came_ns: int = 0,
    ) -> None:
        self.number = number  # in the lease table
        self.holder = holder  # unique, for ordering keys
        self.send = send
        self.came_ns = came_ns  # by the clock that stamps messages
        self.gone = gone  # called when the subscription is deleted or detached under it
        self.changed = changed  # called when the record of the subscription has changed
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.deadline_s = deadline_s
        self.beside = beside  # bytes for which there is room besides; None: that is not bounded
        self.single = single  # a unary pull: one response, then it leaves
        self.uses = uses  # whether its being there is a use of the subscription, which keeps it from expiring
        self.by_response = single  # `max_messages` is for one response, whatever is outstanding
        self.writable = True
        self.transforming = False  # it takes nothing more until what was lent has been transformed
        self.closed = False

    def room(self, table: LeaseTable) -> tuple[int, int]:
        """Messages and bytes it may take now; (0, 0) when it must wait."""
        if self.closed or self.transforming or not self.writable:
            return 0, 0
        beside = self.max_bytes if self.beside is None else self.beside()
        if beside <= 0:
            return 0, 0
        if self.by_response:
            return self.max_messages, min(self.max_bytes, beside)
        messages, nbytes = table.outstanding(self.number)
        room, room_bytes = self.max_messages - messages, min(self.max_bytes - nbytes, beside)
        if room <= 0 or room_bytes <= 0:
            return 0, 0
        return room, room_bytes

    def free(self, table: LeaseTable) -> bool:
        """Whether the next message may be of any size: nothing is outstanding, or it is a unary pull."""
        return self.by_response or not table.outstanding(self.number)[0]
