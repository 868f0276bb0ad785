"""Data folders as earlier versions left them, kept in `tests/integration/kept`, and what is in them.

Usage: python -m tests.kit.kept_data SOURCES FILE. SOURCES is the `src` folder of a version, FILE the archive to write.
The server of that version is given some work, stopped, given more, and killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncpoint.testing.rigs.official import Api, eventually

PROJECT = "projects/kept"
TOPIC, LETTERS = f"{PROJECT}/topics/orders", f"{PROJECT}/topics/letters"
SNAPSHOT = f"{PROJECT}/snapshots/before"
LASTS = {"seconds": 31 * 86_400}
HALF = 30
SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "billing": {},
    "ledger": {"enable_message_ordering": True},
    "once": {"enable_exactly_once_delivery": True},
    "europe": {"filter": 'attributes.region = "eu"'},
    "strict": {"dead_letter_policy": {"dead_letter_topic": LETTERS, "max_delivery_attempts": 5}},
    "audit": {"retain_acked_messages": True},
}


def named(subscription: str) -> str:
    return f"{PROJECT}/subscriptions/{subscription}"


def message(number: int) -> dict[str, Any]:
    """Every second one has a key, every fourth one is of Europe."""
    region = "eu" if number % 4 == 0 else "us"
    return {
        "data": b"order %d" % number,
        "ordering_key": f"k{number % 3}" if number % 2 else "",
        "attributes": {"region": region},
    }


def publish(api: Api, numbers: range) -> list[str]:
    """A request for each; the ids."""
    return [api.publish({"topic": TOPIC, "messages": [message(one)]}).message_ids[0] for one in numbers]


def pulled(api: Api, subscription: str, count: int) -> dict[str, Any]:
    """So many messages by their id, as soon as there are so many."""
    found: dict[str, Any] = {}

    def there() -> bool:
        request = {"subscription": named(subscription), "max_messages": count - len(found), "return_immediately": True}
        found.update((one.message.message_id, one) for one in api.pull(request).received_messages)
        return len(found) >= count

    eventually(there, 120, f"{count} messages of {subscription}, of which there are {len(found)}")
    return found


@contextmanager
def served(sources: Path, data: Path) -> Iterator[tuple[Api, subprocess.Popen[str]]]:
    """A server of the version in `sources`; whoever uses it ends it."""
    module = "syncpoint.programs.cli" if (sources / "syncpoint/programs").exists() else "syncpoint.cli"
    command = [sys.executable, "-m", module, "serve", "--port", "0", "--data", str(data)]
    env = os.environ | {"PYTHONPATH": str(sources), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "ready on" in line)
        api = Api(line.partition("ready on ")[2].split()[0])
        try:
            yield api, process
        finally:
            api.close()
            process.kill()


def write(sources: Path, data: Path) -> dict[str, Any]:
    """Make a data folder; what was published and acknowledged."""
    acked: dict[str, list[str]] = {}

    def take(subscription: str, count: int) -> None:
        got = pulled(api, subscription, count)
        api.acknowledge({"subscription": named(subscription), "ack_ids": [one.ack_id for one in got.values()]})
        acked[subscription] = acked.get(subscription, []) + list(got)

    with served(sources, data) as (api, process):
        for topic in (TOPIC, LETTERS):
            api.create_topic({"name": topic, "message_retention_duration": LASTS})
        for name, fields in {**SUBSCRIPTIONS, "letters": {}}.items():
            request = {"name": named(name), "topic": LETTERS if name == "letters" else TOPIC, **fields}
            api.create_subscription({**request, "message_retention_duration": LASTS, "expiration_policy": {}})
        ids = publish(api, range(HALF))
        for name, count in {"billing": 20, "ledger": 10, "once": 7, "audit": HALF}.items():
            take(name, count)
        api.create_snapshot({"name": SNAPSHOT, "subscription": named("billing")})
        at_snapshot = list(acked["billing"])
        take("billing", 5)
        for _ in range(5):
            (given_up,) = pulled(api, "strict", 1).items()
            refused = {"subscription": named("strict"), "ack_ids": [given_up[1].ack_id], "ack_deadline_seconds": 0}
            api.modify_ack_deadline(refused)
        pulled(api, "letters", 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    with served(sources, data) as (api, _):
        ids += publish(api, range(HALF, 2 * HALF))
        take("ledger", 15)
        time.sleep(3.0)  # acknowledgements that need not be synced are
    return {
        "written_ns": time.time_ns(),
        "ids": ids,
        "acked": acked,
        "at_snapshot": at_snapshot,
        "letter": given_up[1].message.data.decode(),
    }


def main(sources: Path, file: Path) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        written = write(sources.absolute(), data)
        Path(folder, "written.json").write_text(json.dumps(written))
        with tarfile.open(file, "w:xz") as archive:
            archive.add(data, "data", filter=lambda one: None if one.name.startswith("data/disk-1/pool/") else one)
            archive.add(Path(folder, "written.json"), "written.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
