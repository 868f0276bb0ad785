"""Ordering: messages with one ordering key reach one subscriber at a time, in publish order.

Place: beside `lease`. A key is *held* by the consumer that has messages of it outstanding; further messages of
the key may go to the same consumer at once, everybody else's wait here. When a message of a key comes back (nack, or
its lease ran out), it and everything of the key after it is taken back and delivered again in order. Messages without
a key never come here, subscriptions without ordering neither. Identities are (source, offset); the order of a key is
the order in which its messages are admitted, which `subscription_sources` sees to.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from syncpoint.base.kernel.acks import decode_runs

Identity = tuple[int, int]
WAITING_MAX = 100_000  # messages held back by their keys before reading stops


@dataclass(slots=True)
class KeyState:
    """One key with messages outstanding or waiting. `holder` is the consumer that has the outstanding ones."""

    holder: int
    outstanding: list[Identity] = field(default_factory=list)
    waiting: deque[Identity] = field(default_factory=deque)
    blockers: set[Identity] = field(default_factory=set)  # rest until a retry time, or until a dead letter is stored
    loading: bool = False  # messages of it are being read again: nothing may overtake them
    returned: set[Identity] = field(default_factory=set)  # came back by themselves: a late acknowledgement still counts


class KeyOrder:
    """All keys of one subscription that are not at rest."""

    def __init__(self) -> None:
        self._keys: dict[bytes, KeyState] = {}
        self._key_of: dict[Identity, bytes] = {}
        self._size_of: dict[Identity, int] = {}
        self._ready: deque[bytes] = deque()  # keys nobody holds
        self._more: dict[int, dict[bytes, None]] = {}  # holder -> keys it holds of which more waits, each once
        self.waiting = 0
        self.void: dict[Identity, int] = {}  # the last serial of its leases that was taken back, until it is completed

    def __repr__(self) -> str:
        return f"<KeyOrder keys={len(self._keys)} waiting={self.waiting} ready={len(self._ready)}>"

    @property
    def full(self) -> bool:
        return self.waiting >= WAITING_MAX

    def admit(self, key: bytes, identity: Identity, holder: int, nbytes: int = 0) -> bool:
        """A message of `nbytes` read for the first time: True if `holder` may have it now, False if it waits here."""
        if identity in self._key_of:
            return False
        self._key_of[identity] = key
        self._size_of[identity] = nbytes
        state = self._keys.get(key)
        if state is None:
            self._keys[key] = KeyState(holder, [identity])
            return True
        free = state.outstanding and not state.waiting and not state.blockers and not state.loading
        if free and state.holder == holder:
            state.outstanding.append(identity)
            return True
        state.waiting.append(identity)
        self.waiting += 1
        if free:
            self._more.setdefault(state.holder, {})[key] = None
        return False

    def start(
        self, holder: int, limit: int, bytes_max: int = 1 << 62, *, any_first: bool = True
    ) -> tuple[bytes, list[Identity]] | None:
        """A key and what waits of it that may go to `holder` now: of a key it holds, or a free one.

        At most `limit` messages and `bytes_max` bytes; with `any_first` the first one may be of any size. None also
        when the next message is too large: it keeps its turn. What is given counts as outstanding, and nothing else of
        the key is given away until `started` is called. In the meantime it may be taken back or completed: ask
        `is_outstanding` before lending it.
        """
        turn = self._next_key(holder)
        if turn is None:
            return None
        key, held = turn
        state = self._keys[key]
        taken: list[Identity] = []
        size = 0
        while state.waiting and len(taken) < limit:
            nbytes = self._size_of[state.waiting[0]]
            if size + nbytes > bytes_max and (taken or not any_first):
                break
            taken.append(state.waiting.popleft())
            size += nbytes
        if not taken:
            if held:
                self._more[holder] = {key: None, **self._more.get(holder, {})}
            else:
                self._ready.appendleft(key)
            return None
        self.waiting -= len(taken)
        state.holder, state.loading = holder, True
        state.outstanding += taken
        return key, taken

    def _next_key(self, holder: int) -> tuple[bytes, bool] | None:
        """The key whose turn it is, and whether the holder has it already."""
        more = self._more.get(holder)
        while more:
            key = next(iter(more))
            self._no_more(holder, key)
            state = self._keys.get(key)
            if state is not None and state.holder == holder and state.outstanding and self._may_go_on(state):
                return key, True
        while self._ready:
            key = self._ready.popleft()
            state = self._keys.get(key)
            if state is not None and not state.outstanding and self._may_go_on(state):
                return key, False
        return None

    def _no_more(self, holder: int, key: bytes) -> None:
        """Most holders are pulls that have left: nothing of them may stay longer than what they hold."""
        more = self._more.get(holder)
        if more is not None:
            more.pop(key, None)
            if not more:
                del self._more[holder]

    @staticmethod
    def _may_go_on(state: KeyState) -> bool:
        return bool(state.waiting) and not state.blockers and not state.loading

    def size(self, identities: Iterable[Identity]) -> int:
        """Bytes of messages that are known here."""
        return sum(self._size_of[identity] for identity in identities)

    def started(self, key: bytes) -> None:
        """What `start` gave was lent, taken back or completed: the key may go on."""
        state = self._keys[key]  # kept while it was loading
        state.loading = False
        self._go_on(key, state)

    def is_outstanding(self, identity: Identity) -> bool:
        """Whether the message is with its key's holder (or on its way there)."""
        key = self._key_of.get(identity)
        return key is not None and identity in self._keys[key].outstanding

    def on_discharged(self, source: int, runs: bytes) -> None:
        """Acknowledged (or dead-lettered, or gone) offsets: their keys may go on."""
        for begin, length in decode_runs(runs):
            for offset in range(begin, begin + length):
                self.discharge((source, offset))

    def discharge(self, identity: Identity) -> None:
        """One message needs no delivery any more."""
        if self.void:
            self.void.pop(identity, None)
        key = self._key_of.pop(identity, None)
        if key is None:
            return
        del self._size_of[identity]
        state = self._keys[key]
        state.blockers.discard(identity)
        state.returned.discard(identity)
        if identity in state.outstanding:
            state.outstanding.remove(identity)
        elif identity in state.waiting:
            state.waiting.remove(identity)
            self.waiting -= 1
        self._go_on(key, state)

    def forget(self, source: int) -> list[Identity]:
        """Somebody else delivers from a source: what is known of it here means nothing any more. Returns what that
        was.
        """
        self.void = {one: serial for one, serial in self.void.items() if one[0] != source}
        return list(self._forget(one for one in self._key_of if one[0] == source))

    def let_go(self, of_key: Callable[[bytes], bool], lent: Callable[[int, int], bool]) -> Mapping[Identity, bytes]:
        """What is not lent of some keys will be admitted anew. Returns what that was, with its keys."""
        keys = {key for key in self._keys if of_key(key)}
        gone = self._forget(one for one, key in self._key_of.items() if key in keys and not lent(*one))
        for one in gone if self.void else ():
            self.void.pop(one, None)
        return gone

    def _forget(self, identities: Iterable[Identity]) -> Mapping[Identity, bytes]:
        gone = {one: self._key_of[one] for one in identities}
        for identity in gone:
            del self._key_of[identity], self._size_of[identity]
        for key in set(gone.values()):
            state = self._keys[key]
            self.waiting -= len(state.waiting)
            state.outstanding = [one for one in state.outstanding if one not in gone]
            state.waiting = deque(one for one in state.waiting if one not in gone)
            state.blockers -= gone.keys()
            state.returned -= gone.keys()
            self.waiting += len(state.waiting)
            self._go_on(key, state)
        return gone

    def take_back(self, identity: Identity, *, block: bool, last_serial: int | None = None) -> list[Identity]:
        """A message came back undone: it and everything of its key after it waits again. Returns what must lose its
        lease, in order; empty if this was known already. With `block` the key rests until `unblock`, or until the
        message is completed. `last_serial`: where it was lent, what comes after it has void leases up to this one.
        """
        key = self._key_of.get(identity)
        if key is None:
            return []
        state = self._keys[key]
        if block:
            state.blockers.add(identity)
        if identity not in state.outstanding:
            return []
        at = state.outstanding.index(identity)
        back = state.outstanding[at:]
        del state.outstanding[at:]
        state.waiting.extendleft(reversed(back))
        self.waiting += len(back)
        if last_serial is not None:
            later = state.returned.difference(state.outstanding, back[:1]).union(back[1:])
            self.void.update(dict.fromkeys(later, last_serial))
            state.returned.add(identity)
        self._go_on(key, state)
        return back

    def unblock(self, identity: Identity) -> None:
        """The retry time of a message has come."""
        key = self._key_of.get(identity)
        if key is not None:
            state = self._keys[key]
            state.blockers.discard(identity)
            self._go_on(key, state)

    def _go_on(self, key: bytes, state: KeyState) -> None:
        if state.blockers or state.loading:
            return
        if state.outstanding:
            if state.waiting:
                self._more.setdefault(state.holder, {})[key] = None
            return
        self._no_more(state.holder, key)
        if state.waiting:
            self._ready.append(key)
        else:
            del self._keys[key]

    def knows(self, identity: Identity) -> bool:
        """Whether the message is outstanding or waiting under a key."""
        return identity in self._key_of
