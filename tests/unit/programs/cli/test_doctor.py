"""The doctor: what it finds, and that it leaves nothing behind."""

import os
import socket

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.cli import examinations
from syncpoint.programs.cli.settings import Settings
from syncpoint.wire.protobuf.messages import admin


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(examinations, "SYNCS", 3)


def test_an_old_python():
    assert examinations.python_version((3, 10, 1)).state == "problem"
    assert examinations.python_version().state == "ok"


def test_a_kernel_compiled_from_other_sources(tmp_path, monkeypatch):
    """Whatever the times of the files say: pip writes sources after what was compiled from them."""
    from syncpoint.base import kernel
    from syncpoint.base.kernel.build import mark_of

    for name in ("fresh", "stale"):
        source = tmp_path / f"{name}.py"
        source.write_text(name)
        made = tmp_path / f"{name}.cpython-311-x86_64-linux-gnu.so"
        made.write_bytes(b"\x7fELF" + mark_of(source) + b"\0")
        os.utime(made, (1, 1))
    (tmp_path / "stale.py").write_text("changed since")
    monkeypatch.setattr(kernel, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(kernel, "COMPILED", True)
    finding = examinations.kernel()
    assert finding.state == "problem"
    assert "stale" in finding.found
    assert "fresh" not in finding.found
    (tmp_path / "stale.py").write_text("stale")
    assert examinations.kernel().state == "ok"


def test_a_disk_is_measured_and_left_as_it_was(tmp_path):
    access, free, sync = examinations.disk(tmp_path / "not" / "yet")
    assert access.state == "ok"
    assert "will be created" in access.found
    assert "GiB" in free.found
    assert "p99" in sync.found
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("x")
    (finding,) = examinations.disk(tmp_path / "file")
    assert finding.state == "problem"
    assert finding.advice


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_someone_else(tmp_path):
    tmp_path.chmod(0o500)
    finding = examinations.writable("data folder", tmp_path)
    assert finding.state == "problem"
    assert "chown" in finding.advice


def test_a_full_disk(tmp_path, monkeypatch):
    real = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_blocks = 10, real.f_frsize, real.f_blocks

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    assert examinations.disk(tmp_path)[1].state == "problem"


def test_disks_on_one_device_and_even_numbers(tmp_path):
    three = tuple(tmp_path / name for name in "abc")
    assert [finding.state for finding in examinations.disk_set(three)] == ["warning"]
    assert [finding.state for finding in examinations.disk_set(three[:2])] == ["problem", "warning"]
    assert examinations.disk_set(()) == []


@pytest.fixture
def listener():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


def test_a_free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        number = one.getsockname()[1]
    (finding,) = examinations.port(Settings(), "127.0.0.1", number)
    assert (finding.state, finding.found) == ("ok", "free")


def test_a_port_taken_by_a_server(server, listener):
    server.answers["Admin.GetServer"] = admin.Server(version="1.2", topics=3, compiled_kernel=True)
    bad = admin.Disk(path="/b", state="FAILED", reason="input/output error")
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[admin.Disk(path="/a"), bad])
    first, second = examinations.port(Settings(connect=lambda _: server), "127.0.0.1", listener)
    assert first.state == "ok"
    assert "1.2" in first.found
    assert second.state == "problem"
    assert "/b" in second.found
    assert "Publishing is refused: 1 of 2 disks failed" in second.advice
    bad = admin.Disk(path="/b", state="DAMAGED", reason="segment 1/1: frame at 64", damaged=2)
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[bad])
    (_, damaged) = examinations.port(Settings(connect=lambda _: server), "127.0.0.1", listener)
    assert (damaged.state, damaged.found) == ("problem", "/b: 2 places damaged, segment 1/1: frame at 64")


def test_a_disk_of_which_nothing_is_known_is_not_called_broken(server, listener):
    server.answers["Admin.GetServer"] = admin.Server(version="1.2", topics=3, compiled_kernel=True)
    dark = admin.Disk(path="s2/d1", state="UNKNOWN", reason="the process that serves it does not report")
    server.answers["Admin.ListDisks"] = admin.ListDisksResponse(disks=[dark])
    (_, found) = examinations.port(Settings(connect=lambda _: server), "127.0.0.1", listener)
    assert (found.state, found.found) == ("warning", "s2/d1: unknown: the process that serves it does not report")
    assert "replace" not in found.advice


def test_a_port_taken_by_something_else(server, listener):
    server.answers["Admin.GetServer"] = Unavailable("no HTTP/2 here")
    (finding,) = examinations.port(Settings(connect=lambda _: server), "127.0.0.1", listener)
    assert finding.state == "problem"
    assert "another port" in finding.advice


def test_the_endpoint_in_force_is_examined(run_json, run, monkeypatch, server, tmp_path):
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "far:9")
    server.answers["Admin.GetServer"] = Unavailable("nobody there")
    found = run("doctor", "--data", str(tmp_path))
    assert found.exit_code == 1
    assert "endpoint far:9" in found.stdout
    assert "set by PUBSUB_EMULATOR_HOST" in found.stdout
    assert "`unset PUBSUB_EMULATOR_HOST`" in " ".join(found.stdout.split())
    assert server.settings.endpoint == "far:9"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        free = one.getsockname()[1]
    assert "far:9" not in run("doctor", "--data", str(tmp_path), "--port", str(free)).stdout


def test_durability_and_tls(tmp_path):
    assert [examinations.durability(one).state for one in ("sync", "async", "memory")] == ["ok", "ok", "warning"]
    assert examinations.tls(None, None) == []
    (half,) = examinations.tls(tmp_path, None)
    assert half.state == "problem"
    (tmp_path / "cert.pem").write_text("no certificate")
    (bad,) = examinations.tls(tmp_path / "cert.pem", tmp_path / "cert.pem")
    assert bad.state == "problem"


def test_the_report(run, run_json, tmp_path, listener, server):
    (tmp_path / "file").write_text("x")
    server.answers["Admin.GetServer"] = Unavailable("no")
    result = run("doctor", "--data", str(tmp_path / "file"), "--port", str(listener))
    assert result.exit_code == 1
    assert "3 problems." in result.stdout
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        free = one.getsockname()[1]
    reported = run_json("doctor", "--data", str(tmp_path), "--port", str(free))
    assert {"what": "port " + str(free), "state": "ok", "found": "free", "advice": ""} in reported
