"""The systemd units: systemd itself takes them, they are hardened, and what they call there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("packages")

UNITS = Path(__file__).parents[3] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))
EXPOSURE_MAX = 2.0  # of 10, by systemd's own count; a service without any of it has 9.6


def analyze(*arguments: str) -> str:
    """What systemd says of units."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not on this machine (Debian: apt-get install systemd)")
    done = subprocess.run([tool, "--no-pager", *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_it(name: str, tmp_path: Path) -> None:
    text = (UNITS / name).read_text()
    (tmp_path / "syncpoint").write_text("#!/bin/sh\n")
    (tmp_path / "syncpoint").chmod(0o755)
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/syncpoint/bin/syncpoint", str(tmp_path / "syncpoint")))
    assert analyze("verify", "--man=no", str(unit)) == ""


@pytest.mark.parametrize("name", NAMES)
def test_it_is_hardened(name: str) -> None:
    said = analyze("security", "--offline=true", str(UNITS / name))
    (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert float(level) <= EXPOSURE_MAX


@pytest.mark.parametrize("name", NAMES)
def test_the_command_takes_its_options(name: str) -> None:
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", (UNITS / name).read_text(), re.MULTILINE)
    words = [word for word in command.split() if word != "$OPTIONS"]
    options = CliRunner().invoke(cli, [words[0], "--help"]).output
    for word in words:
        assert not word.startswith("--") or word in options


def test_a_server_stopped_politely_is_given_the_time_that_it_takes() -> None:
    for name in NAMES:
        (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", (UNITS / name).read_text(), re.MULTILINE)
        assert int(seconds) >= 60
