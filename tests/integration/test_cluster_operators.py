"""What an operator sets, turns and reads: certificates, weights, keys, and states that say what they do not know."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import ssl
import uuid
from collections import Counter

import pytest
import yaml
from click.testing import CliRunner

from syncpoint.base.model.errors import Unavailable
from syncpoint.front.proxy.data_keys import REFRESH_S
from syncpoint.node.cluster.tls import tls_of
from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import bodies, eventually
from syncpoint.wire.protobuf.messages import admin
from tests.kit.clusters import Kit, holds

pytestmark = pytest.mark.shows("tls")

SHAPE = Shape(clusters=1, disks=1, forwarders=2, routers=1, proxies=2)
OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)


class Secured(Kit):
    """A cluster whose processes prove to each other who they are. proxy-1 is plain for clients, proxy-2 speaks TLS."""

    def __init__(self, folder):
        self.authority, self.other = Authority(folder / "tls"), Authority(folder / "other")
        (folder / "kek").write_text(OLD.hex())
        tls = {"ca": "tls/ca.pem", "certificate": "tls/{name}.pem", "key": "tls/{name}.key"}
        super().__init__(folder, SHAPE, {"tls": tls, "sealing": {"key_file": "kek"}})
        content = yaml.safe_load(self.local.settings_path.read_text())
        for name in content["processes"]:
            self.authority.issue(name)
        for name in ("publish-forwarder-1", "subscribe-forwarder-1"):
            content["processes"][name]["weight"] = 2
        content["processes"]["proxy-2"] |= {"tls_cert": "tls/proxy-2.pem", "tls_key": "tls/proxy-2.key"}
        self.local.settings_path.write_text(yaml.safe_dump(content, sort_keys=False))

    def cli(self, *words, code=0):
        """Run the command line; its output."""
        result = CliRunner().invoke(cli, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.output

    def json(self, *words):
        return json.loads(self.cli(*words, "--format", "json"))

    def keys(self, *words):
        return self.cli("keys", words[0], "--config", self.local.settings_path, *words[1:])


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture
def space(secured, enter):
    return enter(secured.proxies[0])


def test_a_forwarder_of_weight_two_gets_about_twice_the_topics(secured, space):
    topics = [space.topic(f"topic-{number}") for number in range(60)]
    for topic in topics:
        space.publish(topic, b"x")
    homes = {one.number: one.home for one in secured.chains()}
    counts = Counter()
    for topic in topics:
        state = secured.admin("GetTopicState", admin.GetTopicStateRequest(topic=topic))
        assert not state.unknown
        counts.update(homes[source.chain] for source in state.sources)
    heavy, light = counts["publish-forwarder-1"], counts["publish-forwarder-2"]
    assert heavy + light >= 60
    assert 1.4 <= heavy / light <= 4, counts
    view = json.loads(secured.cli("cluster", "status", "--dir", secured.local.folder, "--format", "json"))
    assert view["problems"] == []
    weights = {one["name"]: one["weight"] for one in view["processes"]}
    assert (weights["publish-forwarder-1"], weights["publish-forwarder-2"]) == (2, 1)
    assert "weight 2" in secured.cli("cluster", "status", "--dir", secured.local.folder)


def refusal(secured, name):
    """What a process says that is not let in."""
    with pytest.raises(Unavailable) as caught:
        secured.local.start(name)
    return caught.value.message


def test_a_process_without_a_valid_certificate_is_refused(secured):
    secured.add_process("stranger", "router")
    assert "stranger.pem cannot be read" in refusal(secured, "stranger")
    path = secured.local.settings_path
    content = yaml.safe_load(path.read_text())
    try:
        secured.other.issue("stranger")
        strange = {key: value.replace("tls/", "other/") for key, value in content["tls"].items()}
        path.write_text(yaml.safe_dump(content | {"tls": strange}))
        assert "stranger has no valid certificate for this cluster" in refusal(secured, "stranger")
        path.write_text(yaml.safe_dump({key: value for key, value in content.items() if key != "tls"}))
        assert "use TLS inside the cluster, but stranger uses plain TCP" in refusal(secured, "stranger")
        path.write_text(yaml.safe_dump(content))
        secured.authority.issue("stranger")
        secured.local.start("stranger")
        eventually(lambda: "stranger" in secured.members(), what="it is a member now")
        secured.local.stop("stranger")
    finally:
        del content["processes"]["stranger"]
        path.write_text(yaml.safe_dump(content, sort_keys=False))


def is_answered(address, context):
    """Whether anything comes back from whom we call with a certificate, or without one, or in the clear."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.ExitStack() as opened:
            sock = opened.enter_context(socket.create_connection((host, int(port)), 5.0))
            sock.settimeout(5.0)
            if context is not None:
                sock = opened.enter_context(context.wrap_socket(sock, server_hostname=host))
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
            return bool(sock.recv(1))
    except OSError:
        return False


def test_no_process_listens_to_who_shows_no_certificate(secured):
    trusting = ssl.create_default_context(cafile=str(secured.authority.ca))
    ours = tls_of(secured.local.settings(), "router-1").client()
    for process in secured.local.settings().processes.values():
        assert not is_answered(process.listen, None), process.name
        assert not is_answered(process.listen, trusting), process.name
        if "storage" not in process.roles:  # its disks speak another protocol
            assert is_answered(process.listen, ours), process.name


