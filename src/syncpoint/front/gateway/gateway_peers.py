"""What gateways in front of the same sites report to each other: which messages of dual topics their subscribers
acknowledged, and what was reset by a seek or changed.

Place: between `dual_delivery` of one gateway and that of another; sent to `/peer` at the admin address, with its token.
Promise: a copy that any gateway holds is acknowledged once the original was, through whichever gateway. Facts for a
peer are sent in order; beyond FACTS_MAX that wait for one peer the oldest are dropped, and what they named may be
delivered again after a move. A gateway that starts anew asks for what it holds and was acknowledged before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from syncpoint.base.runtime.backoff import Backoff
from syncpoint.base.runtime.tasks import Tasks

if TYPE_CHECKING:
    from syncpoint.front.gateway.dual_delivery import DualDelivery

PATH: Final = "/peer"
OPERATOR: Final = "x-syncpoint-gateway"
"""A header that every change carries: no page of another site can make a browser send it."""
FLUSH_S: Final = 0.05
TIMEOUT_S: Final = 5.0
FACTS_EACH: Final = 2_000  # of one request
FACTS_MAX: Final = 100_000
BODY_MAX: Final = 4 << 20
ASKED_MAX: Final = 1_000  # copies of one subscription, at a time

DIRECT: Final = build_opener(ProxyHandler({}))
"""Calls admin addresses, past the proxy that the environment names for others: a token is for the gateway alone."""

Fact = tuple[str, float, tuple[tuple[str, float], ...]]
"""A message that was acknowledged: identity, publish time, and the sites that know, as of `dual_identities.Acked`."""
Post = Callable[[str, bytes], bytes]

log = logging.getLogger(__name__)


def poster(token: str) -> Post:
    """Sends a body to HOST:PORT, through no proxy, and returns the answer's. Blocks; raises `OSError` and
    `HTTPException`.
    """

    def post(address: str, body: bytes) -> bytes:
        headers = {OPERATOR: "peer", "content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        request = Request(f"http://{address}{PATH}", body, headers, method="POST")
        with DIRECT.open(request, timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read(BODY_MAX)
            return found

    return post


class OtherGateway:
    """One other gateway. `waiting`: what it has not been sent, as subscription and fact; a str is what happened to the
    subscription instead: reset by a seek or changed.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: deque[tuple[str, Fact | str]] = deque()
        self.dropped = 0
        self.answers = True

    def report(self, subscription: str, facts: Sequence[Fact | str]) -> None:
        """Queue these."""
        self.waiting.extend((subscription, one) for one in facts)
        while len(self.waiting) > FACTS_MAX:
            self.waiting.popleft()
            self.dropped += 1


class GatewayPeers:
    """All of a gateway. `post`: sends a body to an address, called in a thread."""

    def __init__(self, addresses: Sequence[str], delivery: DualDelivery, post: Post) -> None:
        self.peers = [OtherGateway(one) for one in addresses]
        self._delivery, self._post = delivery, post
        self._me = secrets.token_hex(8)
        self.on_changed: Callable[[str], None] = lambda name: None
        """Called with a topic or subscription that was changed through a peer."""
        self.tasks = Tasks()

    def start(self) -> None:
        """Begin to report."""
        for one in self.peers:
            self.tasks.start(self._keep_reporting(one))

    def report(self, subscription: str, facts: Sequence[Fact | str]) -> None:
        """Queue these for all peers."""
        for one in self.peers:
            one.report(subscription, facts)

    async def ask(self, subscription: str, identities: Sequence[str]) -> list[Fact]:
        """What peers know to be acknowledged of these. A peer that does not answer knows nothing."""
        body = json.dumps({"from": self._me, "ask": [subscription, list(identities[:ASKED_MAX])]}).encode()
        found: list[Fact] = []
        for one in self.peers:
            try:
                answer = json.loads(await asyncio.to_thread(self._post, one.address, body))
                found += [_fact(fact) for fact in answer.get("acked", ())]
            except (OSError, HTTPException, ValueError, TypeError) as error:
                log.info("peer %s: %s", one.address, error)
        return found

    def received(self, body: bytes) -> dict[str, Any]:
        """The answer to a peer. Raises `ValueError` for what none sends."""
        try:
            asked = json.loads(body)
        except RecursionError:
            raise ValueError("lists within lists, too deep to be read") from None
        if not isinstance(asked, dict):
            raise ValueError("not an object")
        if asked.get("from") == self._me:  # all gateways may have the same file
            return {}
        if "ask" in asked:
            name, identities = asked["ask"]
            book = self._delivery.books.get(name)
            return {"acked": [] if book is None else book.acks.facts_of(map(str, identities))}
        facts: dict[str, list[Fact]] = {}
        for name, fact in asked["facts"]:
            if isinstance(fact, str):
                self._take(facts)
                facts = {}
                self._happened(name, fact)
            else:
                facts.setdefault(name, []).append(_fact(fact))
        self._take(facts)
        return {}

    def _take(self, facts: dict[str, list[Fact]]) -> None:
        for name, some in facts.items():
            book = self._delivery.books.get(name)
            if book is not None:
                book.reported(some)

    def _happened(self, name: str, what: str) -> None:
        if what == "reset":
            book = self._delivery.books.get(name)
            if book is not None:
                book.acks.forget()
        else:
            self._delivery.changed(name)
            self.on_changed(name)

    async def _keep_reporting(self, peer: OtherGateway) -> None:
        backoff = Backoff(FLUSH_S, 2.0)
        while True:
            await asyncio.sleep(backoff.pause_s)
            some = [peer.waiting[at] for at in range(min(len(peer.waiting), FACTS_EACH))]
            if not some:
                continue
            dropped = peer.dropped
            body = json.dumps({"from": self._me, "facts": some}).encode()
            try:
                await asyncio.to_thread(self._post, peer.address, body)
            except (OSError, HTTPException) as error:
                if peer.answers:
                    log.warning("acknowledgements cannot be reported to peer %s: %s", peer.address, error)
                peer.answers = False
                backoff.failed()
                continue
            for _ in range(max(0, len(some) - (peer.dropped - dropped))):  # the oldest may have been dropped since
                peer.waiting.popleft()
            peer.answers = True
            backoff.succeeded()


def _fact(found: Any) -> Fact:
    identity, at, known = found
    return str(identity), float(at), tuple((str(tag), float(published_s)) for tag, published_s in known)
