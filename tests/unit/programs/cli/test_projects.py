"""Commands about projects that need no server."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.cli import projects
from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("disaster-classes")


def test_a_reconciliation_that_is_repeated_outlives_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([None, None])

    def once(*args: object) -> object:
        raise Unavailable("the server restarts")

    def sleep(seconds: float) -> None:
        assert seconds == 3600.0
        if next(waits, 1) is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(projects, "_reconcile_once", once)
    monkeypatch.setattr("time.sleep", sleep)
    asked = ["projects", "reconcile", "shop", "--project", "shop"]
    found = CliRunner().invoke(cli, [*asked, "--every", "1h"])
    assert found.output.count("shop was not reconciled; the next try is in 1 h") == 3
    alone = CliRunner().invoke(cli, asked)
    assert alone.exit_code == 5
    assert "the server restarts" in alone.output
