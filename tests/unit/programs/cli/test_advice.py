"""The second line of an error: it follows the command, and every command it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

import syncpoint
from syncpoint.base.model.errors import (
    AlreadyExists,
    Code,
    NotFound,
    PermissionDenied,
    SyncpointError,
    Unavailable,
    Unimplemented,
)
from syncpoint.programs.cli.advice import CheckFailed, advice
from syncpoint.programs.cli.main import COMMANDS, HABITS, cli
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.protobuf.status import error_info

pytestmark = pytest.mark.shows("cli")

Run = Callable[..., Result]
SOURCES = Path(syncpoint.__file__).parent
ROOT = SOURCES.parent.parent
MESSAGES = (
    "something",
    "Resource not found (resource=projects/p/topics/orders).",
    "Resource already exists in the project (resource=projects/other/subscriptions/billing).",
    "Resource already exists in the project (resource=projects/p/schemas/order).",
    "Invalid [topics] name: (name=projects/p/topics/x)",
    "Invalid data in message: Message failed schema validation.",
    "Schema associated with topic deleted.",
    "messages[0]: Message transform failed: message_transforms[0]: SyntaxError",
    "No address is configured for projects/p/locations/l/endpoints/e. The operator can add one.",
    "Invalid push endpoint given (endpoint=http://x): it must begin with https://.",
    "This method is not supported for this subscription type.",
    "The topic is suspended for sending (resource=projects/p/topics/orders). Resume it, then publish again.",
    "projects/p/topics/jobs is a queue and has exactly one subscription.",
    "projects/p/topics/jobs is a queue: its topic and its subscription cannot be deleted separately. Delete the"
    " queue instead.",
    "Queue not found: projects/p/topics/jobs does not exist or is not a queue.",
    "projects/p/subscriptions/billing has no dead-letter policy, so nothing that expires can be dead-lettered.",
    "Resource not found (resource=projects/p/subscriptions/billing/rules/eu).",
    "Resource already exists in the project (resource=projects/p/subscriptions/billing/rules/$Default).",
    "rule.sql: 'a = ' ends too early",
    "Method /syncpoint.admin.v1.Admin/Drain is not implemented.",
    "Method /syncpoint.pipeline.v1.LogReader/ListCursors is not implemented.",
    "Subscription.push_config.push_endpoint is not implemented.",
    "No connection to h:1: refused.",
    "The connection was lost.",
    "the log cannot be written: EIO",
    "No subscribe forwarder answered in time. Try again.",
)
_QUOTED = re.compile(r"`syncpoint ([^`]*)`")


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that can be called."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name)


def wrong_with(line: str) -> str:
    """What no such command line has: the first word or option that does not exist; empty when all do."""
    command: click.Command = cli
    for word in line.split():
        if isinstance(command, click.Group) and not word.startswith("-"):
            if not re.fullmatch(r"[a-z][a-z-]*", word):
                return ""  # a placeholder, or a list of commands
            found = command.get_command(click.Context(command), word)
            if found is None:
                return word
            command = found
        elif re.match(r"--[a-z]", word):
            params = command.get_params(click.Context(command))
            known = {option for one in params for option in (*one.opts, *one.secondary_opts)}
            if word.partition("=")[0].rstrip(".,;:)") not in known:
                return word
    return ""


def test_every_command_that_any_advice_names_exists() -> None:
    named = 0
    for command in leaves(cli):
        for code in Code:
            for message in MESSAGES:
                for called in (False, True):
                    said = advice(CheckFailed(code, message, command, called, "h:1", "p"))
                    for line in _QUOTED.findall(said):
                        named += 1
                        assert not wrong_with(line), f"{command} {code.name}: {said}"
    assert named > 500


def test_every_command_that_the_program_or_its_pages_name_exists() -> None:
    """What a server prints once it is ready begins with the program's name, too."""
    wrong, named = [], 0
    for path in sorted([*SOURCES.rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]):
        texts = _literals(path) if path.suffix == ".py" else [path.read_text()]
        for text in texts:
            for line in _QUOTED.findall(text):
                named += 1
                if line.startswith("ready on "):
                    continue
                if bad := wrong_with(" ".join(line.split())):
                    wrong.append(f"{path.relative_to(ROOT)}: `syncpoint {line}`: {bad}")
    assert named > 100
    assert not wrong, "\n".join(wrong)