def test_an_authority_comes_and_goes_without_a_restart(secured, space):
    """Connections are made anew when it goes; clients notice nothing."""
    ca, alone = secured.authority.ca, secured.authority.ca.read_bytes()
    certificate, key = secured.other.issue("visitor")
    visitor = ssl.create_default_context(cafile=str(ca))
    visitor.load_cert_chain(certificate, key)
    called = [one.listen for one in secured.local.settings().processes.values() if "storage" not in one.roles]
    topic = space.topic()
    subscription = space.subscription(topic)
    try:
        ca.write_bytes(alone + secured.other.ca.read_bytes())
        eventually(lambda: all(is_answered(one, visitor) for one in called), what="it is trusted everywhere")
    finally:
        ca.write_bytes(alone)
    eventually(lambda: not any(is_answered(one, visitor) for one in called), what="it is trusted nowhere")
    space.publish(topic, b"after")
    read(space, subscription, b"after")


def test_clients_call_a_proxy_by_tls(secured):
    address, project = secured.proxies[1], f"p{uuid.uuid4().hex[:10]}"
    common = ("--endpoint", address, "--project", project)
    secured.cli("topics", "create", "orders", *common, "--tls-ca", secured.authority.ca)
    assert "orders" in secured.cli("topics", "list", *common, "--tls-ca", secured.authority.ca)
    assert "UNAVAILABLE" in secured.cli("topics", "list", *common, "--timeout", "2", code=5)


def read(space, subscription, *expected):
    """Receive exactly these, and give them back."""
    got = space.pull(subscription, len(expected))
    assert sorted(bodies(got)) == sorted(expected)
    space.nack(subscription, *got)


def current(secured, topic):
    listed = secured.json("keys", "list", "--config", secured.local.settings_path)
    return next((one["current"], one["wrappedBy"]) for one in listed["topics"] if one["topic"] == topic)


@pytest.mark.timeout(300)
def test_keys_are_rotated_and_wrapped_anew_and_old_messages_stay_readable(secured, space):
    topic, subscription = space.pair()
    space.publish(topic, b"first")
    first, (old_id,) = current(secured, topic)
    reported = secured.keys("rotate", topic)
    second, _ = current(secured, topic)
    assert second > first
    secured.restart("proxy-1")  # another way than to wait for a minute
    assert REFRESH_S == 60
    space.publish(topic, b"second")
    read(space, subscription, b"first", b"second")

    file = secured.local.folder / "kek"
    file.write_text(f"{NEW.hex()}\n{OLD.hex()}\n")
    secured.keys("rewrap")
    _, (new_id,) = current(secured, topic)
    assert new_id != old_id
    file.write_text(NEW.hex())
    secured.restart("proxy-1")
    read(space, subscription, b"first", b"second")
    other, empty = space.topic("other"), space.topic("empty")
    kept = space.subscription(other, "kept")
    space.publish(other, b"under the new one")
    assert current(secured, other)[1] == [new_id]
    secured.keys("rotate", empty)
    for gone in (other, empty):
        space.api.delete_topic({"topic": gone})
    assert secured.keys("list").count("(deleted") == 2
    secured.keys("rewrap")
    reported += secured.keys("list")
    assert reported.count("(deleted") == 1, "of the other one messages are stored"
    read(space, kept, b"under the new one")
    read(space, subscription, b"first", b"second")
    for secret in (OLD, NEW):
        for form in (secret.hex(), base64.b64encode(secret).decode()):
            assert form not in reported
            assert not holds(secured.local.folder / "logs", form.encode())


def test_states_and_disks_are_whole_or_say_what_is_missing(secured, space):
    topic, subscription = space.pair()
    for number in range(20):
        space.publish(topic, b"%d" % number)
    space.ack(subscription, *space.pull(subscription, 5, most=5))
    common = ("--endpoint", secured.proxies[0])
    state = eventually(
        lambda: (
            (found := secured.json("subscriptions", "state", subscription, *common))["backlogMessages"] == "15"
            and float(found["oldestUnackedAge"].removesuffix("s")) > 0
            and found
        ),
        20,
        "the acknowledgements have arrived, and time goes on",
    )
    assert "unknown" not in state
    assert int(state["backlogBytes"]) > 0
    assert sum(int(one.get("ackedMessages", 0)) for one in state["sources"]) == 5
    stored = secured.json("topics", "state", topic, *common)
    assert sum(int(one["nextOffset"]) for one in stored["sources"]) == 20
    (disk,) = secured.json("disks", "list", *common)["disks"]
    assert (disk["state"], len(disk["chains"])) == ("OK", 2)
    assert int(disk["freeBytes"]) > 0
    assert all(int(one["position"]) > 0 for one in disk["chains"])

    chain = stored["sources"][0]["chain"]
    owner = next(one.owner for one in secured.chains() if one.number == chain)
    with secured.frozen([owner]):
        reported = secured.json("subscriptions", "state", subscription, *common)
        (why,) = [one for one in reported["unknown"] if "chain" in one]
        assert why.startswith(f"chain {chain}: {owner} does not report")
        (disk,) = secured.json("disks", "list", *common)["disks"]
        assert disk["state"] == "UNKNOWN"
        dark = next(one for one in disk["chains"] if one["chain"] == chain)
        assert "position" not in dark
    secured.stabilize()
    with secured.frozen(["storage-c1"]):
        listed = secured.json("disks", "list", *common)
        assert "freeBytes" not in listed["disks"][0]
        assert any(one.startswith("storage-c1 does not report") for one in listed["unknown"])
    secured.stabilize()
