"""A flow under an identity of its own between two servers that ask who calls: exactly the documented roles are enough,
each one taken away is a failure that names what is missing, and tokens are renewed without a restart.

The calls are those of the job and of the tasks on Spark, made here without it: who may call is the servers' business.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark_pubsub.errors import CallError
from pyspark_pubsub.options import READ, Options
from pyspark_pubsub.reading import read
from pyspark_pubsub.rpc import close_idle
from pyspark_pubsub.schema import source_schema
from pyspark_pubsub.source import BatchReader
from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.client import Client, client_tls
from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.analytics.recorded_topic import readable_ranges, recorded_topic
from syncpoint.programs.analytics.stored_messages import StoredTopic, stored_topic
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_plan import link_dict
from syncpoint.programs.cli.settings import Settings
from syncpoint.programs.cli.spark_session import server_of
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import Federation, parse
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin, iam, pubsub
from syncpoint.wire.protobuf.token_commands import token_command
from tests.integration.test_official_python_access import GuardedServer
from tests.kit.copying import Copier

pytestmark = pytest.mark.shows("federation")

TASK = "copier"
TOPIC = "projects/a/topics/orders"
ROLES = {
    "eu": {"projects/a": ["roles/pubsub.viewer", "roles/syncpoint.logReader"]},
    "us": {"projects/a": ["roles/pubsub.editor"], "server": ["roles/syncpoint.epochWriter"]},
}
"""What docs/federation.md says that a task needs, by cluster and resource."""


class Region:
    """A server with `--auth`, its owner, and a file with the task's token, which a command prints."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.guarded = GuardedServer(folder)
        files = ("--tls-cert", self.guarded.cert, "--tls-key", self.guarded.key, "--auth", self.guarded.auth)
        self.server = ServerProcess(folder / "data", args=[str(one) for one in files]).start()
        self.endpoint = f"localhost:{self.server.endpoint.rpartition(':')[2]}"
        self.owner = Client(
            self.endpoint, tls=client_tls(str(self.guarded.ca)), credentials=Credentials(self.guarded.owner)
        )
        self.printed = folder / "printed"
        program = f"print(open({str(self.printed)!r}).read())"
        self.command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        self.renew()

    def renew(self, seconds: int = 600) -> str:
        token = self.guarded.token(TASK, seconds)
        self.printed.write_text(json.dumps({"token": token, "expires_in": seconds}))
        return token

    def grant(self, roles: dict[str, list[str]]) -> None:
        for resource, named in roles.items():
            member = f"user:{TASK}@example.com"
            policy = iam.Policy(bindings=[iam.Binding(role=role, members=[member]) for role in named])
            self.owner.call("IAMPolicy.SetIamPolicy", iam.SetIamPolicyRequest(resource=resource, policy=policy))

    def publish(self, text: str) -> None:
        request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=text.encode())])
        self.owner.call("Publisher.Publish", request)

    def close(self) -> None:
        self.owner.close()
        self.server.close()

    def cluster(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint, "tls": {"ca": str(self.guarded.ca)}, "token": {"command": self.command},
        }  # fmt: skip


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Region]]:
    folder = tmp_path_factory.mktemp("regions")
    made = {name: Region(folder / name) for name in ("eu", "us")}
    made["eu"].owner.call(
        "Publisher.CreateTopic", pubsub.Topic(name=TOPIC, message_retention_duration={"seconds": 86_400})
    )
    yield made
    for one in made.values():
        one.close()
    close_idle()


def planned(regions: dict[str, Region], folder: Path) -> Federation:
    clusters = {name: one.cluster() for name, one in regions.items()}
    task = {"pattern": "replicate", "from": {"cluster": "eu", "topic": TOPIC}, "to": {"cluster": "us"}}
    return parse({"version": 1, "clusters": clusters, "tasks": {"copy": task}}, folder)


