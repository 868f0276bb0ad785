"""Keys of sealed messages: made once, shared by all proxies, rotated, and of no use without the key-encryption key."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import DATA_KEYS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.front.proxy.data_keys import REFRESH_S, KeyRing, TopicKeys
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.sealed import published, pulled

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
OLD_ID, NEW_ID = KeyRing([OLD]).current, KeyRing([NEW]).current


class Harness:
    """One metadata store, and proxies' keys over it."""

    def __init__(self) -> None:
        self.clock, self.random = ManualClock(), SeededRandom(7)
        self.store = MemoryStore(clock=self.clock, random=self.random)
        self.shared: list[LocalShared] = []

    def keys(self, *keks: bytes) -> TopicKeys:
        shared = LocalShared(self.store, self.clock)
        self.shared.append(shared)
        return TopicKeys(shared, KeyRing(keks or (OLD,)), self.clock, self.random)


def run(work: Work) -> None:
    harness = Harness()
    run_simulated(harness.clock, work(harness))


in_harness = plain_test(run)


def texts(opened: bytes) -> list[bytes]:
    return [one.message.data for one in pubsub.PullResponse.FromString(opened).received_messages]


@in_harness
async def test_what_one_proxy_seals_another_opens(harness: Harness) -> None:
    one, two = Sealer(harness.keys()), Sealer(harness.keys())
    sealed = await one.seal(5, published(b"a", b"b"))
    assert b"PubsubMessage" not in sealed
    assert texts(await two.open(pulled(sealed))) == [b"a", b"b"]
    assert (one.sealed, two.kept_back) == (2, 0)


@in_harness
async def test_a_topic_has_one_key_however_many_ask_at_once(harness: Harness) -> None:
    keys = [harness.keys() for _ in range(4)]
    found = await asyncio.gather(*(one.current(5) for one in keys for _ in range(3)), keys[0].current(6))
    assert len({one.number for one in found[:-1]}) == 1
    assert found[-1].number != found[0].number


@in_harness
async def test_nonces_never_come_twice(harness: Harness) -> None:
    seen: set[bytes] = set()
    for _ in range(5):
        sealer = Sealer(harness.keys())
        for _ in range(5):
            sealed = await sealer.seal(5, published(*[b"x"] * 20))
            seen |= {one.data[12:24] for one in pubsub.PublishRequest.FromString(sealed).messages}
    assert len(seen) == 500


@in_harness
async def test_rotating_leaves_old_messages_readable(harness: Harness) -> None:
    one, two = Sealer(harness.keys()), Sealer(harness.keys())
    before = await one.seal(5, published(b"before"))
    await two.seal(5, published(b"x"))
    number = await one.keys.rotate(5)
    after = await one.seal(5, published(b"after"))
    assert pubsub.PublishRequest.FromString(after).messages[0].data[8:12] == number.to_bytes(4, "little")
    assert texts(await two.open(pulled(before) + pulled(after))) == [b"before", b"after"]
    harness.clock.advance(REFRESH_S + 1)
    await two.seal(5, published(b"x"))  # the last one with the old key: a newer one is looked for in the meantime
    await asyncio.sleep(0.01)
    assert (await two.keys.current(5)).number == number


@in_harness
async def test_a_new_key_encryption_key_rewraps_and_the_messages_stay(harness: Harness) -> None:
    sealed = await Sealer(harness.keys(OLD)).seal(5, published(b"x"))
    blind = Sealer(harness.keys(NEW))
    assert texts(await blind.open(pulled(sealed))) == []
    assert blind.kept_back == 1
    both = harness.keys(NEW, OLD)
    assert texts(await Sealer(both).open(pulled(sealed))) == [b"x"]
    assert await both.rewrap() == 1
    assert await both.rewrap() == 0
    assert texts(await Sealer(harness.keys(NEW)).open(pulled(sealed))) == [b"x"]


