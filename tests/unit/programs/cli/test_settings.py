"""Where a setting comes from, and the small commands that show or keep one."""

import click
import pytest
from click.shell_completion import ShellComplete

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.main import COMMANDS, cli
from syncpoint.programs.cli.settings import Settings
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.wire.protobuf.messages import accounts, admin, pipeline, pubsub


@pytest.fixture(autouse=True)
def _lists(server):
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse()


def asked(server):
    return server.request("Publisher.ListTopics").project, server.settings.endpoint


def test_option_beats_environment_beats_configuration(server, run, monkeypatch):
    run("config", "set", "project", "kept")
    run("config", "set", "endpoint", "kept:1")
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    run("topics", "list")
    assert asked(server) == ("projects/kept", "kept:1")

    server.calls.clear()
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "environment")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "environment:2")
    run("topics", "list")
    assert asked(server) == ("projects/environment", "environment:2")

    server.calls.clear()
    monkeypatch.setenv("SYNCPOINT_ADDRESSES", "first:2, second:2")
    run("topics", "list")
    assert asked(server)[1] == "first:2, second:2"
    assert server.settings.addresses == ["first:2", "second:2"]

    server.calls.clear()
    run("topics", "list", "--project", "option", "--endpoint", "option:3")
    assert asked(server) == ("projects/option", "option:3")


def test_common_options_may_stand_first_and_the_nearer_one_wins(server, run):
    run("--project", "far", "--endpoint", "far:1", "topics", "list", "--project", "near")
    assert asked(server) == ("projects/near", "far:1")


def test_without_a_project_it_says_how_to_set_one(run, monkeypatch):
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    result = run("topics", "list")
    assert result.exit_code == 2
    assert "PUBSUB_PROJECT_ID" in result.stderr
    assert "config set project" in result.stderr


def test_an_address_that_is_none():
    for given in ("127.0.0.1:99999", "127.0.0.1:1,", "127.0.0.1:1,b:x"):
        with pytest.raises(Problem, match="not an address"):
            Settings(endpoint_option=given).client()


def test_a_file_without_certificates():
    with pytest.raises(Problem, match="--tls-ca"):
        Settings(tls_ca=__file__).client()


def test_a_client_certificate_goes_with_the_connection(tmp_path):
    authority = Authority(tmp_path)
    cert, key = map(str, authority.issue("me"))
    Settings(tls_ca=str(authority.ca), tls_cert=cert, tls_key=key).client().close()
    other = str(authority.issue("other")[1])
    with pytest.raises(Problem, match="--tls-cert"):
        Settings(tls_ca=str(authority.ca), tls_cert=cert, tls_key=other).client()
    with pytest.raises(click.UsageError, match="--tls-key needs"):
        Settings(tls_ca=str(authority.ca), tls_key=key).client()


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--timeout", "-1"], ["--tls-ca", "/nowhere"]])
def test_options_that_cannot_be(server, run, words):
    assert run("topics", "list", *words).exit_code == 2
    assert server.calls == []


@pytest.mark.parametrize(
    ("word", "hint"), [("topic", "'topics'"), ("pubsub", "Leave `pubsub` out"), ("start", "'serve'"), ("xyz", "xyz")]
)
def test_a_command_that_is_none(run, word, hint):
    result = run(word, "list")
    assert result.exit_code == 2
    assert hint in result.stderr


def test_env_init_is_for_the_shell(run):
    result = run("env-init", "--endpoint", "host:9")
    assert result.stdout == "export PUBSUB_EMULATOR_HOST=host:9\nexport PUBSUB_PROJECT_ID=p\n"
    several = run("env-init", "--endpoint", "a:1,b:2").stdout.splitlines()
    assert several[:2] == ["export PUBSUB_EMULATOR_HOST=a:1", "export SYNCPOINT_ADDRESSES=a:1,b:2"]


