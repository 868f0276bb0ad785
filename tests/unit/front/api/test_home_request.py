"""SetHome for ordering keys: whose they are, what is held here, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.key_homes import SLOTS, slot_of
from syncpoint.catalog.metadata.home_sites import home_of
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.testing.rigs.servicer_harness import SUB, ServicerHarness, simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

SLOT = slot_of(b"k")


async def set_keys(harness: ServicerHarness, *ranges: dict[str, Any], **fields: Any) -> pipeline.SetHomeResponse:
    request = pipeline.SetHomeRequest(**{"subscription": SUB, "site": "eu", "keys": ranges, **fields})
    answer = await harness.channel.unary(methods.ACK_EXCHANGE.SetHome, request.SerializeToString())
    return pipeline.SetHomeResponse.FromString(answer)


def slot(home: str, epoch: int, number: int = SLOT, **fields: Any) -> dict[str, Any]:
    return {"first": number, "last": number, "home": home, "epoch": epoch, **fields}


def homes(harness: ServicerHarness) -> list[str]:
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    found = home_of(harness.control.catalog, record.incarnation)
    assert found is not None
    return [one.home for one in found.slots]


@simulated()
async def test_keys_of_another_site_are_held_until_they_come_back(harness: ServicerHarness) -> None:
    answer = await set_keys(harness, slot("us", 2))
    assert [(one.first, one.home) for one in answer.keys if one.home] == [(SLOT, "us")]
    await harness.put("held", key="k")
    await harness.put("ours", key="other")
    assert [one.message.data for one in await harness.pull()] == [b"ours"]
    assert not await harness.pull(timeout=4.0)
    await set_keys(harness, slot("eu", 1))  # what is newer stays
    assert homes(harness)[SLOT] == "us"
    await set_keys(harness, slot("eu", 3))
    assert [one.message.data for one in await harness.pull()] == [b"held"]


@simulated()
async def test_a_mover_that_was_overtaken_changes_nothing(harness: ServicerHarness) -> None:
    await set_keys(harness, slot("(moving) 1", 3))
    await set_keys(harness, slot("(moving) 2", 3))
    with pytest.raises(SyncpointError, match="somebody else has moved them") as caught:
        await set_keys(harness, slot("us", 4), instead_of="(moving) 1")
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert homes(harness)[SLOT] == "(moving) 2"
    for _ in range(2):  # again, as after a lost answer
        await set_keys(harness, slot("us", 4), instead_of="(moving) 2")
    assert homes(harness)[SLOT] == "us"


@simulated()
async def test_one_home_is_the_case_of_all_keys(harness: ServicerHarness) -> None:
    await set_keys(harness, slot("us", 1))
    with pytest.raises(SyncpointError, match="at home at us since epoch 1"):
        await set_keys(harness, home="eu", epoch=1)
    await set_keys(harness, home="us", epoch=2)
    assert set(homes(harness)) == {"us"}
    assert (await harness.call("GetSubscriptionState", subscription=SUB)).home == "us"
    await harness.put("a", key="k")
    await harness.put("b", key="other")
    assert not await harness.pull(timeout=4.0)
    answer = await set_keys(harness, {"first": 0, "last": SLOTS - 1, "home": "eu", "epoch": 3}, slot("us", 4))
    assert answer.home == "(by key)"
    assert [one.message.data for one in await harness.pull()] == [b"b"]


@simulated()
async def test_an_earlier_version_can_read_and_change_what_is_stored(harness: ServicerHarness) -> None:
    catalog = harness.control.catalog
    record = catalog.subscription(SUB)
    assert record is not None
    name = f"homes/{record.incarnation}"
    await set_keys(harness, slot("us", 2))
    assert json.loads(catalog.setting(name) or b"") == ["eu", "(by key)", 2, False]
    await harness.control.commit([CatalogChange.put(Setting(name, b'["eu", "us", 7, false]'))])  # by that version
    assert set(homes(harness)) == {"us"}
    await set_keys(harness, slot("eu", 8))
    assert [homes(harness)[number] for number in (SLOT, SLOT - 1)] == ["eu", "us"]
    await set_keys(harness, home="eu", epoch=9)
    assert catalog.settings_named("key-homes/") == []


@simulated()
async def test_requests_that_mean_nothing_name_their_field(harness: ServicerHarness) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("keys", {"keys": [slot("us", 1)], "home": "us", "epoch": 1}),
        (r"keys\[0\].last", {"keys": [slot("us", 1, SLOTS)]}),
        (r"keys\[0\].last", {"keys": [{"first": 4, "last": 3, "home": "us", "epoch": 1}]}),
        (r"keys\[1\].home", {"keys": [slot("us", 1), slot("x" * 256, 1)]}),
        (r"keys\[0\].home", {"keys": [slot("", 1)]}),
        (r"keys\[0\].epoch", {"keys": [slot("us", 0)]}),
        (r"keys\[0\].epoch", {"keys": [slot("us", (1 << 62) + 1)]}),
        ("keys: must be at most 256 ranges", {"keys": [slot("us", 1)] * (SLOTS + 1)}),
        (r"keys\[0\].taken_from", {"keys": [slot("us", 1, taken_from="x" * 256)]}),
        (r"keys\[0\].home", {"keys": [slot("", 0, taken_from="eu")]}),
        (r"home: must not be '\(by key\)'", {"home": "(by key)", "epoch": 1}),
    ]
    for field, fields in bad:
        with pytest.raises(SyncpointError, match=field) as caught:
            await set_keys(harness, **fields)
        assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(SyncpointError) as caught:
        await set_keys(harness, home="us", epoch=1, subscription=f"{SUB}-none")
    assert caught.value.code is Code.NOT_FOUND
