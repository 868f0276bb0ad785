"""`syncpoint keys`: what it does to the metadata, and that no key is ever shown."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import DATA_KEYS, OPEN, RECORDS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import Topic, encode_record
from syncpoint.front.proxy.data_keys import KeyRing
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment

OLD, NEW = bytes(range(100, 132)), bytes(range(200, 232))
OLD_ID, NEW_ID = KeyRing([OLD]).current, KeyRing([NEW]).current


class Harness:
    """A cluster's file, its key file, and the metadata behind them."""

    def __init__(self, folder: Path, run: Any) -> None:
        self.store = MemoryStore(clock=ManualClock(), random=SeededRandom(3))
        self.config, self.file = folder / "cluster.yaml", folder / "kek"
        self.config.write_text('metadata: {etcd: ["127.0.0.1:1"]}\nsealing: {key_file: kek}\n')
        self.file.write_text(OLD.hex())
        self._run = run
        self.shown = ""

    def topic(self, number: int, name: str) -> None:
        full = f"projects/p/topics/{name}"
        self.store.txn([], [Put(RECORDS.key("topics", full), encode_record(Topic(number, full)))])

    def run(self, *words: str, code: int = 0) -> str:
        result = self._run("keys", words[0], "--config", str(self.config), *words[1:])
        self.shown += result.output
        assert result.exit_code == code, result.output
        return str(result.output)

    def listed(self, code: int = 0) -> Any:
        text = self.run("list", "--format", "json", code=code)
        return json.JSONDecoder().raw_decode(text)[0]

    def secrets(self, *rings: KeyRing) -> list[bytes]:
        """Every key there is, plain and wrapped."""
        found = [OLD, NEW]
        for item in self.store.range(DATA_KEYS).items:
            values = json.loads(item.value)
            wrapped = base64.b64decode(values["wrapped"])
            found.append(wrapped)
            bound = f"syncpoint data key {DATA_KEYS.name(item.key)} of topic {values['topic']}".encode()
            found.append(KeyRing([OLD, NEW]).unwrap(values["kek"], wrapped, bound))
        return found


@pytest.fixture
def harness(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> Harness:
    made = Harness(tmp_path, run)

    async def metadata(environment: ClusterEnvironment, settings: Any) -> LocalShared:
        return LocalShared(made.store, environment.clock)

    monkeypatch.setattr(ClusterEnvironment, "metadata", metadata)
    made.topic(5, "orders")
    made.topic(6, "bills")
    return made


def test_the_life_of_keys(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert "1 topic will be sealed" in harness.run("rotate", "orders")
    assert "1 topic will be sealed" in harness.run("rotate"), "those that have one"
    assert "2 topics will be sealed" in harness.run("rotate", "orders", "projects/p/topics/bills")
    found = harness.listed()
    assert [(one["topic"], one["dataKeys"]) for one in found["topics"]] == [
        ("projects/p/topics/bills", 1),
        ("projects/p/topics/orders", 3),
    ]
    assert found["keyFile"] == [{"line": 1, "id": OLD_ID, "wraps": True, "dataKeys": 4}]

    harness.file.write_text(f"{NEW.hex()}\n{OLD.hex()}\n")
    text = harness.run("list")
    assert "wraps new data keys" in text
    assert "opens older ones" in text
    assert f"4 data keys rewrapped under {NEW_ID}" in harness.run("rewrap")
    assert "not needed: may be removed" in harness.run("list")
    harness.file.write_text(NEW.hex())
    assert [one["wrappedBy"] for one in harness.listed()["topics"]] == [[NEW_ID], [NEW_ID]]
    harness.run("rotate", "orders")

    harness.file.write_text(OLD.hex())
    assert "cannot be opened with this key file" in harness.run("list", code=1)
    assert "not in this proxy's key file" in harness.run("rewrap", code=1)

    reported = (harness.shown + caplog.text).encode()
    for secret in harness.secrets():
        for form in (secret, secret.hex().encode(), base64.b64encode(secret), repr(secret).encode()):
            assert form not in reported


def test_what_is_left_of_deleted_topics(harness: Harness) -> None:
    harness.run("rotate", "orders", "bills")
    harness.store.txn([], [Put(OPEN.key(6, 1), b"{}")])
    for item in harness.store.range(RECORDS).items:
        harness.store.txn([], [Delete(item.key)])
    assert {one["topic"] for one in harness.listed()["topics"]} == {"(deleted: 5)", "(deleted: 6)"}
    assert "1 key of deleted topics removed" in harness.run("rewrap")
    assert [one["topic"] for one in harness.listed()["topics"]] == ["(deleted: 6)"]
    assert "0 topics" in harness.run("rotate")


def test_what_can_not_be_done_is_said(harness: Harness) -> None:
    assert "there is no topic projects/p/topics/other" in harness.run("rotate", "orders", "other", code=3)
    assert harness.listed()["topics"] == [], "nothing was done by halves"
    harness.file.write_text("rubbish that is secret")
    text = harness.run("list", code=1)
    assert "has a line that is not a key" in text
    assert "rubbish" not in text
    harness.file.unlink()
    assert "cannot be read" in harness.run("rewrap", code=1)
    harness.config.write_text('metadata: {etcd: ["127.0.0.1:1"]}\n')
    assert "is not sealed" in harness.run("list", code=1)
