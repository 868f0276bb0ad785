"""README.md and pages of docs, followed by copy and paste: all commands run, and print what is shown.

Numbers, ids, times and widths differ from run to run and are not compared. Clusters, Spark and Node have tests of
their own; that their commands exist is checked in `tests/unit/docs/test_links`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("tour")

ROOT = Path(__file__).resolve().parents[2]
README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"
SERVICE_BUS = ROOT / "docs" / "service-bus.md"
ONE_NODE = {
    README: ("From the command line",),
    SERVICE_BUS: (
        "Queues",
        "Suspension",
        "Rules",
        "Scheduled messages",
        "Forwarding",
        "Dead letters",
        "Topologies",
        "Peek",
    ),
}
AFTER_FEATURES = "In Node"
"""The first section of the tour that is not followed on one server together with those before it."""
NUMBER = re.compile(r"\b[0-9a-f]{8}\b|\d[\d:.,TZ+-]*")
MESSAGE_ID = re.compile(r"\b\d{30,45}\b")
OF_THE_MOMENT = {"EXAMINED", "FIELD", "SCOPE"}  # tables whose first column is the same on every machine and no other


@dataclass
class Block:
    """One fenced block: its language, its lines, and the commands in it with what they printed."""

    language: str
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def commands(self) -> Iterator[tuple[str, str]]:
        command, printed = "", list[str]()
        for line in self.lines:
            if line.startswith("$ "):
                if command:
                    yield command, "\n".join(printed)
                command, printed = line[2:], []
            else:
                printed.append(line)
        if command:
            yield command, "\n".join(printed)


def sections(page: Path) -> dict[str, list[Block]]:
    """The fenced blocks of a page by the heading they stand under."""
    found: dict[str, list[Block]] = {}
    blocks, inside = found.setdefault("", []), None
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            if inside is None:
                inside = Block(line[3:])
                blocks.append(inside)
            else:
                inside = None
        elif inside is not None:
            inside.lines.append(line)
        elif line.startswith("## "):
            blocks = found.setdefault(line[3:], [])
    return found


def comparable(printed: str) -> list[str]:
    """What must be the same in every run."""
    lines, of_the_moment = [], False
    for line in printed.rstrip().splitlines():
        words = re.sub(r"─+", "─", NUMBER.sub("N", line)).split()
        of_the_moment = of_the_moment or (words != [] and words[0] in OF_THE_MOMENT)
        lines.append(" ".join(words[:1] if of_the_moment and "─" not in words else words))
    return lines


Shell = Callable[[str], str]


def shell(folder: Path, endpoint: str) -> Shell:
    """Runs one command line of a page in `folder`."""
    env = os.environ | {
        "PUBSUB_EMULATOR_HOST": endpoint,
        "PUBSUB_PROJECT_ID": "demo",
        "SYNCPOINT_CONFIG": str(folder / "config.toml"),
    }

    def run(line: str) -> str:
        words = shlex.split(line.replace("$PUBSUB_EMULATOR_HOST", endpoint))
        assert words[0] in ("syncpoint", "curl", "cat"), f"not a command of ours: {line}"
        command = [sys.executable, "-m", "syncpoint.programs.cli", *words[1:]] if words[0] == "syncpoint" else words
        done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=60, check=False)  # fmt: skip
        return done.stdout

    return run


def follow(blocks: list[Block], run: Shell, folder: Path) -> int:
    """Run all commands; each printed what stands behind it. Ids of messages that one printed mean those of now. A file
    that is shown and is not in `folder` is written there."""
    followed = 0
    ids: dict[str, str] = {}
    for block in blocks:
        for written, printed in block.commands():
            line = written
            if line.startswith("cat ") and not (folder / line[4:]).exists():
                (folder / line[4:]).write_text(printed + "\n")
            if line.startswith("curl ") and shutil.which("curl") is None:
                continue
            followed += 1
            for before, now in ids.items():
                line = line.replace(before, now)
            shown = run(line)
            assert comparable(shown) == comparable(printed), line
            ids.update(zip(MESSAGE_ID.findall(printed), MESSAGE_ID.findall(shown), strict=True))
    return followed


@pytest.mark.parametrize("page", [README, SERVICE_BUS], ids=lambda page: page.stem)
def test_one_node_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        run = shell(tmp_path, server.endpoint)
        assert sum(follow(sections(page)[name], run, tmp_path) for name in ONE_NODE[page]) >= 6


def test_the_program_in_python(tmp_path: Path) -> None:
    blocks = sections(README)["Point a client at it"]
    (at,) = (at for at, block in enumerate(blocks) if block.language == "python")
    with ServerProcess(tmp_path / "data") as server:
        env = os.environ | {"PUBSUB_EMULATOR_HOST": server.endpoint}
        line = [sys.executable, "-c", blocks[at].text]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert sorted(comparable(done.stdout)) == sorted(comparable(blocks[at + 1].text)), done.stderr


def test_each_feature_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server, one Python program from top to bottom, the command line and curl between its parts."""
    names: dict[str, object] = {}
    ran = 0
    with ServerProcess(tmp_path / "data") as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
        run = shell(tmp_path, server.endpoint)
        for heading, blocks in sections(TOUR).items():
            if heading == AFTER_FEATURES:
                break
            printed: list[str] | None = None  # by the Python above
            for block in blocks:
                if printed:
                    assert comparable(block.text) == printed, heading
                    printed = None
                elif block.language == "python":
                    output = io.StringIO()
                    with contextlib.redirect_stdout(output):
                        exec(block.text, names)  # the page's own program
                    printed, ran = comparable(output.getvalue()), ran + 1
                else:
                    ran += follow([block], run, tmp_path)
    assert ran >= 50


def test_three_disks_of_which_two_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's story: one disk is deleted under a killed server, another one after `log verify`."""
    commands = [one for block in sections(TOUR)["Three disks"] for one in block.commands()]
    kinds = [" ".join(line.split()[1:3]) for line, _ in commands[1:]]
    assert kinds == ["topics create", "subscriptions create", "topics publish", *["disks list"] * 2, "log verify",
                     "subscriptions pull"]  # fmt: skip
    disks = [Path("disks") / name for name in "abc"]
    monkeypatch.chdir(tmp_path)  # the page shows disks by relative names
    with ServerProcess(tmp_path / "d", disks=disks) as server:
        run = shell(tmp_path, server.endpoint)

        def check(line: str, printed: str) -> None:
            assert comparable(run(line)) == comparable(printed), line

        for line, printed in commands[1:5]:
            check(line, printed)
        server.kill9()
        shutil.rmtree(disks[1])
        server.start()
        check(*commands[5])
        server.terminate()
        check(*commands[6])
        shutil.rmtree(disks[0])
        server.start()
        check(*commands[7])


def test_between_regions(tmp_path: Path) -> None:
    pytest.importorskip("jsonschema")
    blocks = sections(TOUR)["Between regions"]
    (file,) = (block for block in blocks if block.language == "yaml")
    with ServerProcess(tmp_path / "eu") as eu, ServerProcess(tmp_path / "us") as us:
        text = file.text.replace("127.0.0.1:8085", eu.endpoint).replace("127.0.0.1:8086", us.endpoint)
        (tmp_path / "federation.yaml").write_text(text)
        run = shell(tmp_path, eu.endpoint)
        run(f"syncpoint topics create orders --project shop --endpoint {eu.endpoint}")
        assert follow(blocks, run, tmp_path) == 2