@in_harness
async def test_a_message_whose_key_is_gone_does_not_hold_up_the_others(harness: Harness) -> None:
    one = Sealer(harness.keys())
    lost, kept = await one.seal(5, published(b"lost")), await one.seal(6, published(b"kept"))
    (first, _) = harness.store.range(DATA_KEYS).items
    harness.store.txn([], [Delete(first.key)])
    both = pulled(lost) + pulled(kept)
    two = Sealer(harness.keys())
    assert texts(await two.open(both)) == [b"kept"]
    revision = harness.store.status().revision
    harness.shared[-1].cut = True
    assert texts(await two.open(both)) == [b"kept"], "it is not looked for with every message"
    harness.shared[-1].cut = False
    harness.store.txn([], [Put(first.key, first.value)])  # from a backup
    assert harness.store.status().revision > revision
    assert texts(await two.open(both)) == [b"kept"]
    harness.clock.advance(REFRESH_S + 1)
    assert texts(await two.open(both)) == [b"lost", b"kept"]


@in_harness
async def test_a_wrapped_key_belongs_to_its_number_and_topic(harness: Harness) -> None:
    await harness.keys().current(5)
    (item,) = harness.store.range(DATA_KEYS).items
    values = json.loads(item.value)
    assert OLD not in base64.b64decode(values["wrapped"])
    harness.store.txn([], [Put(item.key, json.dumps({**values, "topic": 6}).encode())])
    with pytest.raises(FailedPrecondition, match="changed after it was stored"):
        await harness.keys().current(5)


@in_harness
async def test_without_the_metadata_what_is_known_goes_on(harness: Harness) -> None:
    keys = harness.keys()
    sealer = Sealer(keys)
    sealed = await sealer.seal(5, published(b"x"))
    harness.shared[0].cut = True
    harness.clock.advance(REFRESH_S * 2)
    assert await sealer.seal(5, published(b"y"))
    await asyncio.sleep(0.1)
    assert texts(await sealer.open(pulled(sealed))) == [b"x"]
    with pytest.raises(Unavailable):
        await sealer.seal(6, published(b"x"))


@in_harness
async def test_sealing_may_be_off_while_opening_goes_on(harness: Harness) -> None:
    sealed = await Sealer(harness.keys()).seal(5, published(b"x"))
    later = Sealer(harness.keys(), sealing=False)
    assert await later.seal(5, published(b"plain")) == published(b"plain")
    assert texts(await later.open(pulled(sealed) + pulled(published(b"plain")))) == [b"x", b"plain"]


@in_harness
async def test_tampered_messages_are_counted_and_kept_back(harness: Harness) -> None:
    sealer = Sealer(harness.keys())
    broken = bytearray(await sealer.seal(5, published(b"some text")))
    broken[-1] ^= 1
    assert texts(await sealer.open(pulled(bytes(broken)))) == []
    assert sealer.kept_back == 1


@in_harness
async def test_broken_requests_are_refused(harness: Harness) -> None:
    with pytest.raises(InvalidArgument):
        await Sealer(harness.keys()).seal(5, b"\x12\x05x")


def test_key_files(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_bytes(OLD)
    raw = KeyRing.load(file)
    file.write_text(f"# the newest first\n{OLD.hex()}\n\n{base64.b64encode(NEW).decode()}  # older\n")
    listed = KeyRing.load(file)
    assert listed.current == raw.current != KeyRing([NEW]).current
    assert listed.ids == [OLD_ID, NEW_ID]
    assert listed.unwrap(*KeyRing([NEW]).wrap(b"key", bytes(12), b"it"), b"it") == b"key"
    for wrong in (b"", b"short", b"\xff" * 40, b"not base64!\n", base64.b64encode(bytes(31))):
        file.write_bytes(wrong)
        with pytest.raises(InvalidArgument) as caught:
            KeyRing.load(file)
        assert "not base64!" not in str(caught.value)


def test_a_changed_key_file_is_taken_over_when_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_text(OLD.hex())
    ring = KeyRing.load(file)
    assert ring.wrap(b"key", bytes(12), b"it")[0] == OLD_ID
    file.write_text(f"{NEW.hex()}\n{OLD.hex()}\n")
    assert ring.unwrap(*KeyRing([NEW]).wrap(b"key", bytes(12), b"it"), b"it") == b"key"
    assert ring.wrap(b"key", bytes(12), b"it")[0] == NEW_ID
    for spoiled in ("", "nothing to see", NEW.hex()[:60]):
        file.write_text(spoiled)
        assert ring.wrap(b"key", bytes(12), b"it")[0] == NEW_ID, "what cannot be used is not used"
    file.unlink()
    assert ring.wrap(b"key", bytes(12), b"it")[0] == NEW_ID
    file.write_text(NEW.hex())
    ring.refresh()
    assert ring.ids == [NEW_ID]
