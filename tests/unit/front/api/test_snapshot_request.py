"""FollowSnapshot: a copy of another site is hidden until it is whole, and identities decide what is changed."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.snapshot_marks import mark_of
from syncpoint.testing.rigs.servicer_harness import SUB, ServicerHarness, simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

NAME = SUB.replace("/subscriptions/", "/snapshots/") + "-copy"
DAY_S = 86_400


async def follow(harness: ServicerHarness, step: str, identity: str = "f/1", **fields: Any) -> int:
    request = pipeline.FollowSnapshotRequest(
        **{"subscription": SUB, "snapshot": NAME, "identity": identity, "step": step, **fields}
    )
    if step == "BEGIN" and "expire_time" not in fields:
        request.expire_time.FromNanoseconds(harness.clock.time_ns() + DAY_S * 10**9)
    answer = await harness.channel.unary(methods.ACK_EXCHANGE.FollowSnapshot, request.SerializeToString())
    copy: int = pipeline.FollowSnapshotResponse.FromString(answer).copy
    return copy


async def refused(harness: ServicerHarness, step: str, *about: str, **fields: Any) -> Code:
    with pytest.raises(SyncpointError) as caught:
        await follow(harness, step, *about, **fields)
    return caught.value.code


async def shown(harness: ServicerHarness) -> list[str]:
    project = SUB.partition("/subscriptions/")[0]
    listed = await harness.call("ListSnapshots", project=project)
    return [one.name for one in listed.snapshots]


@simulated()
async def test_a_copy_is_hidden_until_it_is_whole_and_keeps_its_expiry(harness: ServicerHarness) -> None:
    copy = await follow(harness, "BEGIN", known_at=["f/11"], labels={"by": "night"})
    assert await shown(harness) == []
    for method in ("GetSnapshot", "DeleteSnapshot"):
        with pytest.raises(SyncpointError, match="not found"):
            await harness.call(method, snapshot=NAME)
    with pytest.raises(SyncpointError, match="not found"):
        await harness.call("Seek", subscription=SUB, snapshot=NAME)
    assert await follow(harness, "BEGIN") == copy  # two programs copy the same
    await follow(harness, "CHECKED", copy=copy)
    assert mark_of(harness.control.catalog, copy) == ("f/1", ("f/11",), True, False)
    assert await refused(harness, "FINISH", copy=copy + 1) is Code.NOT_FOUND
    await follow(harness, "FINISH", copy=copy)
    await follow(harness, "KNOWN", known_at=["f/11", "e/11"])
    assert mark_of(harness.control.catalog, copy) == ("f/1", ("f/11", "e/11"), True, True)
    found = await harness.call("GetSnapshot", snapshot=NAME)
    assert (dict(found.labels), found.expire_time.seconds - harness.clock.time_ns() // 10**9) == (
        {"by": "night"}, pytest.approx(DAY_S, abs=60),
    )  # fmt: skip
    await harness.call("Seek", subscription=SUB, snapshot=NAME)
    await harness.call("DeleteSnapshot", snapshot=NAME)
    assert await refused(harness, "BEGIN") is Code.FAILED_PRECONDITION  # by a program that looked before
    await harness.call("CreateSnapshot", name=NAME, subscription=SUB)
    assert await refused(harness, "BEGIN") is Code.FAILED_PRECONDITION, "it is gone, whoever has its name now"
    await harness.call("DeleteSnapshot", snapshot=NAME)
    assert await follow(harness, "BEGIN", "f/2")


@simulated()
async def test_one_of_another_identity_is_neither_changed_nor_deleted(harness: ServicerHarness) -> None:
    await harness.call("CreateSnapshot", name=NAME, subscription=SUB)
    assert await refused(harness, "BEGIN") is Code.ALREADY_EXISTS
    assert await refused(harness, "DROP") is Code.NOT_FOUND
    record = harness.control.catalog.snapshot(NAME)
    assert record is not None
    await follow(harness, "KNOWN", f"here/{record.incarnation}", known_at=["f/11"])
    await follow(harness, "DROP", f"here/{record.incarnation}")
    assert await shown(harness) == []


@simulated()
async def test_who_takes_one_of_the_name_comes_before_a_copy(harness: ServicerHarness) -> None:
    copy = await follow(harness, "BEGIN")
    await harness.call("CreateSnapshot", name=NAME, subscription=SUB)
    assert await refused(harness, "FINISH", copy=copy) is Code.NOT_FOUND
    assert await shown(harness) == [NAME]


@simulated()
async def test_a_subscription_that_was_created_anew_gets_a_copy_of_its_own(harness: ServicerHarness) -> None:
    copy = await follow(harness, "BEGIN")
    subscription = await harness.call("GetSubscription", subscription=SUB)
    await harness.call("DeleteSubscription", subscription=SUB)
    await harness.channel.unary(methods.SUBSCRIBER.CreateSubscription, subscription.SerializeToString())
    anew = await follow(harness, "BEGIN")
    assert anew != copy
    await follow(harness, "FINISH", copy=anew)
    assert await shown(harness) == [NAME]


@simulated()
async def test_what_means_nothing_is_refused(harness: ServicerHarness) -> None:
    assert await refused(harness, "BEGIN", "") is Code.INVALID_ARGUMENT
    for field, value in (("known_at", ["f/1" * 22]), ("identity", "f/1" * 22)):
        with pytest.raises(SyncpointError, match=f"{field}: must be"):
            await follow(harness, "BEGIN", **{field: value})  # type: ignore[arg-type]
    with pytest.raises(SyncpointError, match="step: must be one of BEGIN, "):
        await follow(harness, "STEP_UNSPECIFIED")
    assert await refused(harness, "BEGIN", snapshot="projects/other/snapshots/abc") is Code.INVALID_ARGUMENT
    assert await refused(harness, "BEGIN", subscription=f"{SUB}-none") is Code.NOT_FOUND
    assert await refused(harness, "BEGIN", expire_time={"seconds": 1}) is Code.FAILED_PRECONDITION
    assert await refused(harness, "FINISH") is Code.NOT_FOUND
