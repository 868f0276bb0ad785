"""What was looked at counts in the seek generation that it was seen in, and in no other."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.broker.publish.chain.source_peek import acknowledge_seen, peek
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import SeekTarget
from syncpoint.wire.protobuf.messages import internal
from tests.kit.chain import SUB_NUMBER, TOPIC_NUMBER, ChainHarness, simulated


def asked(source: int) -> internal.PeekRequest:
    return internal.PeekRequest(topic=TOPIC_NUMBER, subscription=SUB_NUMBER, source=source, messages_max=10)


async def acknowledge(forwarder: PublishForwarder, source: int, seen: internal.PeekResponse) -> None:
    runs = encode_runs([(one.place, 1) for one in seen.messages])
    await acknowledge_seen(
        forwarder,
        internal.AcknowledgeSeenRequest(
            subscription=SUB_NUMBER, source=source, runs=runs, generation=seen.generation
        ),
    )  # fmt: skip


@simulated
async def test_what_was_seen_before_a_seek_is_not_acknowledged_after_it(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("1")
    forwarder = process.host.chains[1].forwarder
    (source,) = [one.number for one in forwarder.sources.of_topic(TOPIC_NUMBER)]
    page = await peek(forwarder, asked(source))
    assert (len(page.messages), page.generation) == (1, 0)
    await harness.confirm(harness.update(generation=3, target=SeekTarget(time_ns=0)))
    with pytest.raises(FailedPrecondition, match="reset by a seek"):
        await acknowledge(forwarder, source, page)
    assert not forwarder.ledgers[SUB_NUMBER].covers(source, 0, 1)
    again = await peek(forwarder, asked(source))
    assert (len(again.messages), again.generation) == (1, 3)
    await acknowledge(forwarder, source, again)
    assert forwarder.ledgers[SUB_NUMBER].covers(source, 0, 1)


@simulated
async def test_a_look_during_which_a_seek_comes_shows_one_generation(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("1")
    forwarder = process.host.chains[1].forwarder
    (source,) = [one.number for one in forwarder.sources.of_topic(TOPIC_NUMBER)]
    fetch, moved = forwarder.server.fetch, []

    def seek_meanwhile(*request: Any) -> None:
        def reply(answer: Any) -> None:
            if not moved:
                moved.append(harness.update(generation=1, target=SeekTarget(time_ns=0)))
            request[-1](answer)

        fetch(*request[:-1], reply)

    forwarder.server.fetch = seek_meanwhile  # type: ignore[method-assign]
    page = await peek(forwarder, asked(source))
    assert moved
    assert (list(page.messages), page.generation) == ([], 1), "what was read in generation 0 is not shown as one of now"
    await harness.confirm(moved[0])
    page = await peek(forwarder, asked(source))
    assert ([one.place for one in page.messages], page.generation) == ([0], 1)
