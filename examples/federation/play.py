"""Run one of the examples of federation patterns: its servers, its messages, its federation, and what came of it.

    .venv/bin/python examples/federation/play.py enrich           # or any other folder beside this file

It starts a server for each cluster of the example's `federation.yaml`, on free ports and in a temporary folder, and a
Kafka broker for a stream that needs one, into which go the records of `records.jsonl`; makes
what `topology.yaml` says, if there is one; publishes the messages of `input.jsonl`, runs `syncpoint federation run
--once`, and prints what the topics hold then. Exit code 1 when that is not what `expected.jsonl` says, message by
message. Spark takes half a minute to start.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.testing.kafka.kafka_broker import KafkaBroker
from syncpoint.testing.kafka.kafka_jars import KafkaMissing, kafka_jars, spark_jars
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin, pubsub

HERE = Path(__file__).parent
DIFFERS = (  # from run to run
    "sys.DeadLetterMessageId",
    "kafka.timestamp",
    "file.modified",
    "syncpoint.message-id",
    "syncpoint.publish-time",
)
DAY_S = 86_400


def prepare(name: str, folder: Path, endpoints: Mapping[str, str], jars: str = "") -> Path:
    """A copy of an example in `folder`, for servers and brokers at these endpoints; its federation file. `jars`: of
    Spark's Kafka source, if it needs one.
    """
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    if (folder / "prepare.py").exists():
        spec = importlib.util.spec_from_file_location(f"prepare_{name}", folder / "prepare.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.prepare(folder)
    file = folder / "federation.yaml"
    content = yaml.safe_load(file.read_text())
    for cluster, keys in content["clusters"].items():
        keys["endpoint"] = endpoints[cluster]
    for stream in streams_of(name):
        content["streams"][stream]["kafka"]["bootstrap"] = endpoints[stream]
        content["runtime"]["spark"] = {"spark.jars": jars}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def clusters_of(name: str) -> list[str]:
    """The clusters that an example needs."""
    return list(yaml.safe_load((HERE / name / "federation.yaml").read_text())["clusters"])


def streams_of(name: str) -> list[str]:
    """The clusters of Kafka that an example needs."""
    content = yaml.safe_load((HERE / name / "federation.yaml").read_text())
    return [stream for stream, keys in content.get("streams", {}).items() if "kafka" in keys]


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one on each line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def publish(folder: Path, endpoints: Mapping[str, str]) -> None:
    """Apply `topology.yaml`, if there is one, to each cluster, and publish what `input.jsonl` says, in its order, to
    topics that keep a day.
    """
    if (folder / "topology.yaml").exists():
        for endpoint in endpoints.values():
            command = [sys.executable, "-m", "syncpoint.programs.cli", "apply", str(folder / "topology.yaml"), "--yes"]
            subprocess.run([*command, "--endpoint", endpoint], check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        clients = {name: stack.enter_context(Client(endpoint)) for name, endpoint in endpoints.items()}
        there: set[tuple[str, str]] = set()
        for line in lines(folder / "input.jsonl"):
            client, topic = clients[line["at"]], line["topic"]
            if (line["at"], topic) not in there:
                there.add((line["at"], topic))
                made = pubsub.Topic(name=topic, message_retention_duration={"seconds": DAY_S})
                try:
                    client.call("Publisher.CreateTopic", made)
                except SyncpointError as error:
                    if error.code is not Code.ALREADY_EXISTS:
                        raise
            request = pubsub.PublishRequest(topic=topic)
            request.messages.add(
                data=data_of(line), attributes=line.get("attributes", {}), ordering_key=line.get("key", "")
            )
            client.call("Publisher.Publish", request)


def produce_to(address: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Make the topics that the lines of `records.jsonl` name, and write these."""
    from syncpoint.testing.kafka.kafka_client import KafkaRecord, create_topics, produce

    partitions: dict[str, int] = {}
    made = []
    for one in records:
        topic, number = one["topic"], one["partition"]
        partitions[topic] = max(number + 1, partitions.get(topic, 1))
        headers = [(name, value.encode()) for name, value in one.get("headers", {}).items()]
        data = None if one["data"] is None else data_of(one)
        made.append(KafkaRecord(topic, one["key"].encode(), data, headers, number))
    create_topics(address, partitions)
    produce(address, made)


