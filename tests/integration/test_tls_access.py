"""The command line at a server that asks who calls: the first owner, accounts, grants, and both taken back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("access")

APP = "billing@demo.iam.syncpoint.internal"
MEMBER = f"serviceAccount:{APP}"


class Desk:
    """Where the operator sits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.endpoint = folder, ""
        self.authority = Authority(folder / "ca")
        made = self.run(
            "iam", "init", str(folder / "auth.yaml"), "--owner", "admin@demo.example", "--key-file", self.of("admin")
        )
        assert made.exit_code == 0, made.output
        with (folder / "auth.yaml").open("a") as file:
            file.write("audit: {file: audit.log}\n")

    def of(self, name: str) -> str:
        return str(self.folder / f"{name}.json")

    def run(self, *words: str, as_: str = "") -> Result:
        common = ["--project", "demo"]
        if self.endpoint:
            common += ["--endpoint", self.endpoint, "--tls-ca", str(self.authority.ca)]
        if as_:
            common += ["--credentials", self.of(as_)]
        return CliRunner().invoke(cli, [*words, *common])

    def done(self, *words: str, as_: str = "admin") -> str:
        result = self.run(*words, as_=as_)
        assert result.exit_code == 0, result.output
        return result.stdout

    def program(self) -> str:
        """What the first program of docs/security.md prints, with this server's address and these files."""
        page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
        variables = dict(re.findall(r"^export ([A-Z_]+)=(\S+)", page, re.MULTILINE))
        assert set(variables) >= {"GOOGLE_APPLICATION_CREDENTIALS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"}
        text = page.partition("```python\n")[2].partition("```")[0].replace("localhost:9443", self.endpoint)
        files = {
            "GOOGLE_APPLICATION_CREDENTIALS": self.of("app"),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.authority.ca),
        }
        environment = {name: value for name, value in os.environ.items() if name != "PUBSUB_EMULATOR_HOST"}
        ran = subprocess.run(
            [sys.executable, "-c", text], env=environment | files, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    cert, key = made.authority.issue("server")
    files = ("--tls-cert", str(cert), "--tls-key", str(key), "--auth", str(tmp_path / "auth.yaml"))
    with ServerProcess(tmp_path / "data", args=files) as server:
        made.endpoint = server.endpoint
        yield made


def test_from_the_first_owner_to_a_program_and_back(desk: Desk) -> None:
    assert (desk.folder / "admin.json").stat().st_mode & 0o077 == 0, "nobody else reads a key"
    nobody = desk.run("topics", "list")
    assert nobody.exit_code == 1
    assert "--credentials" in nobody.output
    desk.done("topics", "create", "orders")
    desk.done("iam", "accounts", "create", APP)
    desk.done("iam", "accounts", "keys", "create", APP, "--file", desk.of("app"), "--days", "30")
    publish = ("topics", "publish", "orders", "--message", "hello")
    refused = desk.run(*publish, as_="app")
    assert "PERMISSION_DENIED: User not authorized to perform this action." in refused.output
    desk.done("iam", "policy", "add", "topics/orders", "--member", MEMBER, "--role", "roles/pubsub.publisher")
    desk.done(*publish, as_="app")
    assert desk.program().isdigit()
    held = json.loads(desk.done("iam", "test", "topics/orders", "pubsub.topics.publish", "pubsub.topics.get",
                                "--format", "json", as_="app"))  # fmt: skip
    assert held == ["pubsub.topics.publish"]

    file = desk.folder / "policy.json"
    file.write_text(desk.done("iam", "policy", "get", "topics/orders", "--format", "json"))
    desk.done("iam", "policy", "remove", "topics/orders", "--member", MEMBER, "--role", "roles/pubsub.publisher")
    assert desk.run(*publish, as_="app").exit_code == 1
    stale = desk.run("iam", "policy", "set", "topics/orders", str(file), as_="admin")
    assert "ABORTED" in stale.output, "it was changed since"

    desk.done("topics", "create", "failed")
    desk.done("subscriptions", "create", "careful", "--topic", "orders", "--dead-letter-topic", "failed")
    refused = desk.run("subscriptions", "describe", "careful", as_="admin")
    assert "grant it roles/pubsub.subscriber on the subscription" in refused.stderr
    server = "serviceAccount:pubsub@syncpoint.internal"
    desk.done("iam", "policy", "add", "topics/failed", "--member", server, "--role", "roles/pubsub.publisher")
    desk.done("iam", "policy", "add", "subscriptions/careful", "--member", server, "--role", "roles/pubsub.subscriber")
    assert "grant it" not in desk.run("subscriptions", "describe", "careful", as_="admin").stderr

    desk.done("iam", "policy", "add", "project", "--member", MEMBER, "--role", "roles/pubsub.publisher",
              "--condition", 'resource.name.endsWith("/orders")')  # fmt: skip
    desk.done(*publish, as_="app")
    (key,) = json.loads(desk.done("iam", "accounts", "keys", "list", APP, "--format", "json"))
    assert key["expireTime"] > key["createTime"]
    desk.done("iam", "accounts", "keys", "delete", APP, key["id"])
    gone = desk.run(*publish, as_="app")
    assert "UNAUTHENTICATED" in gone.output
    desk.done("iam", "accounts", "delete", APP)
    assert json.loads(desk.done("iam", "accounts", "list", "--format", "json")) == []

    audit = str(desk.folder / "audit.log")
    noted = json.loads(desk.done("audit", "show", audit, "--who", MEMBER, "--denied", "--format", "json"))
    assert {(one["resource"], one["permission"]) for one in noted} == {
        ("projects/demo/topics/orders", "pubsub.topics.publish")
    }
    assert "one chain" in desk.run("audit", "verify", audit).output


def test_credentials_are_not_sent_in_the_clear(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    common = ["--project", "demo", "--endpoint", "db.example:9", "--credentials", str(tmp_path / "token")]
    result = CliRunner().invoke(cli, ["topics", "list", *common])
    assert result.exit_code == 2
    assert "in the clear" in result.output
    assert "secret-token" not in result.output


def test_partners_see_their_own_end_and_nothing_that_lies_behind_it(desk: Desk) -> None:
    """The example of two tenants: each may send to one topic and receive from one queue."""
    example = Path(__file__).parents[2] / "examples" / "topology" / "two_tenants.yaml"
    accounts = {"plant": "plant@factory.example", "freezer": "freezer@lab.example", "editor": "editor@factory.example"}
    for name, email in accounts.items():
        desk.done("iam", "accounts", "create", email)
        desk.done("iam", "accounts", "keys", "create", email, "--file", desk.of(name), "--days", "1")
    desk.done("apply", str(example), "--yes")
    assert "Nothing to do" in desk.run("diff", str(example), as_="admin").output
    readings, alarms = "projects/factory/topics/readings", "projects/factory/subscriptions/alarms"
    desk.done("topics", "publish", readings, "--message", "hot", "--attribute", "temperature=90", as_="plant")
    pull = ("subscriptions", "pull", alarms, "--auto-ack", "--wait", "--format", "json")
    (got,) = json.loads(desk.done(*pull, as_="plant"))
    assert got["message"]["attributes"]["alarm"] == "hot"
    behind = (
        ("topics", "publish", "projects/hub/topics/intake", "--message", "x"),
        ("topics", "publish", "projects/lab/topics/readings", "--message", "x"),
        ("topics", "describe", readings),
        ("topics", "list-subscriptions", readings),
        ("subscriptions", "describe", "projects/factory/subscriptions/to-hub"),
        ("subscriptions", "state", alarms),
        ("subscriptions", "pull", "projects/hub/subscriptions/archive"),
        ("subscriptions", "pull", "projects/lab/subscriptions/alarms"),
        ("subscriptions", "update", "projects/factory/subscriptions/to-hub", "--clear-forward"),
        ("topology", "graph", "-o", str(desk.folder / "graph.svg")),
        ("diff", str(example)),
    )
    for words in behind:
        for partner in ("plant", "freezer"):
            result = desk.run(*words, as_=partner)
            own = partner == "freezer" and words[1] in ("publish", "pull") and words[2].startswith("projects/lab/")
            assert ("PERMISSION_DENIED" in result.output) is not own, (partner, words, result.output)

    editor = "serviceAccount:editor@factory.example"
    desk.done("iam", "policy", "add", "projects/factory", "--member", editor, "--role", "roles/pubsub.editor")
    desk.done("subscriptions", "create", "projects/factory/subscriptions/mine", "--topic", readings, as_="editor")
    onwards = ("subscriptions", "update", "projects/factory/subscriptions/mine", "--forward-to")
    refused = desk.run(*onwards, "projects/hub/topics/intake", as_="editor")
    assert "PERMISSION_DENIED" in refused.output, "who forwards must be allowed to publish there"
    desk.done(*onwards, "projects/factory/topics/unreadable", as_="editor")
