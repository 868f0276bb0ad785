"""What every `model.delivery.PublishSide` does, in one process, over a link that is late, and before chain hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.kernel.frames import message_at
from syncpoint.base.model.delivery import AttemptRun, PublishSide, SourceView, attempts_of
from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, SeekTarget, Subscription
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from syncpoint.testing.rigs.simulated_loop import SimulatedLoop
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.chain import SUB_NUMBER
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import SubscribeHarness


class Listener:
    """A `Listener` that remembers."""

    def __init__(self) -> None:
        self.sources: dict[int, SourceView] = {}
        self.named = 0
        self.data: list[int] = []
        self.reset, self.removed, self.complete = 0, 0, False

    def on_sources(self, views: Sequence[SourceView], complete: bool) -> None:
        self.named += len(views)
        self.complete = complete
        self.sources.update({view.source: view for view in views})

    def on_data(self, source: int) -> None:
        self.data.append(source)

    def on_revoked(self, source: int) -> None:
        del self.sources[source]

    def on_reset(self) -> None:
        self.reset += 1

    def on_removed(self) -> None:
        self.removed += 1


class Case:
    """A publish side, and what happens behind it."""

    side: PublishSide

    async def publish(self, *data: str) -> None:
        raise NotImplementedError

    async def rest(self) -> None:
        """Until all is done that was begun."""
        await asyncio.sleep(1)

    async def commit(self, *changes: CatalogChange) -> None:
        raise NotImplementedError

    def record(self) -> Subscription:
        raise NotImplementedError

    # -- what a test asks ----------------------------------------------------------------------------------------------

    async def attached(self) -> tuple[Listener, int]:
        """A listener for the subscription, and its only source."""
        listener = Listener()
        self.side.attach(SUB_NUMBER, listener)
        self.side.set_demand(SUB_NUMBER, True)
        await self.rest()
        (source,) = [view.source for view in listener.sources.values() if view.held]
        assert listener.complete
        return listener, source

    async def fetch(self, source: int, begin: int = 0) -> tuple[list[str], Sequence[AttemptRun]]:
        found: list[Any] = []
        self.side.fetch(SUB_NUMBER, source, begin, 1 << 20, found.append)
        await self.rest()
        (batches,) = found
        if isinstance(batches, Exception):
            raise batches
        texts = []
        for batch in batches:
            for offset in range(batch.begin, batch.end):
                at = offset - batch.first_offset
                if not (batch.skip and batch.skip[at >> 3] >> (at & 7) & 1):
                    texts.append(pubsub.PubsubMessage.FromString(message_at(batch.payload, at)).data.decode())
        return texts, attempts_of(batches)

    async def ack(self, source: int, begin: int, count: int, generation: int = 0) -> Exception | None:
        found: list[Exception | None] = []
        self.side.acknowledge(SUB_NUMBER, generation, source, encode_runs([(begin, count)]), found.append, urgent=True)
        await self.rest()
        (outcome,) = found
        return outcome

    async def change(self, **options: Any) -> None:
        await self.commit(CatalogChange.put(replace(self.record(), **options)))


class Near(Case):
    """Both sides in one process; with a link that is late between them."""

    def __init__(self, delay_s: float, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.harness = ForwarderHarness(delay_s=delay_s, clock=loop.clock, **options)
        self.side = self.harness.link

    async def publish(self, *data: str) -> None:
        self.harness.send(*data)

    async def rest(self) -> None:
        self.harness.advance(1)

    async def commit(self, *changes: CatalogChange) -> None:
        self.harness.commit(*changes)

    def record(self) -> Subscription:
        return self.harness.record


class Far(Case):
    """A gatherer, before a chain host."""

    def __init__(self, harness: SubscribeHarness) -> None:
        self.harness, self.side = harness, harness.forwarder("a").gatherer

    async def publish(self, *data: str) -> None:
        for one in data:
            await self.harness.publish(one)

    async def commit(self, *changes: CatalogChange) -> None:
        self.harness.chains.commit(*changes)
        await self.rest()

    def record(self) -> Subscription:
        found = self.harness.chains.master.subscription_by_incarnation(SUB_NUMBER)
        assert found is not None
        return found


async def case_of(kind: str, **options: Any) -> Case:
    if kind == "hosts":
        return Far(await SubscribeHarness.start(**options))
    return Near(0.05 if kind == "link" else 0.0, **options)


KINDS = pytest.mark.parametrize("kind", ["one process", "link", "hosts"])


@KINDS
@in_simulated_time
async def test_what_was_published_is_fetched_until_it_is_acknowledged(*, kind: str) -> None:
    case = await case_of(kind)
    await case.publish("a", "b", "c")
    _, source = await case.attached()
    assert await case.fetch(source) == (["a", "b", "c"], ())
    assert await case.ack(source, 1, 1) is None
    assert await case.ack(source, 1, 1) is None, "twice changes nothing"
    assert (await case.fetch(source))[0] == ["a", "c"]
    assert (await case.fetch(source, 1))[0] == ["c"]
    assert await case.ack(source, 0, 3) is None
    assert (await case.fetch(source))[0] == []


@KINDS
@in_simulated_time
async def test_who_was_reported_nothing_more_learns_of_the_next_message_and_who_has_left_does_not(*, kind: str) -> None:
    case = await case_of(kind)
    await case.publish("a")
    listener, source = await case.attached()
    assert (await case.fetch(source, 1))[0] == []
    listener.data.clear()
    await case.publish("b")
    await case.rest()
    assert listener.data == [source]
    assert (await case.fetch(source, 1))[0] == ["b"]
    assert (await case.fetch(source, 2))[0] == []
    listener.data.clear()
    case.side.detach(SUB_NUMBER)
    await case.publish("c")
    await case.rest()
    assert listener.data == []


@KINDS
@in_simulated_time
async def test_attaching_again_names_all_sources_again_and_nobody_attaches_to_what_is_not_there(*, kind: str) -> None:
    case = await case_of(kind)
    await case.publish("a")
    listener, source = await case.attached()
    named = listener.named
    case.side.attach(SUB_NUMBER, listener)
    await case.rest()
    assert listener.named > named
    assert [view.source for view in listener.sources.values() if view.held] == [source]
    with pytest.raises(NotFound):
        case.side.attach(77, Listener())


@KINDS
@pytest.mark.parametrize("exactly_once", [False, True])
@in_simulated_time
async def test_a_seek_is_reported_and_acknowledgements_from_before_it_do_not_count(
    *, kind: str, exactly_once: bool
) -> None:
    case = await case_of(kind, exactly_once=exactly_once)
    await case.publish("a", "b")
    listener, source = await case.attached()
    assert await case.ack(source, 0, 1) is None
    await case.change(generation=1, target=SeekTarget(time_ns=1))
    await case.rest()
    assert (listener.reset, case.side.generation(SUB_NUMBER)) == (1, 1)
    assert isinstance(await case.ack(source, 0, 2), FailedPrecondition)
    case.side.attach(SUB_NUMBER, listener)  # as who is notified so does
    await case.rest()
    assert (await case.fetch(source))[0] == ["b"]
    assert await case.ack(source, 0, 2, generation=1) is None
    assert (await case.fetch(source))[0] == []


@KINDS
@in_simulated_time
async def test_how_often_messages_came_back_is_reported_with_them(*, kind: str) -> None:
    case = await case_of(kind)
    await case.publish("a", "b")
    _, source = await case.attached()
    case.side.note_attempts(SUB_NUMBER, 0, source, [AttemptRun(1, 2, 3, 0)])
    await case.rest()
    texts, attempts = await case.fetch(source)
    assert (texts, [one[:3] for one in attempts]) == (["a", "b"], [(1, 2, 3)])


@KINDS
@in_simulated_time
async def test_a_subscription_that_is_deleted_is_reported(*, kind: str) -> None:
    case = await case_of(kind)
    await case.publish("a")
    listener, source = await case.attached()
    await case.commit(CatalogChange(0, ChangeOp.DELETE, case.record()))
    await case.rest()
    assert listener.removed == 1
    with pytest.raises(NotFound):
        case.side.attach(SUB_NUMBER, Listener())
    assert isinstance(await case.ack(source, 0, 1), FailedPrecondition)