def data_of(line: Mapping[str, Any]) -> bytes:
    """The data of a line: text, an object as JSON, or bytes in base 64."""
    if "base64" in line:
        return base64.b64decode(line["base64"])
    data = line["data"]
    return data.encode() if isinstance(data, str) else json.dumps(data, separators=(",", ":")).encode()


def results(topics: Iterable[tuple[str, str]], endpoints: Mapping[str, str]) -> list[dict[str, Any]]:
    """What these topics hold, by (cluster, full name), as lines of `expected.jsonl`: a topic's in the order of its
    log.
    """
    found = []
    for cluster, topic in topics:
        if not topic.startswith("projects/"):
            from syncpoint.testing.kafka.kafka_client import records_of

            found += [_record(cluster, one) for one in records_of(endpoints[cluster], topic)]
            continue
        with Client(endpoints[cluster]) as client:
            request = admin.PeekTopicRequest(topic=topic, page_size=1000)
            while True:
                answer = client.call("Admin.PeekTopic", request)
                found += [_shown(cluster, topic, one.message) for one in answer.messages]
                if not answer.next_page_token:
                    break
                request.page_token = answer.next_page_token
    return found


def _shown(cluster: str, topic: str, message: Any) -> dict[str, Any]:
    attributes = {name: value for name, value in sorted(message.attributes.items()) if name not in DIFFERS}
    shown: dict[str, Any] = {"at": cluster, "topic": topic}
    if "encryption.key" in attributes:
        shown["encrypted"] = len(message.data)
    else:
        try:
            shown["data"] = message.data.decode()
        except UnicodeDecodeError:
            shown["base64"] = base64.b64encode(message.data).decode()
    if attributes:
        shown["attributes"] = attributes
    if message.ordering_key:
        shown["key"] = message.ordering_key
    return shown


def _record(stream: str, record: Any) -> dict[str, Any]:
    headers = {name: value.decode() for name, value in sorted(record.headers) if name not in DIFFERS}
    shown: dict[str, Any] = {"at": stream, "topic": record.topic, "data": record.value.decode(), "attributes": headers}
    return shown if record.key is None else {**shown, "key": record.key.decode()}


def topics_of(expected: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Where the messages of `expected.jsonl` are."""
    return list(dict.fromkeys((line["at"], line["topic"]) for line in expected))


def same(found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> bool:
    """Whether both hold the same messages, each as often."""
    return sorted(map(_text, found)) == sorted(map(_text, expected))


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True)


def main() -> int:
    """The program. Returns the exit code."""
    names = sorted(path.parent.name for path in HERE.glob("*/federation.yaml"))
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        print(f"usage: play.py NAME, one of {', '.join(names)}", file=sys.stderr)
        return 2
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {one: stack.enter_context(ServerProcess()) for one in clusters_of(name)}
        endpoints = {one: server.endpoint for one, server in servers.items()}
        jars = ""
        for stream in streams_of(name):
            try:
                found_jars = kafka_jars(say=lambda text: print(text, file=sys.stderr))
            except KafkaMissing as error:
                print(f"{name} needs a Kafka broker, and {error}", file=sys.stderr)
                return 1
            broker = stack.enter_context(KafkaBroker(Path(folder) / "kafka", found_jars))
            endpoints[stream], jars = broker.address, spark_jars(found_jars)
            produce_to(broker.address, lines(HERE / name / "records.jsonl"))
        file = prepare(name, Path(folder) / name, endpoints, jars)
        publish(file.parent, endpoints)
        command = [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", "--once", "--quiet", str(file)]
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
        expected = lines(file.parent / "expected.jsonl")
        found = results(topics_of(expected), endpoints)
    for line in found:
        print(json.dumps(line, ensure_ascii=False))
    right = same(found, expected)
    print("as expected" if right else "NOT as expected: compare with expected.jsonl", file=sys.stderr)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