class Round:
    """What the job, the source and the sink call for one batch of a flow."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.links = federation, links_of(federation)
        self.copier: Copier | None = None

    def copy(self, servers: Servers) -> list[bytes]:
        """The data that was copied."""
        servers.able(self.links)
        (flow,) = servers.flows(self.links)
        self.copier = self.copier or Copier(self.federation, flow)
        servers.progress(flow)
        return self.copier.copy(servers)


def test_the_documented_roles_are_enough_and_each_is_needed(regions: dict[str, Region], tmp_path: Path) -> None:
    for name, region in regions.items():
        region.grant(ROLES[name])
    one = Round(planned(regions, tmp_path))
    regions["eu"].publish("first")
    with Servers() as servers:
        assert one.copy(servers) == [b"first"]
    missing = {
        ("eu", "projects/a", "roles/pubsub.viewer"): "pubsub.topics.list",
        ("eu", "projects/a", "roles/syncpoint.logReader"): "syncpoint.topics.(read|listCursors)",
        ("us", "projects/a", "roles/pubsub.editor"): "pubsub.topics.list",
        ("us", "server", "roles/syncpoint.epochWriter"): "syncpoint.epochs.list",
    }
    for number, ((name, resource, role), permission) in enumerate(missing.items()):
        regions["eu"].publish(f"later {number}")
        kept = [other for other in ROLES[name][resource] if other != role]
        regions[name].grant({**ROLES[name], resource: kept})
        with Servers() as servers, pytest.raises((SyncpointError, CallError), match=permission):
            one.copy(servers)
        regions[name].grant(ROLES[name])
        with Servers() as servers:
            assert one.copy(servers) == [f"later {number}".encode()]


def test_tokens_are_renewed_without_a_restart_and_shown_nowhere(
    regions: dict[str, Region], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, region in regions.items():
        region.grant(ROLES[name])
    federation = planned(regions, tmp_path)
    one = Round(federation)
    tokens = [region.renew() for region in regions.values()]
    with Servers() as servers:
        for region in regions.values():
            token_command(region.command).forget()
        regions["eu"].publish("before")
        assert one.copy(servers)[-1] == b"before"
        for region in regions.values():
            region.printed.write_text(json.dumps({"token": "revoked", "expires_in": 600}))
            token_command(region.command).forget()
        with pytest.raises(SyncpointError, match=r"UNAUTHENTICATED|credential"):
            one.copy(servers)
        tokens += [region.renew() for region in regions.values()]
        for region in regions.values():
            token_command(region.command).forget()
        regions["eu"].publish("after")
        assert one.copy(servers)[-1] == b"after"
        (flow,) = servers.flows(one.links)
        options = reading(flow.link, federation.runtime, "x"), writing(flow.link, "x", "x")
        shown = repr((federation, flow, options, servers.progress(flow)))
    shown += repr([link_dict(link) for link in one.links]) + caplog.text
    assert "token.command" in shown
    assert not any(token in shown for token in [*tokens, "revoked"])


def analysed(stored: StoredTopic) -> list[bytes]:
    """The data of a topic, read as an analysis has Spark read it."""
    options = Options({**stored.reading(("data",)), "patienceSeconds": "5"}, READ)
    reader = BatchReader(options, source_schema(options["columns"]))
    return [one for part in reader.partitions() for batch in read(part) for one in batch.column("data").to_pylist()]


def test_analyses_read_under_the_identity_of_the_command_line(regions: dict[str, Region], tmp_path: Path) -> None:
    region, topic, records = regions["eu"], "projects/a/topics/analysed", "projects/a/topics/records"
    for name in (topic, records):
        request = pubsub.Topic(name=name, message_retention_duration={"seconds": 86_400})
        region.owner.call("Publisher.CreateTopic", request)
    options = admin.UpdateTopicOptionsRequest(options=admin.TopicOptions(topic=topic, records_topic=records))
    options.update_mask.paths.append("records_topic")
    region.owner.call("Admin.UpdateTopicOptions", options)
    region.owner.call(
        "Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=[{"data": b"a"}, {"data": b"b"}])
    )

    kept, tokens = tmp_path / "token", [region.guarded.token(TASK)]
    kept.write_text(tokens[0])
    given = {"endpoint_option": region.endpoint, "tls_ca": str(region.guarded.ca)}
    server = server_of(Settings(**given, credentials_option=str(kept)))
    region.grant({"projects/a": ["roles/pubsub.viewer"]})
    with pytest.raises(SyncpointError, match=r"the account used there needs syncpoint\.topics\.read"):
        stored_topic(server, topic)
    region.grant({"projects/a": ["roles/pubsub.viewer", "roles/syncpoint.logReader"]})
    assert analysed(stored_topic(server, topic)) == [b"a", b"b"]
    tokens.append(region.guarded.token(TASK, 500))
    kept.write_text(tokens[1])
    recorded = recorded_topic(server, topic)
    assert [(one.begin, one.end) for one in readable_ranges(recorded)] == [(0, 2)]
    shown = repr((server, recorded, recorded.stored.reading(("data",))))
    assert not any(one in shown for one in tokens)

    signing = server_of(Settings(**given, credentials_option=str(region.guarded.owner)))
    assert analysed(stored_topic(signing, topic)) == [b"a", b"b"]
    assert "PRIVATE KEY" not in repr((signing, stored_topic(signing, topic).reading(("data",))))
    region.guarded.key_file("stranger@example.com")
    stranger = server_of(Settings(**given, credentials_option=str(region.guarded.folder / "stranger@example.com.json")))
    with pytest.raises(SyncpointError, match=r"UNAUTHENTICATED|credential"):
        stored_topic(stranger, topic)
    with pytest.raises(Problem, match="in the clear"):
        server_of(Settings(endpoint_option="example.com:1", credentials_option=str(kept)))
