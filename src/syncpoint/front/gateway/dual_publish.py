"""One publish on its way to two sites: where it is sent now, and when its publisher is answered.

Place: the decisions of `dual_publisher`; nothing here waits, and outcomes come in. Also what messages are called: their
identity is the attribute sys.MessageId, by which a site that has one already stores no second one.
Promise: the answer is given when the sites that the policy names have stored every message, and not before:
`strict` both; `degrade` all that take calls, at least one; `available` any one. A site whose outcome is unknown is sent
the same bytes again, under the same identity, until it answers or is left. What the publisher was refused, or reads as
unknown, is known again when the same caller sends the same bytes: so its retry stores nothing twice.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from syncpoint.base.kernel.errors import Invalid, Malformed
from syncpoint.base.kernel.publish import scan
from syncpoint.base.model.errors import InvalidArgument, SyncpointError, Unavailable, not_a
from syncpoint.base.model.reserved import GIVEN, IDENTITY
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.serving import parsed

OWN: Final = GIVEN  # how identities begin that a gateway gave, and no publisher may
FILLED: Final = f"{OWN}fill-"  # those of messages that came to a site without a gateway, before the site's name
DOUBTS_MAX: Final = 200_000  # requests and their identities, together; a request has up to a thousand
DOUBT_S: Final = 600.0


class AnswerWhen(enum.StrEnum):
    """What a publisher waits for."""

    STRICT = "strict"
    DEGRADE = "degrade"
    AVAILABLE = "available"


@dataclass
class DualPublish:
    """One request. `sites`: those it goes to, the home first; `outcome`: what the publisher is answered, once known."""

    sites: Sequence[str]
    answer: AnswerWhen
    outcome: bytes | SyncpointError | None = None
    pending: set[str] = field(default_factory=set)
    stored: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, SyncpointError] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    def begin(self) -> Sequence[str]:
        """Where to send it. Where `strict` has one site alone, nowhere: its outcome is UNAVAILABLE."""
        if self.answer is AnswerWhen.STRICT and len(self.sites) < 2:
            self.outcome = Unavailable(
                "Only one site takes calls, and these topics are stored at two before a publish is answered (answer:"
                " strict). Nothing was stored. Try again when the other site is back."
            )
            return ()
        self.pending = set(self.sites)
        return self.sites

    def confirmed(self, site: str, response: bytes) -> None:
        """A site has stored it."""
        self.pending.discard(site)
        self.stored[site] = response
        self._decide()

    def failed(self, site: str, error: SyncpointError) -> bool:
        """A site did not answer, or refused; returns whether to send it there again, after a pause."""
        if site not in self.pending:
            return False
        if error.code in MOVABLE:
            return True
        self.pending.discard(site)
        self.refused[site] = error
        self._decide()
        return False

    def leave(self, site: str) -> None:
        """A site is left: nothing is expected of it any more."""
        if site in self.pending:
            self.pending.discard(site)
            self.left.add(site)
            self._decide()

    def expire(self) -> None:
        """The publisher's time is over."""
        if self.outcome is None:
            self.outcome = self._unknown("sites did not answer in time")

    def _decide(self) -> None:
        if self.outcome is not None:
            return
        if self.refused and self.answer is not AnswerWhen.AVAILABLE and not self.pending:
            self.outcome = self._refusal()
        elif self._enough():
            home = next(one for one in self.sites if one in self.stored)
            self.outcome = self.stored[home]
        elif not self.pending:
            self.outcome = self._refusal() if self.refused else self._unknown("sites stopped answering")

    def _enough(self) -> bool:
        if self.answer is AnswerWhen.AVAILABLE:
            return bool(self.stored)
        if self.answer is AnswerWhen.STRICT:
            return len(self.stored) >= 2
        return bool(self.stored) and not self.pending

    def _refusal(self) -> SyncpointError:
        site = next(one for one in self.sites if one in self.refused)
        error = self.refused[site]
        if not self.stored:
            return error
        text = (
            f"Stored at {', '.join(self.stored)}, refused at {site}: {error.message} Repair that, then publish again."
        )
        return SyncpointError(error.code, text, error.details)

    def _unknown(self, why: str) -> Unavailable:
        where = f"stored at {', '.join(self.stored)}, not yet at others" if self.stored else "may or may not be stored"
        return Unavailable(f"The messages are {where}: {why}. Try again: nothing is stored twice.")


def stamped(request: bytes, fresh: Callable[[], str], known: Sequence[str] = ()) -> tuple[bytes, list[str], str, str]:
    """The request with an identity for each message; with the identities, its topic, and its ordering key. `known`:
    those it was given before, "" for messages with one of their publisher. Raises `InvalidArgument`.
    """
    try:
        scan(request, b"", 0, 0, 0)  # what no site takes is not taken apart here, while all others wait
    except Invalid as bad:
        raise InvalidArgument(bad.field, bad.problem) from None
    except (Malformed, UnicodeDecodeError):
        raise not_a("PublishRequest") from None
    asked = parsed(pubsub.PublishRequest, request)
    given = []
    for number, message in enumerate(asked.messages):
        theirs = message.attributes.get(IDENTITY, "")
        if not theirs or theirs.startswith(OWN):  # that of a message which a program passes on is of that one
            message.attributes[IDENTITY] = known[number] if number < len(known) and known[number] else OWN + fresh()
        given.append(message.attributes.get(IDENTITY, ""))
    key = asked.messages[0].ordering_key if asked.messages else ""
    data: bytes = asked.SerializeToString()
    return data, given, asked.topic, key


class Doubts:
    """Requests whose publishers do not know what became of them, with the identities they were sent under. Each is
    taken once: a second request of the same bytes is another one.
    """

    def __init__(self) -> None:
        self._by_bytes: OrderedDict[bytes, tuple[float, list[str]]] = OrderedDict()
        self._held = 0  # requests and identities

    @staticmethod
    def name(caller: str, request: bytes) -> bytes:
        """What a request is found by."""
        return blake2b(request, digest_size=16, key=caller.encode()[:64]).digest()

    def note(self, name: bytes, identities: list[str], now: float) -> None:
        """The publisher of a request reads that its outcome is unknown."""
        self.take(name)
        self._by_bytes[name] = (now, identities)
        self._held += 1 + len(identities)
        while self._held > DOUBTS_MAX or (self._by_bytes and self._oldest() < now - DOUBT_S):
            self.take(next(iter(self._by_bytes)))

    def take(self, name: bytes) -> list[str]:
        """The identities that a request was sent under before; none for a new one."""
        if name not in self._by_bytes:
            return []
        _, found = self._by_bytes.pop(name)
        self._held -= 1 + len(found)
        return found

    def _oldest(self) -> float:
        return next(iter(self._by_bytes.values()))[0]
