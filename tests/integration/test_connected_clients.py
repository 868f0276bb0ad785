"""Who is connected, on one server, with workers and on a cluster: official clients are shown as what they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("connected")

READER = "reader@shop.iam.gserviceaccount.com"


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


def shown(endpoint: str, *words: str) -> Any:
    """What the command line shows, as JSON."""
    run = CliRunner().invoke(cli, [*words, "--endpoint", endpoint, "--format", "json"])
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def test_clients_are_shown_with_their_libraries_limits_and_what_is_out(space: Space) -> None:
    topic, subscription = space.pair(ack_deadline_seconds=600)
    other = space.subscription(topic, "other")
    space.publish(topic, *(b"%d" % n for n in range(9)))
    held = space.stream(subscription, client_id="held", max_outstanding_messages=4, stream_ack_deadline_seconds=600)
    held.wait(4)
    space.pull(other, 9)
    future = space.subscriber().subscribe(other, lambda message: message.ack())
    try:
        eventually(lambda: len(shown(space.endpoint, "subscriptions", "clients", other).get("clients", ())) == 2)
        stream, pull = shown(space.endpoint, "subscriptions", "clients", other)["clients"]
    finally:
        future.cancel()
        future.result()
    assert (stream["kind"], pull["kind"]) == ("STREAM", "PULL")
    assert stream["userAgent"].startswith("grpc-python/")
    assert "gccl/" in stream["apiClient"]
    assert int(stream["maxOutstandingMessages"]) == 1000
    assert stream["outstandingMessages"] == "0"
    assert pull["lastCallTime"] >= pull["connectTime"]

    (one,) = shown(space.endpoint, "subscriptions", "clients", subscription)["clients"]
    assert (one["clientId"], one["maxOutstandingMessages"], one["outstandingMessages"]) == ("held", "4", "4")
    assert int(one["outstandingBytes"]) > 0
    assert one["peer"].startswith("127.0.0.1:")
    assert one["process"]
    (publisher,) = shown(space.endpoint, "topics", "publishers", topic)["publishers"]
    assert publisher["kind"] == "PUBLISHER"
    assert publisher["userAgent"].startswith("grpc-python/")

    held.cancel()
    eventually(lambda: not shown(space.endpoint, "subscriptions", "clients", subscription).get("clients"))
    eventually(
        lambda: {one["kind"] for one in shown(space.endpoint, "subscriptions", "clients", other)["clients"]} == {"PULL"}
    )


def test_principals_are_shown_to_who_may_see_the_server(tmp_path: Path, boot: Callable[..., ServerProcess]) -> None:
    auth, key, reader = tmp_path / "auth.yaml", tmp_path / "admin.json", tmp_path / "reader.json"
    run = CliRunner().invoke
    made = run(cli, ["iam", "init", str(auth), "--owner", "admin@shop.example", "--key-file", str(key)])
    assert made.exit_code == 0, made.output
    server = boot(args=["--auth", str(auth)])
    for words in (
        ["topics", "create", "orders"],
        ["subscriptions", "create", "billing", "--topic", "orders"],
        ["topics", "publish", "orders", "--message", "x"],
        ["iam", "accounts", "create", READER],
        ["iam", "accounts", "keys", "create", READER, "--file", str(reader)],
        ["iam", "policy", "add", "project", "--member", f"serviceAccount:{READER}", "--role", "roles/pubsub.viewer"],
    ):
        done = run(cli, [*words, "--endpoint", server.endpoint, "--project", "shop", "--credentials", str(key)])
        assert done.exit_code == 0, done.output
    name, requests = "projects/shop/subscriptions/billing", SimpleQueue[Any]()
    with grpc.insecure_channel(server.endpoint) as channel:
        owner, viewer = ([("authorization", f"Bearer {Credentials(one).token()}")] for one in (key, reader))
        requests.put(pubsub.StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=60))
        pull, listing = methods.SUBSCRIBER.StreamingPull, methods.ADMIN.ListSubscriptionClients
        stream = channel.stream_stream(str(pull), pull.request.SerializeToString, pull.response.FromString)(
            iter(requests.get, None), metadata=owner
        )
        next(stream)
        ask = channel.unary_unary(str(listing), listing.request.SerializeToString, listing.response.FromString)

        def clients(who: Any) -> Any:
            return ask(admin.ListSubscriptionClientsRequest(subscription=name), metadata=who, timeout=20)

        seen = clients(owner)
        (one,) = seen.clients
        assert (one.principal, one.kind) == ("serviceAccount:admin@shop.example", admin.ConnectedClient.STREAM)
        assert one.peer.startswith("127.0.0.1:")
        assert not seen.addresses_hidden
        hidden = clients(viewer)
        assert [(one.principal, one.peer, one.user_agent) for one in hidden.clients] == [("", "", one.user_agent)]
        assert hidden.addresses_hidden
        requests.put(None)
        stream.cancel()
