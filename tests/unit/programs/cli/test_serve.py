"""`syncpoint serve`: disks that hold nothing are said, or refused."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.node.cluster.settings import ProcessSettings, TlsFiles, parse
from syncpoint.node.settings import ServeSettings
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.run import exposures
from syncpoint.programs.cli.serve import new_disks, serve
from syncpoint.testing.rigs.certificates import Authority


@pytest.mark.parametrize(
    ("server", "missing"),
    [("node.serve", {"lark", "jwt", "cryptography", "yaml", "difflib"}), ("node.cluster.process", {"lark"})],
)
def test_a_server_starts_without_what_only_some_use(server: str, missing: set[str]) -> None:
    """The parser of rules takes an eighth of a second, what checks tokens half of that."""
    code = f"import sys, syncpoint.programs.cli.serve, syncpoint.{server}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"syncpoint.{server}" in done.stdout.split()
    assert not missing & {*done.stdout.split()}


def disks(tmp_path: Path, *named: str) -> list[Path]:
    for name in named:
        (tmp_path / name).mkdir()
        (tmp_path / name / "disk.json").write_text("{}")
    return [tmp_path / name for name in "abc"]


@pytest.mark.parametrize("starts", [True, False])
def test_a_new_disk_is_said_to_be_filled_only_by_a_server_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    def run(settings: ServeSettings, announce: Callable[[str], None]) -> int:
        if starts:
            announce("127.0.0.1:8085")
        return 0 if starts else 1

    monkeypatch.setattr("syncpoint.node.serve.run", run)
    arguments = ["--data", str(tmp_path / "data")]
    for disk in disks(tmp_path, "a", "c"):
        arguments += ["--disk", str(disk)]
    reported = " ".join(CliRunner().invoke(serve, arguments).output.split())
    assert reported.count("is new: copying data from the others.") == starts
    assert (f"Disk {tmp_path / 'b'} is new" in reported) == starts


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """The settings that servers would be started with; each is ready at once, and ends."""
    found: list[ServeSettings] = []

    def run(settings: ServeSettings, announce: Callable[[str], None]) -> int:
        settings.data.mkdir(parents=True, exist_ok=True)
        (settings.data / "disk-1").write_text("messages")
        found.append(settings)
        announce("127.0.0.1:8085")
        return 0

    monkeypatch.setattr("syncpoint.node.serve.run", run)
    return found


def test_a_server_for_development_keeps_nothing_and_pushes_to_this_machine(started: list[ServeSettings]) -> None:
    done = CliRunner().invoke(serve, ["--dev"])
    assert done.exit_code == 0, done.output
    assert started[0].push_networks == ("loopback",)
    assert f"Serving {started[0].data}," in done.output
    assert "This folder is deleted when the server stops" in done.output
    assert not started[0].data.exists()


def test_a_folder_that_was_named_is_kept(started: list[ServeSettings], tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--dev", "--data", str(tmp_path / "d"), "--push-network", "loopback"])
    assert "is deleted" not in done.output
    assert (tmp_path / "d" / "disk-1").exists()
    assert started[0].push_networks == ("loopback",)


def test_without_dev_nothing_is_allowed_or_deleted(started: list[ServeSettings], tmp_path: Path) -> None:
    CliRunner().invoke(serve, ["--data", str(tmp_path)])
    assert (started[0].push_networks, started[0].region, (tmp_path / "disk-1").exists()) == ((), "", True)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--dev", "--disk", "d"], "--dev keeps its data in one temporary folder"),
        (["--dev", "--region", "eu", "--workers", "2"], "--region needs a server of one process"),
        (["--dev", "--host", "0.0.0.0"], "reachable from other machines"),
        (["--dev", "--otlp-metrics-interval", "5s"], "--otlp-metrics"),
    ],
)
def test_what_a_server_for_development_refuses_leaves_no_folder(
    started: list[ServeSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reported: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = CliRunner().invoke(serve, words)
    assert done.exit_code == 2
    assert reported in done.output
    assert not started
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("named", [(), ("a", "b", "c")], ids=["the first start", "a usual start"])
def test_otherwise_none_is_new(tmp_path: Path, named: tuple[str, ...]) -> None:
    assert new_disks(disks(tmp_path, *named), refuse=False) == []


def test_folders_of_workers_are_not_new(tmp_path: Path) -> None:
    (tmp_path / "a" / "chains").mkdir(parents=True)
    assert new_disks([tmp_path / "a"], refuse=True) == []


def test_every_disk_that_is_refused_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=f"disks {tmp_path / 'a'}, {tmp_path / 'b'} hold no disk.json"):
        new_disks(disks(tmp_path, "c"), refuse=True)


def test_required_disks_are_not_made(tmp_path: Path) -> None:
    every = disks(tmp_path, "a", "c")
    arguments = ["--require-disks", "--port", "0", "--data", str(tmp_path / "data")]
    for disk in every:
        arguments += ["--disk", str(disk)]
    outcome = CliRunner().invoke(serve, arguments)
    assert outcome.exit_code == 1
    assert f"disk {every[1]} holds no disk.json" in outcome.output
    assert "without --require-disks" in " ".join(outcome.output.split())
    assert not every[1].exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("required", [False, True])
def test_the_running_server_knows_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool) -> None:
    seen: list[ServeSettings] = []
    monkeypatch.setattr("syncpoint.node.serve.run", lambda settings, announce: seen.append(settings))
    (disk,) = disks(tmp_path, "a")[:1]
    arguments = ["--data", str(tmp_path / "data"), "--disk", str(disk)]
    assert CliRunner().invoke(serve, [*arguments, *(["--require-disks"] if required else [])]).exit_code == 0
    assert [settings.storage.require_disks for settings in seen] == [required]


HOSTS = [(host, True) for host in ("0.0.0.0", "::", "db.example")] + [
    (host, False) for host in ("127.0.0.1", "::1", "localhost")
]


@pytest.mark.parametrize(("host", "reached"), HOSTS)
def test_where_others_reach_it_a_server_without_access_control_has_to_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, reached: bool
) -> None:
    monkeypatch.setattr("syncpoint.node.serve.run", lambda settings, announce: announce("h:1"))
    arguments = ["--data", str(tmp_path / "data"), "--host", host]
    outcome = CliRunner().invoke(serve, arguments)
    assert outcome.exit_code == (2 if reached else 0)
    assert ("--insecure" in outcome.output) == reached
    outcome = CliRunner().invoke(serve, [*arguments, "--insecure"])
    assert outcome.exit_code == 0
    assert ("Warning: " in outcome.output) == reached


def test_a_file_of_auth_does_not_stand_in_for_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ServeSettings] = []
    monkeypatch.setattr("syncpoint.node.serve.run", lambda settings, announce: seen.append(settings))
    auth = tmp_path / "auth.yaml"
    auth.write_text("owners: ['user:ann@example.com']\n")
    arguments = ["--data", str(tmp_path / "data"), "--auth", str(auth)]
    assert "not encrypted" in CliRunner().invoke(serve, [*arguments, "--host", "0.0.0.0"]).output
    cert, key = map(str, Authority(tmp_path / "ca").issue("server"))
    tls = ["--tls-cert", cert, "--tls-key", key]
    assert CliRunner().invoke(serve, [*arguments, *tls, "--host", "0.0.0.0"]).exit_code == 0
    assert [settings.auth for settings in seen] == [auth]
    assert CliRunner().invoke(serve, ["--data", str(tmp_path), *tls, "--host", "0.0.0.0"]).exit_code == 2


def test_addresses_of_a_cluster_that_others_reach_need_tls_and_a_proxy_more() -> None:
    process = ProcessSettings("p", ("proxy",), listen="127.0.0.1:0")
    plain = parse({"metadata": {"etcd": ["h:1"]}})
    assert exposures(plain, process, insecure=False) == []
    for exposed in (replace(process, listen="10.0.0.1:7000"), replace(process, public="0.0.0.0:8085")):
        with pytest.raises(Problem):
            exposures(plain, exposed, insecure=False)
        assert len(exposures(plain, exposed, insecure=True)) == 1
    files = TlsFiles(Path("c"), Path("k"), Path("ca"))
    assert exposures(replace(plain, tls=files), replace(process, listen="10.0.0.1:7000"), insecure=False) == []
    shown = replace(process, public="0.0.0.0:8085", tls_cert=Path("c"), tls_key=Path("k"))
    with pytest.raises(Problem, match="access control"):
        exposures(plain, shown, insecure=False)
    assert exposures(replace(plain, auth=Path("auth.yaml")), shown, insecure=False) == []
