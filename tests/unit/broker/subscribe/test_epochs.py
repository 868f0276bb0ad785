"""Before keys of an epoch are delivered, every chain has named what it has of the epochs before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from syncpoint.base.model.delivery import SourceView
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.broker.subscribe.gather import Gatherer
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.wire.protobuf.messages import internal

TOPIC, SUB = 1, 2


class Far:
    """Two processes with one chain each, played by the test; the directory of both."""

    def __init__(self, *, ordered: bool = True) -> None:
        self.clock, self.catalog = ManualClock(), Catalog()
        subscription = Subscription(SUB, "projects/p/subscriptions/s", TOPIC, "projects/p/topics/t", ordered=ordered)
        changes = [CatalogChange.put(Topic(TOPIC, "projects/p/topics/t")), CatalogChange.put(subscription)]
        for change in self.catalog.assign(changes):
            self.catalog.apply(change)
        self.attached: list[str] = []
        self.complete: list[bool] = []
        self.gatherer = Gatherer(
            "a", 7, self.catalog, self, self.clock, connect=lambda address, peer: FakeTransport(self, address, peer),
            publish=lambda *_: None,
        )  # fmt: skip
        self.gatherer.attach(SUB, self)
        for peer in self.gatherer.peers.values():
            peer.began()
            peer.received(internal.FromChains(owned=internal.Owned()).SerializeToString())

    def owners(self) -> Mapping[int, str]:
        return {1: "p1", 2: "p2"}

    def chains_of(self, topic: int) -> Collection[int]:
        return [1, 2]

    def read_chains(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        reply([1, 2])

    def say(self, chain: int, *sources: int, epoch: int | None = None, whole: bool = True, of: int = 0) -> None:
        """A chain names sources of the epoch `of`, granted to us when they are not `whole`."""
        named = [internal.Source(number=one, epoch=of, chain=chain, grant=0 if whole else 5) for one in sources]
        what = internal.Sources(subscription=SUB, sources=named, chain=chain, all=whole, epoch=epoch)
        self.gatherer.peers[f"p{chain}"].received(internal.FromChains(sources=what).SerializeToString())

    def knows_all(self) -> bool:
        """What was said last."""
        return self.complete[-1]

    def beat(self) -> None:
        self.attached.clear()
        self.clock.advance(1.1)
        self.gatherer.tick()

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        self.complete.append(complete)

    def on_data(self, source: int) -> None:
        """Nothing is read here."""

    def on_revoked(self, source: int) -> None:
        """Nothing is read here."""

    def on_reset(self) -> None:
        """As `Delivery` does."""
        self.gatherer.attach(SUB, self)

    def on_removed(self) -> None:
        """It stays."""


class FakeTransport:
    def __init__(self, far: Far, address: str, peer: Peer) -> None:
        self.far, self.address = far, address

    def send(self, message: bytes) -> None:
        if internal.ToChains.FromString(message).WhichOneof("what") == "attach":
            self.far.attached.append(self.address)

    def reset(self) -> None:
        """There is nothing to connect."""

    def close(self) -> None:
        """There is nothing to close."""


def test_an_answer_of_the_epoch_before_is_not_enough() -> None:
    far = Far()
    far.say(1, epoch=1)
    assert not far.knows_all()
    far.say(2, epoch=1)
    assert far.knows_all()
    far.say(1, 11, of=2, whole=False)  # a new epoch; what may the other chain have opened since?
    assert not far.knows_all()
    far.beat()
    assert set(far.attached) == {"p1", "p2"}
    far.say(1, 11, of=2, epoch=2)
    far.say(2, epoch=1)  # it has not learned of the new epoch
    assert not far.knows_all()
    far.say(2, 21, of=1, whole=False)  # what is named one by one may not be all
    assert not far.knows_all()
    far.say(2, 21, of=1, epoch=2)
    assert far.knows_all()
    far.say(2, 21, of=1, epoch=1)  # an adopter that knows less: nobody takes keys in an epoch that is over
    assert far.knows_all()
    far.beat()
    assert far.attached == []


def test_a_chain_of_an_earlier_version_is_believed_at_once() -> None:
    far = Far()
    far.say(1)
    far.say(2)
    far.say(1, 11, of=2, whole=False)
    assert far.knows_all()


def test_without_order_epochs_do_not_matter() -> None:
    far = Far(ordered=False)
    far.say(1, epoch=1)
    far.say(2, epoch=1)
    far.say(1, 11, of=2, whole=False)
    assert far.knows_all()
    far.beat()
    assert far.attached == []


def test_a_chain_that_has_not_seen_a_seek_is_asked_again() -> None:
    far = Far()
    far.say(1, epoch=1)
    known = far.catalog.subscription_by_incarnation(SUB)
    assert known is not None
    was_reset = Subscription(SUB, known.name, TOPIC, "projects/p/topics/t", ordered=True, generation=1)
    for change in far.catalog.assign([CatalogChange.put(was_reset)]):
        far.catalog.apply(change)
    far.gatherer.tick()
    far.say(2, epoch=1)  # of the generation before
    far.beat()
    assert "p2" in far.attached
