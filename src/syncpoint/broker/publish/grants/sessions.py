"""Sessions: which stream of which subscribe forwarder counts. A machine; `host` carries out what it decides.

A forwarder opens a new stream whenever it gives one up. What it wrote on the old one may arrive long after, kept and
retransmitted by the network, and so may the words of a process that has died. Therefore streams are ordered: processes
of one name by the revision of their registration, streams of one process by a number that rises.
Promise: messages and ends of any stream but the newest change nothing, and their sender learns that; a living
forwarder that was taken for an older one begins again with a new stream. Precedence is no right for ever: a forwarder
that was silent for SESSION_S gives way to any other, and one that has lost its stream for that long is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from syncpoint.base.model.times import SESSION_S
from syncpoint.wire.transport.stream_state import Message


class Session(Protocol):
    """The stream of one subscribe forwarder. `registered`: the revision its process is a member since; `stream`: rises
    with every stream of the process.
    """

    @property
    def incarnation(self) -> int: ...

    @property
    def registered(self) -> int: ...

    @property
    def stream(self) -> int: ...

    def send(self, message: Message) -> None: ...


class Attached(NamedTuple):
    """A subscription that a forwarder serves, and whether it wants messages."""

    wanted: bool
    claims: Mapping[int, int]


@dataclass(slots=True)
class KnownForwarder:
    """A subscribe forwarder as far as this process knows it. `session`: None while it has no stream."""

    member: str
    incarnation: int
    registered: int
    stream: int
    session: Session | None
    seen_at: float
    lost_at: float | None = None
    attached: dict[int, Attached] = field(default_factory=dict)


class Began(NamedTuple):
    """What a Hello means. `displaced`: the stream that counted before; `over`: an incarnation that lives no more."""

    taken: bool
    displaced: Session | None = None
    over: int | None = None


class Sessions:
    """Track connected subscribe forwarders and their sessions."""

    def __init__(self) -> None:
        self._of_member: dict[str, KnownForwarder] = {}
        self.known: dict[int, KnownForwarder] = {}  # by incarnation

    def __iter__(self) -> Iterator[KnownForwarder]:
        return iter(list(self.known.values()))

    def began(self, session: Session, member: str, now: float) -> Began:
        """A stream names its process. It counts from now on, unless a newer one is known."""
        known = self._of_member.get(member)
        if known is None:
            self._add(session, member, now)
            return Began(True)
        if now - known.seen_at < SESSION_S and _is_older(session, known):
            return Began(False)
        displaced = known.session
        if known.incarnation != session.incarnation:
            del self.known[known.incarnation]
            self._add(session, member, now)
            return Began(True, displaced, known.incarnation)
        known.session, known.stream, known.registered = session, session.stream, session.registered
        known.seen_at, known.lost_at = now, None
        return Began(True, displaced)

    def _add(self, session: Session, member: str, now: float) -> None:
        known = KnownForwarder(member, session.incarnation, session.registered, session.stream, session, now)
        self._of_member[member] = self.known[session.incarnation] = known

    def of(self, session: Session) -> KnownForwarder | None:
        """Whose stream this is, if it is the newest; None: its messages do not count any more."""
        known = self.known.get(session.incarnation)
        return known if known is not None and known.session is session else None

    def lost(self, session: Session, now: float) -> bool:
        """The stream broke, or ended. False if it did not count anyway."""
        known = self.of(session)
        if known is None:
            return False
        known.session, known.lost_at = None, now
        return True

    def forget_lost(self, now: float) -> list[int]:
        """Incarnations that have not come back; they are not known any more."""
        gone = [one for one in self if one.lost_at is not None and now - one.lost_at > SESSION_S]
        for one in gone:
            del self.known[one.incarnation]
            del self._of_member[one.member]
        return [one.incarnation for one in gone]


def _is_older(session: Session, known: KnownForwarder) -> bool:
    if session.incarnation == known.incarnation:
        return session.stream < known.stream
    return session.registered < known.registered
