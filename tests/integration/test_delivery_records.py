"""Delivery records on one server, on `serve --workers` and on a cluster: what they say is what happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.identity import parse_message_id
from syncpoint.front.client.client import Client
from syncpoint.front.client.message_path import recorded_path
from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin
from tests.integration.conftest import Space
from tests.kit.clusters import Kit

pytestmark = pytest.mark.shows("records")

SHAPE = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)
KEPT = {"message_retention_duration": {"seconds": 3600}}


@pytest.fixture(scope="module", params=["node", "workers", "cluster"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where one of the three is served; each is started once."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param != "cluster":
        server = ServerProcess(folder / "data", args=["--workers", "2"] if request.param == "workers" else [])
        try:
            yield server.start().endpoint
        finally:
            server.close()
        return
    if why_not():
        pytest.skip("etcd is not installed (Debian: apt-get install etcd-server)")
    kit = Kit(folder, SHAPE)
    try:
        yield kit.up().proxies[0]
    finally:
        kit.down()


def record_into(endpoint: str, topic: str, records: str) -> None:
    with Client(endpoint, timeout_s=20.0, patience_s=20.0) as client:
        options = admin.TopicOptions(topic=topic, records_topic=records)
        request = admin.UpdateTopicOptionsRequest(options=options)
        request.update_mask.paths.append("records_topic")
        client.call("Admin.UpdateTopicOptions", request)


def traced(endpoint: str, topic: str, message_id: str, *wanted: tuple[str, str]) -> list[tuple[str, str]]:
    """Events of a message with ids of subscriptions, once these are among them, each as often as named: every process
    of a cluster writes its own records, each in its own time.
    """

    def events() -> list[tuple[str, str]] | None:
        with Client(endpoint, timeout_s=20.0, patience_s=20.0) as client:
            path = recorded_path(client.call, "here", topic, *parse_message_id(message_id)[1:])
        assert not path.unknown
        found = [(one.event, one.subscription.rpartition("/")[2]) for one in path.events]
        return None if Counter(wanted) - Counter(found) else found

    return eventually(events, what=f"{wanted} among the events")


def test_a_path_is_what_happened_to_the_message(house: str) -> None:
    space = Space(house)
    records, dead = space.topic("records", **KEPT), space.topic("dead")
    topic = space.topic(**KEPT)
    record_into(house, topic, records)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    sub = space.subscription(topic, dead_letter_policy=policy, ack_deadline_seconds=60)
    space.subscription(topic, "few", filter='attributes.kind = "no"')
    plain, returned, poison = (space.publish(topic, body)[0] for body in (b"plain", b"returned", b"poison"))

    nacks = {b"returned": 1, b"poison": 5}
    done = 0
    while done < 2 or nacks[b"poison"]:
        for one in space.pull(sub):
            if nacks.get(one.message.data, 0):
                nacks[one.message.data] -= 1
                space.nack(sub, one)
            else:
                done += 1
                space.ack(sub, one)

    begin = [("published", ""), ("persisted", "")]
    again = [("delivered", "sub"), ("came back", "sub")]
    end = [("delivered", "sub"), ("acknowledged", "sub")]
    for message_id, way in (
        (plain, [*begin, *end]),
        (returned, [*begin, *again, *end]),
        (poison, [*begin, *again * 5, ("dead-lettered", "sub"), ("acknowledged", "sub")]),
    ):
        assert traced(house, topic, message_id, *way) == way

    wanted = space.pull(space.subscription(topic, "seen"), 0)
    assert wanted == []
    assert not space.peek(space.path("subscriptions", "few")), "its subscriber has nothing, and it is passed over"
    path = traced(house, topic, plain, ("filtered", "few"), ("counts as acknowledged", "seen"))
    assert path.index(("filtered", "few")) > path.index(("persisted", ""))
    space.close()


def test_the_command_and_what_is_refused(house: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    space = Space(house)
    topic, records, other = space.topic(), space.topic("records", **KEPT), space.topic("other", **KEPT)
    for wrong, problem in ((topic, "itself"), (space.topic("kept-nothing"), "has no message retention")):
        with pytest.raises(Exception, match=problem):
            record_into(house, topic, wrong)
    record_into(house, topic, records)
    with pytest.raises(FailedPrecondition, match="is the records_topic of another topic"):
        record_into(house, records, other)
    (message_id,) = space.publish(topic, b"one")
    traced(house, topic, message_id, ("persisted", ""))
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", house)
    monkeypatch.setenv("PUBSUB_PROJECT_ID", space.project)
    answer = CliRunner().invoke(cli, ["trace", message_id, "--topic", "topic"])
    assert answer.exit_code == 0, answer.output
    assert "persisted" in answer.output
    answer = CliRunner().invoke(cli, ["trace", message_id, "--topic", "topic", "--format", "json"])
    (found,) = json.loads(answer.stdout)["servers"]
    assert [one["event"] for one in found["events"]] == ["published", "persisted"]
    answer = CliRunner().invoke(cli, ["trace", message_id, "--topic", "other"])
    assert "is not recorded" in answer.output

    file = tmp_path / "topology.yaml"
    file.write_text("topics: {records: {records_topic: other}, topic: {records_topic: ''}}\n", encoding="utf-8")
    answer = CliRunner().invoke(cli, ["apply", str(file), "--yes"])
    assert answer.exit_code == 0, answer.output
    assert f"records_topic  (none) -> {other}" in answer.output
    assert CliRunner().invoke(cli, ["diff", str(file)]).exit_code == 0
    space.close()


def test_a_server_that_is_killed_says_what_it_found_and_what_nobody_knows(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        space = Space(server.start().endpoint)
        records, topic = space.topic("records", **KEPT), space.topic(**KEPT)
        record_into(server.endpoint, topic, records)
        sub = space.subscription(topic)
        (message_id,) = space.publish(topic, b"one")
        space.ack(sub, *space.pull(sub))
        traced(server.endpoint, topic, message_id, ("acknowledged", "sub"))
        server.kill9()
        server.start()

        def known() -> Any:
            with Client(server.endpoint, timeout_s=20.0, patience_s=20.0) as client:
                path = recorded_path(client.call, "here", topic, *parse_message_id(message_id)[1:])
            return path if ("found stored" in {one.event for one in path.events}) else None

        path = eventually(known, what="what was found in the log is recorded")
        assert [one.event for one in path.events][-2:] in (
            ["found stored", "counts as acknowledged"],
            ["counts as acknowledged", "found stored"],
        )
        assert any("ended without saying so" in one for one in path.unknown)
        server.restart()
        again = eventually(
            lambda: (found := known()) and len({one.writer for one in found.events}) == 3 and found,
            30, "the third life has recorded what it found",
        )  # fmt: skip
        assert len(again.unknown) == 1, "the second life ended in order, the first did not"
        space.close()
    finally:
        server.close()
