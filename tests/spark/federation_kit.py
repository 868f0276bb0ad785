"""What tests of federation and of faults stand on: servers as clusters, messages with numbers, and an oracle.

The oracle reads logs with plain gRPC (grpcio) and pyarrow, none of which the pipeline's own client or Spark has a part
in, and compares them with what was published, message by message.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from syncpoint.federation.patterns import links_of
from syncpoint.federation.spec import parse
from syncpoint.federation.state import StateFolder
from syncpoint.testing.official import Api, connect
from syncpoint.testing.server import ServerProcess
from syncpoint.wire.messages import pipeline

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("offset", pa.int64()),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("ordering_key", pa.string()),
        ("origin", pa.string()),
        ("visited", pa.list_(pa.string())),
    ]
)
COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8)
PROJECT = "fed"


@dataclass(frozen=True)
class Message:
    """One message as a log holds it."""

    message_id: str
    publish_time: Any
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str
    origin: str
    visited: tuple[str, ...]
    source: int
    offset: int

    @property
    def content(self) -> tuple[Any, ...]:
        """All that a copy keeps."""
        attributes = tuple(sorted(self.attributes.items()))
        return self.message_id, self.publish_time, self.data, attributes, self.ordering_key


def name_of(topic: str, project: str = PROJECT) -> str:
    return f"projects/{project}/topics/{topic}"


class Oracle:
    """Logs of one server, over a channel of its own."""

    def __init__(self, endpoint: str) -> None:
        self._channel = connect(endpoint)

    def close(self) -> None:
        self._channel.close()

    def positions(self, topic: str) -> Any:
        call = self._channel.unary_unary(
            "/syncpoint.pipeline.v1.LogReader/GetPositions",
            request_serializer=pipeline.GetPositionsRequest.SerializeToString,
            response_deserializer=pipeline.Positions.FromString,
        )
        return call(pipeline.GetPositionsRequest(topic=topic), timeout=30, wait_for_ready=True)

    def log(self, topic: str) -> list[Message]:
        """Everything a topic's log holds, source after source in the order of keys."""
        call = self._channel.unary_stream(
            "/syncpoint.pipeline.v1.LogReader/ReadRange",
            request_serializer=pipeline.ReadRangeRequest.SerializeToString,
            response_deserializer=pipeline.ReadFrame.FromString,
        )
        positions = self.positions(topic)
        found: list[Message] = []
        for one in positions.sources:
            if one.begin == one.end:
                continue
            request = pipeline.ReadRangeRequest(
                topic=topic,
                topic_incarnation=positions.topic_incarnation,
                source=one.source,
                begin=one.begin,
                end=one.end,
                columns=COLUMNS,
            )
            for frame in call(request, timeout=60):
                if frame.rows:
                    batch = pa.ipc.read_record_batch(pa.py_buffer(frame.batch), SCHEMA)
                    found += [
                        Message(
                            row["message_id"],
                            row["publish_time"],
                            row["data"],
                            dict(row["attributes"]),
                            row["ordering_key"],
                            row["origin"],
                            tuple(row["visited"]),
                            one.source,
                            row["offset"],
                        )
                        for row in batch.to_pylist()
                    ]
        return found


@dataclass(frozen=True)
class Verdict:
    """What became of messages, by id: `changed`: anything but the id differs; `disordered`: keys out of order."""

    published: int
    stored: int
    missing: int
    twice: int
    changed: int
    foreign: int
    disordered: int

    @property
    def exact(self) -> bool:
        return not (self.missing or self.twice or self.changed or self.foreign or self.disordered)


def judge(published: Iterable[Message], stored: Iterable[Message]) -> Verdict:
    """Compare two logs."""
    wanted, found = list(published), list(stored)
    by_id = {one.message_id: one for one in wanted}
    times = Counter(one.message_id for one in found)
    changed = sum(one.message_id in by_id and by_id[one.message_id].content != one.content for one in found)
    return Verdict(
        len(wanted),
        len(found),
        len(by_id.keys() - times.keys()),
        sum(count - 1 for count in times.values()),
        changed,
        len(times.keys() - by_id.keys()),
        len(disordered(wanted, found)),
    )


def disordered(wanted: Iterable[Message], found: Iterable[Message]) -> set[str]:
    """Keys whose messages are not in the order in which they were published."""
    orders: list[dict[str, list[str]]] = []
    for messages in (wanted, found):
        seen: dict[str, None] = {}
        order: dict[str, list[str]] = {}
        for one in messages:
            if one.ordering_key and one.message_id not in seen:
                seen[one.message_id] = None
                order.setdefault(one.ordering_key, []).append(one.message_id)
        orders.append(order)
    first, second = orders
    return {key for key, ids in second.items() if [one for one in first.get(key, []) if one in set(ids)] != ids}


class Site:
    """One server as a cluster of a federation."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self.name, self.server = name, server
        self.api = Api(server.endpoint)
        self.oracle = Oracle(server.endpoint)

    def close(self) -> None:
        self.oracle.close()
        self.api.close()
        self.server.close()

    def topic(self, topic: str, project: str = PROJECT) -> str:
        """Create a topic that keeps a day; its full name."""
        name = name_of(topic, project)
        self.api.create_topic({"name": name, "message_retention_duration": {"seconds": 86_400}})
        return name

    def publish(self, topic: str, numbers: Iterable[int], *, size: int = 0, keys: int = 5, **attributes: str) -> None:
        """A message for each number: data, an attribute, and a key of this site's publisher."""
        by_key: dict[str, list[int]] = {}
        for number in numbers:
            by_key.setdefault(f"{self.name}-{number % keys}" if keys else "", []).append(number)
        for key, waiting in by_key.items():
            for at in range(0, len(waiting), 500):
                messages = [
                    {
                        "data": f"{self.name}-{number}".encode().ljust(size, b"."),
                        "attributes": {"n": str(number), "from": self.name, **attributes},
                        "ordering_key": key,
                    }
                    for number in waiting[at : at + 500]
                ]
                self.api.publish({"topic": topic, "messages": messages})

    def log(self, topic: str) -> list[Message]:
        return self.oracle.log(topic)


@contextlib.contextmanager
def sites(names: str, folder: Path) -> Iterator[dict[str, Site]]:
    """Servers named by letters."""
    made: dict[str, Site] = {}
    try:
        for name in names:
            made[name] = Site(name, ServerProcess(folder / name).start())
        yield made
    finally:
        for one in made.values():
            one.close()


@dataclass
class RunningJob:
    """The job of a federation, in a thread of this process."""

    state: StateFolder
    job: Any
    failures: list[BaseException] = field(default_factory=list)


@contextlib.contextmanager
def running_job(spark: Any, content: Mapping[str, Any], folder: Path) -> Iterator[RunningJob]:
    """Run the job of a federation file's content on a session that is there."""
    from syncpoint.federation.job import Job

    federation = parse(content, folder)
    state = StateFolder(federation.runtime.state)
    state.take()
    job = Job(federation, links_of(federation), spark, state)
    running = RunningJob(state, job)

    def work() -> None:
        try:
            job.run()
        except BaseException as error:
            running.failures.append(error)

    thread = threading.Thread(target=work, name="federation-job")
    thread.start()
    try:
        yield running
    finally:
        job.stopping.set()
        thread.join(120)
        state.release()
    assert not running.failures, running.failures


def awaited(holds: Callable[[], Any], what: str, within: float = 180.0) -> Any:
    """As `eventually`, with the patience that Spark needs on a busy machine, and not asking all the time."""
    import time

    end = time.monotonic() + within
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.25)
    return value
