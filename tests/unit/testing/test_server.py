"""Holding a server process: with a stand-in for `syncpoint serve` that obeys the same signs."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from syncpoint.base.runtime.ports import free_ports
from syncpoint.testing.server_process import ServerFailed, ServerProcess

STAND_IN = """
import os, signal, sys, threading
mode = os.environ.get("STAND_IN", "good")
port = sys.argv[sys.argv.index("--port") + 1]
print("starting", sys.argv[1:], flush=True)
if mode == "broken":
    sys.exit("cannot bind: no such luck")
if mode == "taken" and not os.path.exists(os.environ["MARK"]):
    open(os.environ["MARK"], "w").close()
    sys.exit("[Errno 98] Address already in use")
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if mode != "silent":
    print(f"syncpoint ready on 127.0.0.1:{port}", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A `python` that runs the stand-in whatever module it is asked to run."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    command = tmp_path / "python"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/stand_in.py "$@"\n')
    command.chmod(0o755)
    return str(command)


def gone(pid: int | None) -> bool:
    assert pid
    return not Path(f"/proc/{pid}").exists()


def test_a_life(python, tmp_path):
    with ServerProcess(tmp_path / "data", python=python, durability="async", disks=["a", "b", "c"]) as server:
        first, port = server.pid, server.port
        assert server.running
        assert server.endpoint == f"127.0.0.1:{port}"
        assert "'--durability', 'async'" in server.logs()
        assert server.logs().count("'--disk'") == 3
        server.kill9()
        assert gone(first)
        assert server.returncode == -9
        server.start()
        assert (server.port, server.starts) == (port, 2)
        assert server.pid != first
        assert server.terminate() == 0
        server.restart()
        server.restart(hard=True)
        assert server.running
        last = server.pid
    assert gone(last)


def test_the_temporary_folder_goes(python):
    server = ServerProcess(python=python).start()
    assert server.data.is_dir()
    server.close()
    server.close()
    assert not server.data.exists()


def test_a_server_that_does_not_start_reports_why(python):
    server = ServerProcess(python=python, env={"STAND_IN": "broken"})
    with pytest.raises(ServerFailed, match="no such luck"):
        server.start()
    server.close()


def test_another_port_is_taken_when_one_is_gone(python, tmp_path):
    env = {"STAND_IN": "taken", "MARK": str(tmp_path / "mark")}
    with ServerProcess(python=python, env=env).start() as server:
        assert server.starts == 2


def test_a_port_that_was_asked_for_is_not_exchanged(python, tmp_path):
    env = {"STAND_IN": "taken", "MARK": str(tmp_path / "mark")}
    with pytest.raises(ServerFailed, match="in use"):
        ServerProcess(tmp_path / "data", port=free_ports(1)[0], python=python, env=env).start()


def test_one_that_never_becomes_ready_is_ended(python):
    server = ServerProcess(python=python, env={"STAND_IN": "silent"})
    with pytest.raises(ServerFailed, match="not ready within"):
        server.start(timeout=1.0)
    assert gone(server.pid)
    server.close()


def test_one_that_does_not_listen_is_ended_by_force(python, monkeypatch):
    server = ServerProcess(python=python, env={"STAND_IN": "deaf"}).start()
    with pytest.raises(ServerFailed, match="did not end"):
        server.terminate(timeout=0.3)
    server.kill9()
    assert gone(server.pid)
    server.close()


def test_free_ports_lie_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCPOINT_PORTS", "20000-20040")
    assert set(free_ports(10)) <= set(range(20_000, 20_041))
    monkeypatch.setenv("SYNCPOINT_PORTS", "20000-20001")
    with pytest.raises(OSError, match="of 5 free ports"):
        free_ports(5)


def test_free_ports_lie_outside_the_range_of_outgoing_ones():
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(30)
    assert len(set(ports)) == 30
    for port in ports:
        assert port < low
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_it_starts_the_command_line_of_this_package(tmp_path):
    command = ServerProcess(tmp_path, args=["--x"], port=7).command()
    assert command[:4] == [sys.executable, "-m", "syncpoint.programs.cli", "serve"]
    assert command[-1] == "--x"
    assert os.fspath(tmp_path) in command
