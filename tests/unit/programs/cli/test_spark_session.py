"""How the server of a command line is named to Spark: where its credentials are, never what they are."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.main import cli
from syncpoint.programs.cli.settings import Settings
from syncpoint.programs.cli.spark_session import server_of
from syncpoint.programs.federation.flow_options import access
from syncpoint.testing.rigs.certificates import Authority

HERE = "127.0.0.1:8085"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNCPOINT_CREDENTIALS", raising=False)


def key_file(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    path = folder / "key of mine.json"
    path.write_text(json.dumps({"client_email": "a@b.c", "private_key": pem, "private_key_id": "1"}))
    return path


def test_without_credentials_only_the_endpoint_is_named() -> None:
    assert access(server_of(Settings(endpoint_option=HERE))) == {"endpoint": HERE}


def test_a_token_and_certificates_are_named_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("me", ["me"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("secret-token\n")
    monkeypatch.setenv("SYNCPOINT_CREDENTIALS", "token")
    given = access(
        server_of(Settings(endpoint_option=HERE, tls_ca=str(authority.ca), tls_cert=str(cert), tls_key=str(key)))
    )
    assert given == {
        "endpoint": HERE, "tls": "true", "tls.ca": str(authority.ca), "tls.cert": str(cert), "tls.key": str(key),
        "token.file": str(tmp_path / "token"),
    }  # fmt: skip


def test_a_key_is_named_by_a_command_that_makes_tokens_with_it(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    given = access(server_of(Settings(endpoint_option=HERE, credentials_option=str(path))))
    python, dash_m, module, *words = shlex.split(given["token.command"])
    assert (dash_m, module, words[-1]) == ("-m", "syncpoint.programs.cli", str(path))
    assert Path(python).exists()
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    assert made.stdout.count(".") == 2, "a token: three parts"


def test_what_no_command_would_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="in the clear"):
        server_of(Settings(endpoint_option="example.com:1", credentials_option=str(key_file(tmp_path))))
    with pytest.raises(Problem, match="not an address"):
        server_of(Settings(endpoint_option="127.0.0.1:99999"))
