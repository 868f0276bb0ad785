"""A server that wants to see certificates: the command line shows one, and who has none is not served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("tls")


@pytest.fixture(params=[(), ("--workers", "2")], ids=["one", "workers"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Authority, str]]:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("server")
    files = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(authority.ca))
    with ServerProcess(tmp_path / "data", args=[*files, *request.param]) as server:
        yield authority, server.endpoint


def test_with_a_certificate_and_without(secured: tuple[Authority, str]) -> None:
    authority, endpoint = secured

    def run(*words: str) -> Result:
        common = ("--endpoint", endpoint, "--project", "demo", "--tls-ca", str(authority.ca), "--timeout", "10")
        return CliRunner().invoke(cli, [*words, *common])

    cert, key = map(str, authority.issue("me"))
    made = run("topics", "create", "orders", "--tls-cert", cert, "--tls-key", key)
    assert made.exit_code == 0, made.output
    refused = run("topics", "list")
    assert refused.exit_code == 5
    assert "--tls-cert" in refused.output
    stranger = Authority(authority.folder.parent / "other").issue("stranger")
    assert run("topics", "list", "--tls-cert", str(stranger[0]), "--tls-key", str(stranger[1])).exit_code == 5
