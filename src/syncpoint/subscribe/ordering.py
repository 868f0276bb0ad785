"""Ordering: messages with one ordering key reach one subscriber at a time, in publish order.

Station 9, beside `lease`. A key is *held* by the consumer that has messages of it outstanding; further messages of the key may go to the same
consumer at once, everybody else's wait here. When a message of a key comes back (nack, or its lease ran out), it and everything of the
key after it is taken back and delivered again in order. Messages without a key never come here, subscriptions without ordering neither.
Identities are (source, offset): sources of a topic are numbered in publish order, so tuples compare in publish order.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from syncpoint.kernel.acks import decode_runs

Identity = tuple[int, int]
WAITING_MAX = 100_000  # messages held back by their keys before reading stops


@dataclass(slots=True)
class KeyState:
    """One key with messages outstanding or waiting. `holder` is the consumer that has the outstanding ones."""

    holder: int
    outstanding: list[Identity] = field(default_factory=list)
    waiting: deque[Identity] = field(default_factory=deque)
    blocked: bool = False  # waits for a retry time or for a dead letter to be stored


class KeyOrder:
    """All keys of one subscription that are not at rest."""

    def __init__(self) -> None:
        self._keys: dict[bytes, KeyState] = {}
        self._key_of: dict[Identity, bytes] = {}
        self._ready: deque[bytes] = deque()
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<KeyOrder keys={len(self._keys)} waiting={self.waiting} ready={len(self._ready)}>"

    @property
    def full(self) -> bool:
        return self.waiting >= WAITING_MAX

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def admit(self, key: bytes, identity: Identity, holder: int) -> bool:
        """A message read for the first time: True if `holder` may have it now, False if it waits here from now on."""
        if identity in self._key_of:
            return False
        self._key_of[identity] = key
        state = self._keys.get(key)
        if state is None:
            self._keys[key] = KeyState(holder, [identity])
            return True
        if state.outstanding and not state.waiting and not state.blocked and state.holder == holder:
            state.outstanding.append(identity)
            return True
        state.waiting.append(identity)
        self.waiting += 1
        return False

    def start_ready(self, holder: int, limit: int) -> list[Identity]:
        """Messages of one key that can go on now, at most `limit`; `holder` has the key from now on."""
        while self._ready:
            key = self._ready[0]
            state = self._keys.get(key)
            if state is None or state.outstanding or state.blocked or not state.waiting:
                self._ready.popleft()
                continue
            taken = [state.waiting.popleft() for _ in range(min(limit, len(state.waiting)))]
            self.waiting -= len(taken)
            state.holder, state.outstanding = holder, list(taken)
            self._ready.popleft()
            return taken
        return []

    def settled(self, source: int, runs: bytes) -> None:
        """Acknowledged (or dead-lettered, or gone) offsets: their keys may go on."""
        for begin, length in decode_runs(runs):
            for offset in range(begin, begin + length):
                self.settle((source, offset))

    def settle(self, identity: Identity) -> None:
        """One message needs no delivery any more."""
        key = self._key_of.pop(identity, None)
        if key is None:
            return
        state = self._keys[key]
        if identity in state.outstanding:
            state.outstanding.remove(identity)
        elif identity in state.waiting:
            state.waiting.remove(identity)
            self.waiting -= 1
        self._go_on(key, state)

    def take_back(self, identity: Identity, *, block: bool) -> list[Identity]:
        """A message came back undone: it and everything of its key after it waits again. Returns what must lose its lease, in order;
        empty if this was known already. With `block` the key rests until `unblock`."""
        key = self._key_of.get(identity)
        if key is None:
            return []
        state = self._keys[key]
        if identity not in state.outstanding:
            return []
        at = state.outstanding.index(identity)
        back = state.outstanding[at:]
        del state.outstanding[at:]
        state.waiting.extendleft(reversed(back))
        self.waiting += len(back)
        state.blocked = state.blocked or block
        self._go_on(key, state)
        return back

    def unblock(self, identity: Identity) -> None:
        """The retry time of a message has come."""
        key = self._key_of.get(identity)
        if key is not None:
            state = self._keys[key]
            state.blocked = False
            self._go_on(key, state)

    def _go_on(self, key: bytes, state: KeyState) -> None:
        if state.outstanding or state.blocked:
            return
        if state.waiting:
            self._ready.append(key)
        else:
            del self._keys[key]

    def knows(self, identity: Identity) -> bool:
        """Whether the message is outstanding or waiting under a key."""
        return identity in self._key_of

    def outstanding_of(self, identities: Iterable[Identity]) -> list[Identity]:
        """Those of them that are outstanding."""
        out = []
        for identity in identities:
            key = self._key_of.get(identity)
            if key is not None and identity in self._keys[key].outstanding:
                out.append(identity)
        return out
