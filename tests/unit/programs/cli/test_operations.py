"""The operator's commands: server, disks, limits, and the options of serve."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from syncpoint.wire.protobuf.messages import admin


def test_disks_list_fails_when_one_has_failed(server, run):
    good = admin.Disk(path="/a", state="OK", position=12_345, free_bytes=2**30)
    also = admin.Disk(path="/c", state="OK")
    bad = admin.Disk(path="/b", state="FAILED", reason="input/output error")
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[good])
    result = run("disks", "list")
    assert result.exit_code == 0
    assert "12,345" in result.stdout
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[good, bad, also])
    result = run("disks", "list")
    assert result.exit_code == 1
    assert "input/output error" in result.stdout
    assert "/b" in result.stderr
    assert "Publishing continues" in result.stderr


@pytest.mark.parametrize(("good", "bad"), [(0, 1), (1, 1), (1, 2), (2, 3)])
def test_disks_list_does_not_promise_publishing_without_a_majority(server, run, good, bad):
    disks = [admin.Disk(path=f"/{at}", state="OK") for at in range(good)]
    disks += [admin.Disk(path=f"/bad-{at}", state="FAILED", reason="EIO") for at in range(bad)]
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=disks)
    result = run("disks", "list")
    assert result.exit_code == 1
    assert "Publishing continues" not in result.stderr
    assert "Publishing is refused" in result.stderr


def test_disks_list_judges_no_majority_of_the_disks_of_a_cluster(server, run):
    chains = [{"chain": 1, "state": "FAILED"}]
    disks = [admin.Disk(path=f"s1/d{at}", state="FAILED", chains=chains) for at in range(3)]
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=disks)
    result = run("disks", "list")
    assert result.exit_code == 1
    assert "Publishing" not in result.stderr
    assert "cluster status" in result.stderr


def test_disks_list_judges_the_disks_of_workers_as_those_of_one_server(server, run):
    chains = [{"chain": number, "state": "OK"} for number in (1, 2)]
    states = ("FAILED", "FAILED", "OK")
    disks = [admin.Disk(path=f"/d{at}", state=state, chains=chains) for at, state in enumerate(states)]
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=disks)
    result = run("disks", "list")
    assert "2 of 3 disks failed" in result.stderr
    assert "cluster status" not in result.stderr


def test_disks_list_fails_when_one_is_damaged(server, run):
    good = admin.Disk(path="/a", state="OK")
    bad = admin.Disk(path="/b", state="DAMAGED", reason="in good order on no disk: segment 1/2: frame at 64", damaged=3)
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[good, bad])
    result = run("disks", "list", "--wide")
    assert result.exit_code == 1
    assert "damaged" in result.stdout
    (row,) = (line.split() for line in result.stdout.splitlines() if line.startswith("/b"))
    assert row[1:5] == ["damaged", "0", "0", "3"]
    assert "damaged: /b (in good order on no disk: segment 1/2: frame at 64)" in result.stderr
    assert "syncpoint log verify" in result.stderr


def test_disks_of_a_cluster_say_what_is_not_known(server, run):
    chains = [
        {"chain": 1, "state": "OK", "position": 1234, "under_replicated": 0, "incarnation": "0123456789abcdef"},
        {"chain": 2, "state": "UNKNOWN", "reason": "no process has it open"},
    ]
    known = admin.Disk(
        path="s1/d1", state="UNKNOWN", chains=chains, free_bytes=0, reason="chain 2: no process has it open"
    )
    dark = admin.Disk(path="s2/d1", state="UNKNOWN", reason="the process that serves it does not report")
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[known, dark], unknown=["s2 does not report (x)"])
    result = run("disks", "list")
    assert result.exit_code == 0
    first, second = (line for line in result.stdout.splitlines() if line.startswith("s"))
    assert "chain 1: 1,234, chain 2: unknown" in first
    assert "chain 1: 01234567, chain 2: unknown" in first
    assert "0.0 GiB" in first
    assert second.split()[:6] == ["s2/d1", "unknown", "0", "0", "0", "unknown"]
    assert "unknown: s2 does not report (x)" in result.stderr


def test_limits_set_changes_what_is_named(server, run):
    current = admin.Limits(system=admin.FlowLimit(messages=10, bytes=20))
    server.answers["Admin.GetLimits"] = lambda request: current
    server.answers["Admin.UpdateLimits"] = lambda request: request.limits
    result = run("limits", "set", "system", "--bytes", "99")
    assert result.exit_code == 0, result.output
    request = server.request("Admin.UpdateLimits")
    assert (request.limits.system.messages, request.limits.system.bytes) == (10, 99)
    assert list(request.update_mask.paths) == ["system"]


def test_limits_of_one_topic(server, run):
    name = "projects/p/topics/orders"
    current = admin.Limits(topic=admin.FlowLimit(messages=9, bytes=77))
    current.topics["projects/p/topics/other"].messages = 1
    server.answers["Admin.GetLimits"] = lambda request: current
    server.answers["Admin.UpdateLimits"] = lambda request: request.limits
    run("limits", "set", "topic", "--topic", "orders", "--messages", "5")
    request = server.request("Admin.UpdateLimits")
    assert list(request.update_mask.paths) == ["topics"]
    assert request.limits.topics[name].messages == 5
    assert request.limits.topics["projects/p/topics/other"].messages == 1

    assert request.limits.topics[name].bytes == 77, "what was not named stays"

    current.topics[name].messages = 5
    server.calls.clear()
    run("limits", "reset", "topic", "--topic", "orders")
    assert name not in server.request("Admin.UpdateLimits").limits.topics


def test_limits_of_every_topic_are_asked_for_by_name_and_can_be_taken_back(server, run):
    current = admin.Limits(topic=admin.FlowLimit(messages=500_000, bytes=77))
    server.answers["Admin.GetLimits"] = lambda request: current
    server.answers["Admin.UpdateLimits"] = lambda request: request.limits
    found = run("limits", "set", "topic", "--messages", "5")
    assert found.exit_code == 2
    assert "--default" in found.output
    assert server.calls == []
    found = run("limits", "set", "topic", "--default", "--messages", "5")
    assert found.exit_code == 0, found.output
    assert "messages 5, bytes 77; it was messages 500,000, bytes 77" in found.output
    current.topic.messages = 5
    server.calls.clear()
    assert run("limits", "reset", "topic", "--default").exit_code == 0
    request = server.request("Admin.UpdateLimits")
    assert (request.limits.topic.messages, request.limits.topic.bytes) == (500_000, 128 << 20)
    assert list(request.update_mask.paths) == ["topic"]


@pytest.mark.parametrize(
    "words",
    [
        ["set", "system"],
        ["set", "system", "--topic", "x", "--messages", "1"],
        ["set", "topic", "--subscription", "x", "--messages", "1"],
        ["set", "topic", "--topic", "x", "--default", "--messages", "1"],
        ["set", "subscriber", "--messages", "1"],
        ["reset", "topic"],
        ["reset", "subscriber", "--topic", "x"],
    ],
)
def test_limits_that_make_no_sense(server, run, words):
    assert run("limits", *words).exit_code == 2
    assert server.calls == []


@pytest.fixture
def served(monkeypatch):
    """What `serve` would have run: a node that only notes its settings."""
    reported = []
    node = ModuleType("syncpoint.node.serve")
    node.PORT_TAKEN = 2
    node.run = lambda settings, announce: reported.append(settings)
    monkeypatch.setitem(sys.modules, "syncpoint.node.serve", node)
    return reported


def test_serve_hands_over_its_options(run, served, tmp_path):
    disks = [str(tmp_path / name) for name in "abc"]
    words = [word for disk in disks for word in ("--disk", disk)]
    result = run("serve", "--port", "0", "--data", str(tmp_path), "--durability", "async", *words)
    assert result.exit_code == 0, result.output
    (settings,) = served
    assert (settings.host, settings.port, settings.durability) == ("127.0.0.1", 0, "async")
    assert settings.data == tmp_path
    assert settings.disks == tuple(Path(disk) for disk in disks)


def test_serve_takes_its_data_folder_from_the_environment(run, served, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCPOINT_DATA", str(tmp_path / "here"))
    run("serve")
    assert served[0].data == tmp_path / "here"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--disk", "a", "--disk", "b"], "odd number"),
        (["--disk", "a", "--disk", "b", "--disk", "./a"], "different folder"),
        (["--tls-cert", __file__], "must be given together"),
    ],
)
def test_serve_refuses(run, served, words, problem):
    result = run("serve", *words)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert served == []


def test_serve_says_that_its_port_is_taken(run, served, monkeypatch):
    monkeypatch.setattr(sys.modules["syncpoint.node.serve"], "run", lambda settings, announce: 2)
    result = run("serve", "--port", "9000")
    assert result.exit_code == 1
    assert "another --port" in result.stderr
    assert "syncpoint doctor --port 9000" in result.stderr


def test_serve_does_not_blame_the_port_for_a_folder(run, served, monkeypatch):
    monkeypatch.setattr(sys.modules["syncpoint.node.serve"], "run", lambda settings, announce: 1)
    result = run("serve", "--port", "9000")
    assert result.exit_code == 1
    assert "port" not in result.stderr.partition("error:")[2]
    assert "Serving" not in result.stderr


def test_serve_reports_how_to_point_clients_to_it_once_it_is_there(run, served, monkeypatch, tmp_path):
    def serve(settings, announce):
        announce("127.0.0.1:4711")
        return 0

    monkeypatch.setattr(sys.modules["syncpoint.node.serve"], "run", serve)
    result = run("serve", "--port", "0", "--data", str(tmp_path))
    assert "env-init --project demo --endpoint 127.0.0.1:4711" in result.stderr


def test_serve_refuses_what_is_no_certificate(run, served):
    result = run("serve", "--tls-cert", __file__, "--tls-key", __file__)
    assert result.exit_code == 1
    assert "PEM" in result.stderr
    assert served == []
