"""Writing by pipelines through a proxy: every query has one home, which answers whoever owns it."""

from __future__ import annotations

import asyncio
from typing import Any

from syncpoint.base.model.errors import Aborted, Code
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import LINK_HOMES, QUERY_HOMES
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.pipelines import WRITER, PipelineProcess, cluster, home_of, refused, stage
from tests.kit.proxy import ProxyHarness, ProxyProcess, in_harness


async def commit(harness: ProxyHarness, query: str = "q", link: str = "", epoch: int = 0) -> int:
    request = pipeline.CommitEpochRequest(run=pipeline.Run(query=query, run="r"), epoch=epoch, link=link)
    answer = await harness.call(WRITER + "CommitEpoch", request, timeout=20.0)
    return int(pipeline.EpochResult.FromString(answer).rows)


@in_harness()
async def test_a_query_gets_one_home_and_keeps_it(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=3)
    assert (await stage(harness)).rows == 2
    home = home_of(harness, "q")
    assert home is not None
    ((header, *frames),) = owners[home - 1].staged[home]
    assert header.header.run.query == "q"
    assert [one.frame.batch for one in frames] == [b"0", b"1"]
    for epoch in range(3):
        assert await commit(harness, epoch=epoch) == home
    homes = set()
    for number in range(20):
        await stage(harness, query=f"other {number}")
        homes.add(home_of(harness, f"other%20{number}"))
    assert homes == {1, 2, 3}


@in_harness()
async def test_a_link_decides_where_its_queries_are_at_home(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=3)
    await stage(harness, query="first", link="l")
    home = home_of(harness, "l", LINK_HOMES)
    assert home == home_of(harness, "first")
    for number in range(5):
        await stage(harness, query=f"q{number}", link="l")
        assert home_of(harness, f"q{number}") == home
    elsewhere = next(one for one in (1, 2, 3) if one != home)
    harness.store.txn([], [Put(QUERY_HOMES.key("away"), b"%d" % elsewhere)])
    assert (await refused(stage(harness, query="away", link="l"))).code is Code.FAILED_PRECONDITION
    assert (await refused(commit(harness, query="away", link="l"))).code is Code.FAILED_PRECONDITION
    assert not any(owner.staged.get(elsewhere) for owner in owners)


@in_harness()
async def test_who_loses_the_race_for_a_home_takes_what_is_there(harness: ProxyHarness) -> None:
    owners = await cluster(harness, chains=2)
    proxies = [harness.processes["proxy"], await harness.start(ProxyProcess, "proxy2")]
    await asyncio.sleep(0.1)

    def choose(chain: int) -> Any:
        async def chosen(name: str, topic: Any, deadline: float) -> int:
            await asyncio.sleep(0.01)  # both have looked before one of them writes
            return chain

        return chosen

    for number, proxy in enumerate(proxies, 1):
        proxy.proxy.writer._chosen = choose(number)
    answers = await asyncio.gather(
        *(stage(harness, query=f"q{at}", link=f"l{at}", proxy=proxy.name) for at in range(4) for proxy in proxies)
    )
    assert [one.rows for one in answers] == [2] * 8
    for at in range(4):
        home = home_of(harness, f"q{at}")
        assert home is not None
        assert home == home_of(harness, f"l{at}", LINK_HOMES)
        went = [chain for owner in owners for chain, all_ in owner.staged.items()
                for header, *_ in all_ if header.header.run.query == f"q{at}"]  # fmt: skip
        assert went == [home, home]


@in_harness()
async def test_a_commit_waits_for_the_next_owner_and_is_made_again_there(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    harness.store.txn([], [Put(QUERY_HOMES.key("q"), b"2")])
    two.answer_s = 1000.0  # it hangs in the middle of the commit
    committing = asyncio.ensure_future(commit(harness))
    await asyncio.sleep(1.0)
    assert two.committed == [(2, "q", 0)]
    two.lease_ends()
    await asyncio.sleep(1.0)
    harness.chain(2, one, epoch=2)
    assert await committing == 2
    assert one.committed == [(2, "q", 0)]


@in_harness()
async def test_what_the_owner_refuses_is_reported(harness: ProxyHarness) -> None:
    owners = await cluster(harness)
    for owner in owners:
        owner.refuse = Aborted("Run r was superseded.")
    assert (await refused(stage(harness))).code is Code.ABORTED
    assert (await refused(commit(harness))).code is Code.ABORTED


@in_harness()
async def test_a_stage_ends_unavailable_when_its_chain_moves(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    harness.store.txn([], [Put(QUERY_HOMES.key("q"), b"2")])
    stream = harness.network.channel("proxy:1").stream(WRITER + "Stage")
    header = pipeline.StageHeader(run=pipeline.Run(query="q", run="r"), attempt="a")
    await stream.send(pipeline.StageRequest(header=header).SerializeToString())
    await asyncio.sleep(0.5)
    harness.chain(2, one, epoch=2)
    assert (await refused(stream.receive())).code is Code.UNAVAILABLE
    assert not one.staged
    assert not two.staged
    assert (await stage(harness)).rows == 2


@in_harness()
async def test_messages_are_staged_only_where_their_topic_may_be_stored(harness: ProxyHarness) -> None:
    owners = await cluster(harness)
    other = await harness.start(PipelineProcess, "f9")
    harness.chain(9, other, klass="strong")
    harness.add_topic("projects/p/topics/strong", durability="strong")
    await asyncio.sleep(0.1)
    await stage(harness, query="strong", topic="projects/p/topics/strong")
    assert home_of(harness, "strong") == 9
    await stage(harness, query="plain")
    error = await refused(stage(harness, query="plain", topic="projects/p/topics/strong"))
    assert error.code is Code.FAILED_PRECONDITION
    assert "strong" in error.message
    assert len([one for owner in owners for staged in owner.staged.values() for one in staged]) == 1
    assert (await refused(stage(harness, topic="projects/p/topics/none"))).code is Code.NOT_FOUND
    request = pipeline.CommitEpochRequest(
        run=pipeline.Run(query="empty", run="r"), link="e", topic="projects/p/topics/strong"
    )
    await harness.call(WRITER + "CommitEpoch", request)
    assert home_of(harness, "empty") == home_of(harness, "e", LINK_HOMES) == 9


@in_harness()
async def test_links_are_those_of_all_homes(harness: ProxyHarness) -> None:
    one, two = await cluster(harness)
    one.links[1], two.links[2] = ["b"], ["a", "c"]
    for name, chain in (("a", 2), ("b", 1), ("c", 2)):
        harness.store.txn([], [Put(LINK_HOMES.key(name), b"%d" % chain)])
    for name, expected in (("", ["a", "b", "c"]), ("b", ["b"]), ("none", [])):
        answer = await harness.call(WRITER + "ListLinks", pipeline.ListLinksRequest(name=name))
        assert [link.name for link in pipeline.ListLinksResponse.FromString(answer).links] == expected
    for method in ("AcceptGap", "MapOffsets"):
        request = getattr(pipeline, f"{method}Request")(link="none")
        assert (await refused(harness.call(WRITER + method, request))).code is Code.NOT_FOUND