def test_config_round_trip(run, run_json, tmp_path):
    assert run("config", "get", "project").exit_code == 3
    assert run("config", "set", "project", 'quo"te').exit_code == 0
    assert run("config", "get", "project").stdout == 'quo"te\n'
    assert run_json("config", "list") == {"project": 'quo"te'}
    assert run("config", "unset", "project").exit_code == 0
    assert run_json("config", "list") == {}
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_broken_configuration_is_named(run, tmp_path, monkeypatch):
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    (tmp_path / "config.toml").write_text("project = ")
    result = run("topics", "list")
    assert result.exit_code == 1
    assert str(tmp_path / "config.toml") in result.stderr


def test_every_command_has_help(run):
    seen = 0
    pending = [[]]
    while pending:
        words = pending.pop()
        result = run(*words, "--help")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Usage: syncpoint")
        seen += 1
        _, _, commands = result.stdout.partition("\nCommands:\n")
        if not words:
            pending += [[name] for name in COMMANDS]
        elif commands and len(words) < 2:
            for line in commands.split("\n\n")[0].splitlines():
                if line.startswith("  ") and line[2] != " ":
                    pending.append([*words, line.split()[0]])
    assert seen > 35


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run, shell):
    assert "_SYNCPOINT_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["topics", "describe"], "or", ["orders", "orders-2"]),
        (["topics", "describe"], "projects/p/topics/or", ["projects/p/topics/orders", "projects/p/topics/orders-2"]),
        (["topics", "delete", "orders"], "", ["orders", "orders-2", "failed"]),
        (["topics", "create"], "or", []),
        (["subscriptions", "create", "--topic"], "f", ["failed"]),
        (["subscriptions", "pull"], "b", ["billing"]),
    ],
)
def test_names_are_completed(server, words, incomplete, offered, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCPOINT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    topics = [pubsub.Topic(name=f"projects/p/topics/{name}") for name in ("orders", "orders-2", "failed")]
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse(topics=topics)
    found = [pubsub.Subscription(name="projects/p/subscriptions/billing")]
    server.answers["Subscriber.ListSubscriptions"] = pubsub.ListSubscriptionsResponse(subscriptions=found)
    shell = ShellComplete(cli, {"obj": Settings(connect=lambda settings: server)}, "syncpoint", "_SYNCPOINT_COMPLETE")
    assert [one.value for one in shell.get_completions(words, incomplete)] == offered


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["queues", "describe"], "", ["jobs"]),
        (["rules", "update", "--subscription", "billing"], "la", ["large"]),
        (["rules", "delete", "--subscription", "billing", "large"], "", ["small"]),
        (["cursors", "delete", "--topic", "orders"], "", ["spark"]),
        (["tenants", "describe"], "s", ["shop"]),
        (["constraints", "delete"], "", ["keep-eu"]),
        (["drain"], "st", ["storage-c1"]),
        (["topics", "create", "orders", "--durability-class"], "", ["telemetry"]),
        (["alerts", "ack"], "", ["a-1"]),
        (["alerts", "silence"], "", ["DiskDead"]),
        (["alerts", "unsilence"], "", ["s-1"]),
        (["iam", "accounts", "keys", "list"], "", ["shop@p.iam.gserviceaccount.com"]),
        (["iam", "roles"], "roles/pubsub.pub", ["roles/pubsub.publisher"]),
        (["iam", "test", "project"], "pubsub.topics.pu", ["pubsub.topics.publish"]),
        (["iam", "policy", "get"], "to", ["topics/"]),
        (["iam", "policy", "get"], "topics/or", ["topics/orders"]),
    ],
)
def test_what_else_a_server_lists_is_completed(server, words, incomplete, offered, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCPOINT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    topic = pubsub.Topic(name="projects/p/topics/orders")
    mail = "shop@p.iam.gserviceaccount.com"
    server.answers |= {
        "Publisher.ListTopics": pubsub.ListTopicsResponse(topics=[topic]),
        "Admin.ListQueues": admin.ListQueuesResponse(queues=[admin.Queue(topic={"name": "projects/p/topics/jobs"})]),
        "Admin.ListRules": admin.ListRulesResponse(rules=[admin.Rule(name=name) for name in ("large", "small")]),
        "LogReader.ListCursors": pipeline.ListCursorsResponse(cursors=[pipeline.Cursor(name="spark")]),
        "Admin.ListTenants": admin.ListTenantsResponse(tenants=[admin.Tenant(name="shop")]),
        "Admin.ListConstraints": admin.ListConstraintsResponse(constraints=[admin.Constraint(name="keep-eu")]),
        "Admin.ListMembers": admin.ListMembersResponse(members=[admin.Member(name="storage-c1")]),
        "Admin.ListDurabilityClasses": admin.ListDurabilityClassesResponse(
            durability_classes=[admin.DurabilityClass(name="telemetry")]
        ),
        "Admin.ListAlerts": admin.ListAlertsResponse(alerts=[admin.Alert(alert="a-1", rule="DiskDead")]),
        "Admin.ListSilences": admin.ListSilencesResponse(silences=[admin.Silence(silence="s-1")]),
        "ServiceAccounts.ListServiceAccounts": accounts.ListServiceAccountsResponse(
            accounts=[accounts.ServiceAccount(email=mail)]
        ),
    }
    shell = ShellComplete(cli, {"obj": Settings(connect=lambda settings: server)}, "syncpoint", "_SYNCPOINT_COMPLETE")
    assert [one.value for one in shell.get_completions(words, incomplete)] == offered
    server.answers.clear()  # a server that lists nothing: nothing is offered, nothing is printed
    if not words[-1].startswith("project") and words != ["iam", "roles"] and not offered[0].endswith("/"):
        assert shell.get_completions(words, incomplete) == []


def test_nothing_is_offered_where_no_server_answers(server, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCPOINT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    server.answers["Publisher.ListTopics"] = Unavailable("no server")
    shell = ShellComplete(cli, {"obj": Settings(connect=lambda settings: server)}, "syncpoint", "_SYNCPOINT_COMPLETE")
    assert shell.get_completions(["topics", "describe"], "") == []


CLUSTER = """
cluster: dev
metadata: {etcd: ["127.0.0.1:2379"]}
processes:
  storage-c1: {roles: [storage], listen: "127.0.0.1:7000", disks: {d1: d1}}
  proxy-1: {roles: [proxy], listen: "127.0.0.1:7001", public: "127.0.0.1:8085"}
  proxy-2: {roles: [proxy], listen: "127.0.0.1:7002", public: "127.0.0.1:8086"}
"""


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["kill", "--dir", "FOLDER"], "", ["etcd-1", "storage-c1", "proxy-1", "proxy-2"]),
        (["pause", "--dir", "FOLDER"], "pr", ["proxy-1", "proxy-2"]),
        (["resume", "--dir", "FOLDER"], "storage-c1x", []),
        (["stop", "--dir", "FOLDER"], "st", ["storage-c1"]),
        (["start", "--dir", "FOLDER"], "e", ["etcd-1"]),
        (["restart", "--dir", "FOLDER", "proxy-1"], "p", ["proxy-2"]),
        (["restart", "--config", "FOLDER/cluster.yaml"], "", ["storage-c1", "proxy-1", "proxy-2"]),
        (["kill", "--dir", "FOLDER/nowhere"], "", []),
    ],
)
def test_names_of_processes_are_completed_from_the_clusters_file(words, incomplete, offered, tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    line = ["cluster", *(word.replace("FOLDER", str(tmp_path)) for word in words)]
    shell = ShellComplete(cli, {"obj": Settings()}, "syncpoint", "_SYNCPOINT_COMPLETE")
    assert [one.value for one in shell.get_completions(line, incomplete)] == offered


def test_a_file_that_is_no_clusters_offers_nothing(tmp_path):
    (tmp_path / "cluster.yaml").write_text("processes: [")
    shell = ShellComplete(cli, {"obj": Settings()}, "syncpoint", "_SYNCPOINT_COMPLETE")
    assert shell.get_completions(["cluster", "kill", "--dir", str(tmp_path)], "") == []
