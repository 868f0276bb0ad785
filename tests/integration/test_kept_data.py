"""Data that servers of earlier versions have written: this one goes on with it, nothing of it is lost or changed."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.rigs.official import Api, HeldStream
from syncpoint.testing.server_process import ServerFailed, ServerProcess
from tests.kit.kept_data import HALF, PROJECT, SNAPSHOT, SUBSCRIPTIONS, message, named, publish

ARCHIVES = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))
THEN = """
import time
of_ns, of_s = time.time_ns, time.time
ago_ns = of_ns() - {written_ns}
time.time_ns, time.time = lambda: of_ns() - ago_ns, lambda: of_s() - ago_ns / 1e9
"""  # by the clock of today what is kept for a month at most would be gone


REFUSED = Path(__file__).parent / "kept" / "refused" / "server-2026-11-21.tar.xz"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_of_a_development_version_is_refused_in_words_and_left_as_it_is(tmp_path: Path, workers: int) -> None:
    """Written before stored data had to stay readable: its ledgers have another format."""
    with tarfile.open(REFUSED) as archive:
        archive.extractall(tmp_path, filter="data")
    kept = tmp_path / "data" / "disk-1" / "logs" / "0000000001" / "00000001.seg"
    before = kept.read_bytes()
    with closing(ServerProcess(tmp_path / "data", args=["--workers", str(workers)])) as made:
        with pytest.raises(ServerFailed):
            made.start(180)
        said = made.logs()
    assert re.search(r"cannot start: Entry \d+ of DISK/logs/0000000001 .* format .* Start the version", said)
    assert "Traceback" not in said
    assert kept.read_bytes() == before


@pytest.fixture(params=ARCHIVES, ids=lambda one: one.name.split(".")[0])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What an archive says of itself, unpacked."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    found: dict[str, Any] = json.loads((tmp_path / "written.json").read_text())
    return found


@pytest.fixture(params=[1, 2], ids=["node", "workers"])
def server(request: pytest.FixtureRequest, tmp_path: Path, written: dict[str, Any]) -> Iterator[ServerProcess]:
    """A server that goes on with it, at the time when it was written."""
    clock = tmp_path / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(THEN.format_map(written))
    env = {"PYTHONPATH": f"{clock}:{os.environ.get('PYTHONPATH', '')}"}
    with closing(ServerProcess(tmp_path / "data", args=["--workers", str(request.param)], env=env)) as made:
        yield made.start(180)


def test_what_was_published_and_acknowledged_counts(server: ServerProcess, written: dict[str, Any]) -> None:
    """Each message that is owed comes, as it was, and no other; also after a seek to a snapshot and to a time."""
    numbers = {one: number for number, one in enumerate(written["ids"])}
    acked = {name: set(written["acked"].get(name, ())) for name in SUBSCRIPTIONS}
    acked["europe"] = {one for one, number in numbers.items() if message(number)["attributes"]["region"] != "eu"}
    acked["strict"] = {one for one, number in numbers.items() if message(number)["data"].decode() == written["letter"]}

    def received(api: Api, name: str, count: int) -> list[Any]:
        stream = HeldStream(api, named(name))
        try:
            return [one.message for one in stream.wait(count, within=120)]
        finally:
            stream.cancel()

    def check(api: Api, name: str) -> None:
        wanted = numbers.keys() - acked[name]
        found = received(api, name, len(wanted))
        assert sorted(one.message_id for one in found) == sorted(wanted), name
        for one in found:
            sent = message(numbers[one.message_id])
            assert (one.data, one.ordering_key, dict(one.attributes)) == tuple(sent.values())
        if SUBSCRIPTIONS[name].get("enable_message_ordering"):
            for key in ("k0", "k1", "k2"):
                order = [numbers[one.message_id] for one in found if one.ordering_key == key]
                assert order == sorted(order)

    with closing(Api(server.endpoint)) as api:
        listed = api.list_subscriptions({"project": PROJECT}).subscriptions
        assert {one.name for one in listed} == {named(one) for one in (*SUBSCRIPTIONS, "letters")}
        for name in SUBSCRIPTIONS:
            check(api, name)
        (letter,) = received(api, "letters", 1)
        assert letter.data.decode() == written["letter"]
        more = range(2 * HALF, 3 * HALF)
        numbers.update(zip(publish(api, more), more, strict=True))
        assert len(numbers) == 3 * HALF, "no id is given twice"
        acked["europe"] = {one for one, number in numbers.items() if message(number)["attributes"]["region"] != "eu"}
    server.restart(hard=True)
    with closing(Api(server.endpoint)) as api:
        for name in SUBSCRIPTIONS:
            check(api, name)
        api.seek({"subscription": named("billing"), "snapshot": SNAPSHOT})
        acked["billing"] = set(written["at_snapshot"])
        check(api, "billing")
        api.seek({"subscription": named("audit"), "time": {"seconds": written["written_ns"] // 10**9 - 3_600}})
        acked["audit"] = set()
        check(api, "audit")