def _literals(path: Path) -> Iterator[str]:
    """String literals; what is put into them is a placeholder."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
            yield "".join(map(str, parts))


def test_habits_lead_somewhere() -> None:
    for hint in HABITS.values():
        for name in re.findall(r"Did you mean '(\w+)'", hint):
            assert name in COMMANDS


@pytest.mark.parametrize(
    ("words", "method", "error", "reported", "not_reported"),
    [
        (["drain", "nobody"], "Admin.Drain", NotFound("nobody"), "cluster status", "drain list"),
        (["undrain", "nobody"], "Admin.Undrain", NotFound("nobody"), "`syncpoint drain`", "undrain list"),
        (
            ["constraints", "create", "one", "--forwarders", "rack=r"],
            "Admin.CreateConstraint",
            AlreadyExists("one"),
            "constraints delete",
            "describe",
        ),
        (["drain", "x"], "Admin.Drain", Unimplemented("/syncpoint.admin.v1.Admin/Drain"), "Only clusters", "else"),
        (
            ["constraints", "list"],
            "Admin.ListConstraints",
            Unimplemented("/syncpoint.admin.v1.Admin/ListConstraints"),
            "Only clusters",
            "syncpoint docs api",
        ),
        (
            ["topics", "create", "orders"],
            "Publisher.CreateTopic",
            Unimplemented("Topic.schema_settings"),
            "syncpoint docs api",
            "else",
        ),
        (
            ["topics", "list"],
            "Publisher.ListTopics",
            SyncpointError(Code.UNIMPLEMENTED, "Method not found!"),
            "Another program may be listening",
            "syncpoint docs api",
        ),
    ],
)
def test_the_advice_follows_the_command(
    run: Run, server: Any, words: list[str], method: str, error: SyncpointError, reported: str, not_reported: str
) -> None:
    server.answers[method] = error
    found = run(*words)
    assert found.exit_code != 0
    first, _, second = found.output.partition("\n")
    assert error.message in first
    assert reported in second
    assert not_reported not in second


@pytest.mark.parametrize(
    ("code", "message", "reported"),
    [
        (
            Code.INVALID_ARGUMENT,
            "Invalid data in message: Message failed schema validation.",
            "schemas validate-message",
        ),
        (Code.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric 'topics' for consumer", "syncpoint docs security"),
        (Code.NOT_FOUND, "Schema associated with topic deleted.", "--clear-schema-settings"),
        (Code.INVALID_ARGUMENT, "messages[3]: Message transform failed: SyntaxError", "topics describe"),
        (Code.INVALID_ARGUMENT, "message_transforms[0].compression.compression_mode: must be", "syncpoint docs api"),
        (Code.INVALID_ARGUMENT, "Invalid label key: 'Bad'.", "lowercase"),
        (Code.INVALID_ARGUMENT, "Invalid value of label 'a': 'B'.", "lowercase"),
        (Code.INVALID_ARGUMENT, "The value for ttl is too small. You passed 3600s", "--message-retention-duration"),
        (
            Code.INVALID_ARGUMENT,
            "The value for ttl is too small. You passed 0.5s, but the minimum value is 1s.",
            "3650d",
        ),
        (Code.FAILED_PRECONDITION, "The topic is suspended for sending (resource=projects/p/topics/o).", "--resume"),
        (
            Code.FAILED_PRECONDITION,
            "projects/p/topics/jobs is a queue and has exactly one subscription.",
            "pull jobs",
        ),
        (
            Code.FAILED_PRECONDITION,
            "projects/p/topics/jobs is a queue: its topic and its subscription",
            "queues delete",
        ),
        (Code.NOT_FOUND, "Queue not found: projects/p/topics/jobs does not exist or is not a queue.", "queues list"),
        (Code.FAILED_PRECONDITION, "projects/p/subscriptions/s has no dead-letter policy: x", "--dead-letter-topic"),
        (Code.NOT_FOUND, "Resource not found (resource=projects/p/subscriptions/s/rules/r).", "rules list"),
        (Code.INVALID_ARGUMENT, "rule.sql: 'a = ' ends too early", "rules test"),
        (Code.INVALID_ARGUMENT, "filter: expected a string in double quotes at character 16", "language of filters"),
        (Code.FAILED_PRECONDITION, "No address is configured for e. The operator can add one.", "--model"),
        (Code.INVALID_ARGUMENT, "Invalid push endpoint given (endpoint=http://x): it must", "--push-network"),
        (
            Code.FAILED_PRECONDITION,
            "This method is not supported for this subscription type.",
            "modify-push-config",
        ),
        (
            Code.ALREADY_EXISTS,
            "Resource already exists in the project (resource=projects/p/schemas/order).",
            "schemas commit order",
        ),
        (Code.NOT_FOUND, "Resource not found (resource=projects/p/schemas/order).", "schemas list"),
        (Code.NOT_FOUND, "Resource not found (resource=etl@p.example).", "iam accounts list"),
        (Code.ALREADY_EXISTS, "Resource already exists in the project (resource=etl@p.example).", "accounts list"),
        (Code.INVALID_ARGUMENT, "f must contain a token or a service account key in JSON", "accounts keys create"),
    ],
)
def test_the_advice_follows_what_was_refused(run: Run, server: Any, code: Code, message: str, reported: str) -> None:
    server.answers["Publisher.Publish"] = SyncpointError(code, message)
    found = run("topics", "publish", "orders", "--message", "x").output.partition("\n")[2]
    assert reported in found
    assert "--help" not in found


def test_a_refusal_says_what_is_missing(run: Run, server: Any) -> None:
    facts = {"permission": "pubsub.topics.publish", "resource": "projects/p/topics/orders"}
    details = [error_info("IAM_PERMISSION_DENIED", facts, "iam.googleapis.com")]
    server.answers["Publisher.Publish"] = PermissionDenied("User not authorized to perform this action.", details)
    found = run("topics", "publish", "orders", "--message", "x").output
    assert "pubsub.topics.publish on projects/p/topics/orders" in found
    server.answers["Publisher.Publish"] = PermissionDenied("User not authorized to perform this action.")
    assert "iam roles" in run("topics", "publish", "orders", "--message", "x").output


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        ("the log cannot be written: UNAVAILABLE: 2 of 3 disks failed", "disks list"),
        ("the outcome is unknown: 2 of 3 disks failed; retry, which may store the message twice", "disks list"),
        ("No subscribe forwarder answered in time. Try again.", "cluster status"),
        ("Chain 3 is not open here.", "cluster status"),
        ("The connection was closed: shutdown.", "--tls-ca"),
        ("The connection was closed: frame of 3940676 bytes.", "does not speak gRPC"),
        ("server (h:1) does not answer: The connection was closed: x.", "--tls-ca"),
        ("The server is stopping.", "try again"),
    ],
)
def test_a_server_that_answered_is_not_looked_for(run: Run, server: Any, message: str, reported: str) -> None:
    server.answers["Publisher.Publish"] = Unavailable(message)
    found = run("topics", "publish", "orders", "--message", "x")
    assert found.exit_code == 5
    assert "Is a server running" not in found.output
    assert reported in found.output.partition("\n")[2]


def test_a_server_that_was_not_reached_is_looked_for(run: Run, server: Any) -> None:
    server.answers["Publisher.Publish"] = Unavailable("No connection to h:1: Connection refused.")
    found = run("topics", "publish", "orders", "--message", "x")
    assert "Is a server running" in found.output


def test_what_comes_from_files_and_processes_gets_no_advice_of_a_server(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")  # no etcd
    lines = [
        run("cluster", "up", "--dir", str(tmp_path / "c")),
        run("cluster", "status", "--dir", str(tmp_path / "nope")),
        run("cluster", "kill", "--dir", str(tmp_path / "nope"), "publish-forwarder-9"),
    ]
    assert not (tmp_path / "c").exists()
    for found in lines:
        assert found.exit_code in (1, 3)
        assert "topics" not in found.output
        assert "Is a server running" not in found.output
    assert "`make etcd`" in lines[0].output


def test_a_mistake_in_cluster_yaml_is_reported_with_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text('metadata: {etcd: ["h:1"]}\nreplication:\n  clusters: 3\n  placment: any\n')
    for words in (["run", "--name", "x", "--config", str(file)], ["cluster", "status", "--config", str(file)]):
        found = run(*words)
        assert found.exit_code == 1
        assert f"{file}, line 4: " in found.output
        assert "did you mean placement?" in found.output
        assert "syncpoint docs operations" in found.output


def test_a_process_that_is_not_in_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text('metadata: {etcd: ["h:1"]}\nprocesses:\n  w: {roles: [router], listen: "h:1", region: eu}\n')
    found = run("run", "--config", str(file), "--name", "nobody")
    assert found.exit_code == 2
    assert "there are w" in found.output
    found = run("run", "router", "--config", str(file), "--name", "nobody")
    assert found.exit_code == 2
    assert "--region (eu)" in found.output


def test_cluster_up_where_nothing_can_be_made(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from syncpoint.programs.clusters.local import LocalCluster

    monkeypatch.setattr(LocalCluster, "etcd_program", lambda made: "etcd")
    (tmp_path / "file").write_text("")
    found = run("cluster", "up", "--dir", str(tmp_path / "file" / "c"))
    assert found.exit_code == 1
    assert "file/c: Not a directory" in found.output
    assert isinstance(found.exception, SystemExit)


def test_without_the_extra_it_says_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text("version: 1\n")
    missing = ModuleNotFoundError("No module named 'jsonschema'", name="jsonschema")
    monkeypatch.setattr("syncpoint.programs.cli.federation_plan.load_file", _raise(missing))
    found = run("federation", "plan", str(file))
    assert found.exit_code == 1
    assert "jsonschema is not installed" in found.output
    assert '[spark]"' in found.output


def test_a_process_that_runs_or_does_not(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from syncpoint.programs.clusters.local import LocalCluster, Shape

    LocalCluster(tmp_path / "c").create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
    found = run("cluster", "kill", "--dir", str(tmp_path / "c"), "router-1")
    assert found.exit_code == 1
    assert f"cluster start --dir {tmp_path / 'c'} router-1" in found.output
    monkeypatch.setattr(LocalCluster, "kill", lambda made, name: None)
    for verb in ("pause", "stop"):
        monkeypatch.setattr(LocalCluster, verb, lambda made, name: None)
    for verb, after in (("kill", "start"), ("stop", "start"), ("pause", "resume")):
        found = run("cluster", verb, "--dir", str(tmp_path / "c"), "router-1")
        assert f"`syncpoint cluster {after} --dir {tmp_path / 'c'} router-1`" in found.output


def _raise(error: Exception) -> Callable[..., None]:
    def act(*_: object, **__: object) -> None:
        raise error

    return act


def test_a_name_that_is_almost_right_is_answered_with_the_one_that_exists(server, run):
    server.answers["Publisher.GetTopic"] = NotFound("projects/p/topics/ordres")
    server.answers["Publisher.ListTopics"] = pubsub.ListTopicsResponse(
        topics=[pubsub.Topic(name=f"projects/p/topics/{name}") for name in ("invoices", "orders")]
    )
    result = run("topics", "describe", "ordres")
    assert result.exit_code == 3
    assert "  Did you mean 'orders'? Check the name and the project (p);" in result.stderr
    asked = server.request("Publisher.ListTopics")
    assert asked.project == "projects/p"


def test_the_project_of_the_name_is_searched_and_not_the_one_in_force(server, run):
    server.answers["Subscriber.GetSubscription"] = NotFound("projects/shop/subscriptions/biling")
    server.answers["Subscriber.ListSubscriptions"] = pubsub.ListSubscriptionsResponse(
        subscriptions=[pubsub.Subscription(name="projects/shop/subscriptions/billing")]
    )
    result = run("subscriptions", "describe", "projects/shop/subscriptions/biling")
    assert "Did you mean 'billing'?" in result.stderr
    assert server.request("Subscriber.ListSubscriptions").project == "projects/shop"


@pytest.mark.parametrize("listed", [Unavailable("no"), pubsub.ListTopicsResponse()])
def test_nothing_is_meant_where_nothing_is_alike_or_nobody_may_look(server, run, listed):
    server.answers["Publisher.GetTopic"] = NotFound("projects/p/topics/ordres")
    server.answers["Publisher.ListTopics"] = listed
    result = run("topics", "describe", "ordres")
    assert result.exit_code == 3
    assert "Did you mean" not in result.stderr
    assert "`syncpoint topics list` shows what there is" in result.stderr
