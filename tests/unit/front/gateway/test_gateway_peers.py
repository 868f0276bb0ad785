"""Acknowledgements that gateways report to each other, without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.front.gateway import dual_delivery, gateway_peers
from syncpoint.front.gateway.dual_identities import AckBook
from syncpoint.front.gateway.gateway_peers import GatewayPeers, OtherGateway, poster

pytestmark = pytest.mark.shows("gateway")

S = "projects/p/subscriptions/s"
EU, US = "eu.", "us."


class FakeBook:
    """A subscription at a gateway; copies that were acknowledged at the other site are in `done`."""

    def __init__(self) -> None:
        self.acks, self.done = AckBook((EU, US)), set[str]()
        self.acks.news = []

    def reported(self, facts: Any) -> None:
        self.done.update(self.acks.reported(facts))

    def hold(self, identity: str, ack_id: str) -> None:
        if not self.acks.hold(US, identity, ack_id, 1.0):
            self.done.add(ack_id)


class Two:
    """Two gateways that report to each other."""

    def __init__(self) -> None:
        self.books = [FakeBook(), FakeBook()]
        self.changed: list[str] = []
        self.posted = 0
        self.peers = [
            GatewayPeers([str(1 - at)], SimpleNamespace(books={S: book}, changed=self.changed.append), self.post)  # type: ignore[arg-type]
            for at, book in enumerate(self.books)
        ]

    def post(self, address: str, body: bytes) -> bytes:
        self.posted += 1
        return json.dumps(self.peers[int(address)].received(body)).encode()

    def report(self) -> None:
        """Deliver all reports."""
        for peers, book in zip(self.peers, self.books, strict=True):
            peers.report(S, book.acks.take_news())
            (peer,) = peers.peers
            while peer.waiting:
                some = [peer.waiting.popleft() for _ in range(min(3, len(peer.waiting)))]
                self.post(peer.address, json.dumps({"from": peers._me, "facts": some}).encode())


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.permutations("lhat")), max_size=12))
def test_a_copy_is_acknowledged_whichever_gateway_holds_it_and_whichever_acknowledges(
    messages: list[tuple[int, int, list[str]]],
) -> None:
    two = Two()
    for number, (lender, holder, order) in enumerate(messages):
        identity = f"gw-{number}"
        for step in sorted(order, key=lambda one, order=order: order.index(one)):  # type: ignore[misc]
            if step == "l":
                assert two.books[lender].acks.deliver(EU, f"o{number}", identity, 1.0)
            elif step == "h":
                two.books[holder].hold(identity, f"c{number}")
            elif step == "a":
                two.books[lender].done.update(two.books[lender].acks.acknowledged([f"{EU}o{number}"]))
            else:
                two.report()
        if order.index("a") < order.index("l"):  # it was not lent yet
            two.books[lender].done.update(two.books[lender].acks.acknowledged([f"{EU}o{number}"]))
    two.report()
    done = set.union(*(book.done for book in two.books))
    assert done == {f"c{number}" for number in range(len(messages))}
    assert not any(book.acks.held for book in two.books)


def test_a_gateway_that_started_anew_asks_for_what_it_holds() -> None:
    two = Two()
    two.books[0].acks.deliver(EU, "o", "gw-1", 1.0)
    two.books[0].acks.acknowledged([f"{EU}o"])
    two.books[1].hold("gw-1", "c1")
    two.books[1].hold("gw-2", "c2")
    found = asyncio.run(two.peers[1].ask(S, list(two.books[1].acks.held)))
    two.books[1].reported(found)
    assert two.books[1].done == {"c1"}
    assert list(two.books[1].acks.held) == ["gw-2"]


def test_a_seek_and_a_change_are_reported_in_order() -> None:
    two = Two()
    two.books[0].acks.deliver(EU, "o", "gw-1", 1.0)
    two.books[0].acks.acknowledged([f"{EU}o"])
    two.peers[0].report(S, two.books[0].acks.take_news())
    two.peers[0].report(S, ["reset"])
    two.peers[0].report("projects/p/topics/t", ["changed"])
    two.report()
    assert not two.books[1].acks.acked
    assert two.changed == ["projects/p/topics/t"]


def test_what_no_gateway_sends_is_refused_and_what_it_sends_to_itself_is_nothing() -> None:
    two = Two()
    for body in (b"[]", b"{", b"{}", b'{"facts": [["s", ["x"]]]}', b'{"ask": ["s"]}', b'{"facts": 7}', b"[" * 200_000):
        with pytest.raises((ValueError, TypeError, KeyError)):
            two.peers[0].received(body)
    own = json.dumps({"from": two.peers[0]._me, "facts": [(S, "changed")]}).encode()
    assert two.peers[0].received(own) == {}
    assert two.changed == []


def test_what_waits_for_a_silent_peer_is_bounded_and_the_newest_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_peers, "FACTS_MAX", 3)
    peer = OtherGateway("x:1")
    peer.report(S, [(f"gw-{n}", 1.0, ()) for n in range(5)])
    assert [fact[0] for _, fact in peer.waiting] == ["gw-2", "gw-3", "gw-4"]
    assert peer.dropped == 2


def test_a_peer_that_comes_back_gets_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    two, answers = Two(), [OSError("refused"), OSError("refused")]
    monkeypatch.setattr(gateway_peers, "FLUSH_S", 0.01)
    post = two.post

    def failing(address: str, body: bytes) -> bytes:
        if answers:
            raise answers.pop()
        return post(address, body)

    async def scenario() -> None:
        peers = GatewayPeers(["1"], SimpleNamespace(books={}), failing)  # type: ignore[arg-type]
        peers.start()
        peers.report(S, [("gw-1", 1.0, ())])
        while peers.peers[0].waiting:
            await asyncio.sleep(0.01)
        assert peers.peers[0].answers
        await peers.tasks.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert "gw-1" in two.books[1].acks.acked


def test_a_peer_is_reached_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would be shown the token."""
    seen: list[tuple[str, str | None, bytes]] = []

    class Peer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.path, self.headers["authorization"], body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with HTTPServer(("127.0.0.1", 0), Peer) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert poster("secret")(f"127.0.0.1:{server.server_port}", b"x") == b"{}"
        answering.join(10)
    assert seen == [("/peer", "Bearer secret", b"x")]


def test_of_many_copies_each_is_asked_for_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_delivery, "ASKED_MAX", 2)
    asked: list[list[str]] = []

    class Peers:
        async def ask(self, subscription: str, identities: list[str]) -> list[Any]:
            asked.append(identities)
            return []

    links = {"eu": SimpleNamespace(tag=EU.encode()), "us": SimpleNamespace(tag=US.encode())}
    delivery: Any = SimpleNamespace(peers=Peers(), own=SimpleNamespace(links=links))
    book = dual_delivery.DualBook(delivery, SimpleNamespace(name=S, enable_exactly_once_delivery=False))
    for number in range(5):
        book.acks.hold(US, f"gw-{number}", f"c{number}", 1.0)
    for _ in range(4):
        asyncio.run(book.ask_peers())
    assert asked == [["gw-0", "gw-1"], ["gw-2", "gw-3"], ["gw-4", "gw-0"]]
