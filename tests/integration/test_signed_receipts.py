"""Receipts on real servers: with the answer to a publish, on demand, of copies at another site, and checked offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.servers import Servers
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, iam, pubsub
from tests.integration.test_disaster_classes import ORDERS, Sites
from tests.integration.test_tenants import House, house

pytestmark = pytest.mark.shows("signed-receipts")

__all__ = ["house"]
ASKED = ("x-syncpoint-receipt", "1")
PUBLISH = methods.PUBLISHER.Publish


class Desk:
    """A server with three disks, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ServerProcess(folder / "data", disks=[folder / one for one in "abc"], durability="sync").start()
        self.channel = grpc.insecure_channel(self.server.endpoint)

    def close(self) -> None:
        self.channel.close()
        self.server.close()

    def publish(self, *texts: str, topic: str = ORDERS, metadata: Any = (ASKED,)) -> tuple[list[str], dict[str, str]]:
        request = pubsub.PublishRequest(topic=topic)
        for text in texts:
            request.messages.add(data=text.encode())
        answer, call = self.channel.unary_unary(PUBLISH).with_call(
            request.SerializeToString(), metadata=metadata, timeout=20
        )
        ids = pubsub.PublishResponse.FromString(answer).message_ids
        return list(ids), {key: str(value) for key, value in call.trailing_metadata()}

    def cli(self, *words: str) -> Any:
        return CliRunner().invoke(cli, [*words, "--endpoint", self.server.endpoint, "--project", "shop"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    try:
        assert made.cli("topics", "create", "orders", "--message-retention-duration", "1d").exit_code == 0
        yield made
    finally:
        made.close()


def checked(folder: Path, *receipts: str) -> list[Any]:
    """What `receipt verify` reads, without a server."""
    (folder / "receipts").write_text("\n".join(receipts))
    words = ["receipt", "verify", str(folder / "receipts"), "--format", "json", "--endpoint", "127.0.0.1:9"]
    for keys in sorted(folder.glob("*.keys")):
        words += ["--keys", str(keys)]
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    return list(json.loads(found.stdout))


def test_a_publish_that_asks_has_a_receipt_in_its_trailers_and_no_other(desk: Desk) -> None:
    _, trailers = desk.publish("plain", metadata=())
    assert trailers == {}
    ids, trailers = desk.publish("1", "2", "3")
    (desk.folder / "desk.keys").write_text(desk.cli("receipt", "keys").stdout)
    (found,) = checked(desk.folder, trailers["x-syncpoint-receipt"])
    assert found["topic"] == ORDERS
    assert found["messages"] == [[ids[0], 3]]
    (entry,) = found["entries"]
    assert entry["suffices"]
    assert entry["needed"] == 2
    assert sorted(Path(one["disk"]).name for one in entry["copies"]) == ["a", "b", "c"]
    assert sum(one["state"] == "HELD" for one in entry["copies"]) >= 2
    changed = trailers["x-syncpoint-receipt"][:-4] + "AAAA"
    (desk.folder / "changed").write_text(changed)
    refused = CliRunner().invoke(
        cli, ["receipt", "verify", str(desk.folder / "changed"), "--keys", str(desk.folder / "desk.keys")]
    )
    assert refused.exit_code == 1
    assert "signature does not match" in refused.output


def test_what_is_refused_is_refused_with_a_header_as_without(desk: Desk) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        desk.publish("x", topic="projects/shop/topics/none")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert desk.cli("topics", "update", "orders", "--suspend").exit_code == 0
    with pytest.raises(grpc.RpcError) as refused:
        desk.publish("x")
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert desk.cli("topics", "update", "orders", "--resume").exit_code == 0


def test_a_receipt_on_demand_is_checked_after_the_server_has_another_key(desk: Desk) -> None:
    ids, _ = desk.publish("on demand", metadata=())
    file = desk.folder / "order.receipt"
    words = ("receipt", ids[0], "--topic", "orders", "--output", str(file))
    assert "hold it" in desk.cli(*words).output
    first = file.read_text()
    desk.channel.close()
    desk.server.kill9()
    desk.server.start()
    desk.channel = grpc.insecure_channel(desk.server.endpoint)
    assert desk.cli(*words).exit_code == 0
    (desk.folder / "desk.keys").write_text(desk.cli("receipt", "keys").stdout)
    one, other = checked(desk.folder, first, file.read_text())
    assert one["messages"] == other["messages"] == [[ids[0], 1]]
    assert json.loads((desk.folder / "desk.keys").read_text())["keys"][1:], "each process has its own"


def test_the_copy_at_another_site_has_a_receipt_of_that_site(tmp_path: Path) -> None:
    sites = Sites(tmp_path, "sync")
    try:
        sites.done("eu", "topics", "create", "orders", "--message-retention-duration", "1d")
        message = sites.publish("eu", "1")
        file = tmp_path / "both.receipt"
        words = ("receipt", message, "--topic", "orders", "--federation", str(sites.file), "--output", str(file))
        sites.done("eu", *words)
        assert len(file.read_text().split()) == 1, "it is not copied yet"
        with Servers() as servers:
            assert len(sites.copiers(servers)["eu", "us"].copy(servers)) == 1
        assert "At us, of which a link has made a copy" in sites.done("eu", *words)
        for site in ("eu", "us"):
            (tmp_path / f"{site}.keys").write_text(sites.done(site, "receipt", "keys"))
        here, there = checked(tmp_path, *file.read_text().split())
        assert here["messages"] == there["messages"] == [[message, 1]]
        assert here["iss"] != there["iss"]
    finally:
        sites.close()


def test_nobody_has_a_receipt_of_another_tenants_message(house: House) -> None:
    """Who may publish has one of what he publishes; reading is another right."""
    channel = house.channel
    request = pubsub.PublishRequest(topic="projects/b/topics/kept", messages=[{"data": b"x"}])

    def publish(who: str) -> Any:
        metadata = [("authorization", f"Bearer {house.token(who)}"), ASKED]
        return channel.unary_unary(PUBLISH).with_call(request.SerializeToString(), metadata=metadata, timeout=20)

    with pytest.raises(grpc.RpcError) as refused:
        publish("ann")
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert not [key for key, _ in refused.value.trailing_metadata() if "receipt" in key]
    binding = iam.Binding(role="roles/pubsub.publisher", members=["user:carl@example.com"])
    policy = iam.SetIamPolicyRequest(resource="projects/b/topics/kept", policy=iam.Policy(bindings=[binding]))
    house.call(methods.IAM.SetIamPolicy, policy, "bob")
    answer, call = publish("carl")
    assert "x-syncpoint-receipt" in dict(call.trailing_metadata())
    (message,) = pubsub.PublishResponse.FromString(answer).message_ids
    asked = admin.GetReceiptRequest(topic="projects/b/topics/kept", message_id=message, sign=True)
    for who in ("ann", "carl"):
        assert house.refusal(methods.ADMIN.GetReceipt, asked, who)[0] == grpc.StatusCode.PERMISSION_DENIED
    assert house.call(methods.ADMIN.GetReceipt, asked, "bob").signed
    path = f"/admin/v1/projects/b/topics/kept:receipt?messageId={message}&sign=true"
    assert house.rest(path, "ann")[0] == 403
    assert house.rest(path, "bob")[1]["signed"]
