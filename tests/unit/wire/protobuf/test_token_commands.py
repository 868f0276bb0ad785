"""Tokens that a command prints: kept until shortly before their end, and in no text."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, datetime

import pytest

from syncpoint.wire.protobuf import token_commands
from syncpoint.wire.protobuf.token_commands import TokenCommand, TokenCommandError

SECRET = "a-token-that-nobody-may-see"


class SimVault:
    """A command whose output a test says, and how often it was run."""

    def __init__(self) -> None:
        self.now, self.output, self.code, self.runs = 1_000_000.0, "", 0, 0
        self.command = TokenCommand("vault read", self.run, lambda: self.now)

    def run(self, command: str) -> tuple[str, int]:
        self.runs += 1
        return self.output, self.code


@pytest.mark.parametrize(
    ("end", "renewed_s"),
    [
        ({"expires_in": 3600}, 3540),
        ({"expires_in": "100"}, 90),
        ({"expires": datetime.fromtimestamp(1_003_600, UTC).isoformat()}, 3540),
        ({"expiry": 1_003_600}, 3540),
        ({}, 300),
    ],
)
def test_a_token_is_kept_until_shortly_before_its_end(end: dict[str, object], renewed_s: int) -> None:
    vault = SimVault()
    vault.output = json.dumps({"token": "one", **end}) + "\n"
    assert [vault.command.token() for _ in range(3)] == ["one"] * 3
    vault.output = json.dumps({"access_token": "two", **end})
    vault.now += renewed_s - 1
    assert (vault.command.token(), vault.runs) == ("one", 1)
    vault.now += 1.1
    if "expires" in end or "expiry" in end:
        vault.output = json.dumps({"token": "two", "expires_in": 9})
    assert (vault.command.token(), vault.runs) == ("two", 2)


def test_a_plain_token_is_asked_for_again_after_a_while_and_when_it_is_refused() -> None:
    vault = SimVault()
    vault.output = "one\n"
    assert vault.command.token() == "one"
    vault.output = "two"
    vault.command.forget()
    assert vault.command.token() == "two"
    assert vault.runs == 2


def test_the_old_token_is_used_as_long_as_it_is_good_and_no_new_one_can_be_had() -> None:
    vault = SimVault()
    vault.output = json.dumps({"token": "one", "expires_in": 600})
    vault.command.token()
    vault.now, vault.code = vault.now + 550, 7
    assert (vault.command.token(), vault.command.token(), vault.runs) == ("one", "one", 2)
    vault.now += 51
    with pytest.raises(TokenCommandError, match="'vault read' for a token ended with 7"):
        vault.command.token()


@pytest.mark.parametrize(
    "output", ["", f"two {SECRET}", f"{SECRET}\nmore", f"{{{SECRET}", json.dumps({"token": SECRET, "expires": "soon"}),
               json.dumps({"token": SECRET, "expires_in": -1}), json.dumps({"secret": SECRET})],
)  # fmt: skip
def test_what_is_no_token_is_refused_without_showing_it(output: str) -> None:
    vault = SimVault()
    vault.output = output
    with pytest.raises(TokenCommandError) as refused:
        vault.command.token()
    assert SECRET not in str(refused.value)


def test_real_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(program: str) -> TokenCommand:
        return TokenCommand(f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}")

    assert command("print('abc')").token() == "abc"
    with pytest.raises(TokenCommandError, match="ended with 3") as refused:
        command(f"import sys; print('{SECRET}'); print('{SECRET}', file=sys.stderr); sys.exit(3)").token()
    with pytest.raises(TokenCommandError, match="No such file"):
        TokenCommand("/no/such/program").token()
    monkeypatch.setattr(token_commands, "RUN_S", 0.2)
    with pytest.raises(TokenCommandError, match="did not end"):
        command("import time; time.sleep(600)").token()
    del refused
