"""Who may change a gateway whose token is still to be written: nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.front.gateway.gateway_file import GatewayFile, SiteSpec
from syncpoint.programs.cli.gateway_process import token_of

SITES = (SiteSpec("eu", "127.0.0.1:1"), SiteSpec("us", "127.0.0.1:2"))


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("\n")
    file = GatewayFile(SITES, admin="0.0.0.0:9470", admin_token=path)
    with pytest.raises(FailedPrecondition, match=r"admin\.token_file: .*token is empty"):
        token_of(file)
    path.write_text("secret\n")
    assert token_of(file) == "secret"
    assert token_of(GatewayFile(SITES)) == ""
