"""What distinguishes one machine's network from another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.runtime.machine import BOOT, network_of_machine


def test_a_machine_is_reported_by_its_start_and_its_network_not_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reported(boot: str, network: str) -> str:
        folder = tmp_path / f"{boot}-{network}"
        folder.mkdir()
        (folder / "boot").write_text(f"{boot}\n")
        (folder / "net").symlink_to(f"net:[{network}]")
        return network_of_machine(folder / "boot", folder / "net")

    assert len({reported("b1", "1"), reported("b1", "2"), reported("b2", "1")}) == 3
    here = network_of_machine()
    monkeypatch.setattr("platform.node", lambda: "another-name")
    assert (network_of_machine() == here) == BOOT.exists()
    assert network_of_machine(tmp_path / "none", tmp_path / "none") == "another-name"
