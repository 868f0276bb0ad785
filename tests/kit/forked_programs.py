"""Programs of this project, started by tests without importing everything anew: forked from a process that has done so.

A start costs a second of processor time, nearly all of it imports, and tests start hundreds of servers, processes of
clusters and commands. `install` puts a `Popen` into `subprocess` that has `python -m syncpoint.programs.cli ...` and
`syncpoint ...` forked with the arguments, environment, folder and files that they were given, in a process of their own
id, which may be killed. All else, and what asks for something that a fork cannot have, is started as ever. Starts as
users make them are those by a shell: README, tour, the wheel's test.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncpoint.programs.federation.tied import PR_SET_PDEATHSIG

_SERVING = ("syncpoint.node.serve", "syncpoint.node.workers.parent", "syncpoint.node.cluster.serve")
_OWN = "PYTHONUNBUFFERED"  # what a fork may have set otherwise than its template
_REQUEST_BYTES_MAX = 256 << 10


def install() -> None:
    """From now on `subprocess` forks programs of this project."""
    if not issubclass(subprocess.Popen, _Popen):
        subprocess.Popen = _Popen  # type: ignore[misc]


class _Template:
    """The process that all are forked from, and how those have ended that it had to wait for."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            line = [sys.executable, "-m", __spec__.name, str(there.fileno())]
            self.environ = dict(os.environ) | {_OWN: "1"}
            self._process = _Plain(line, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=self.environ,
                                   cwd=Path(__file__).parents[2])  # fmt: skip
        self._socket, self._asking = here, threading.Lock()
        self._pids: list[int] = []
        self._said = threading.Condition()
        self._codes: dict[int, int] = {}
        self._gone = False
        threading.Thread(target=self._listen, name="template", daemon=True).start()

    def start(self, request: dict[str, Any], files: list[int]) -> int:
        """The process id of a fork."""
        with self._asking:
            message = json.dumps(request).encode()
            socket.send_fds(self._socket, [message], files)
            with self._said:
                self._said.wait_for(lambda: self._pids or self._gone)
                if not self._pids:
                    raise ChildProcessError("the process that programs are forked from has ended: its output says why")
                return self._pids.pop()

    def status(self, pid: int, *, wait: bool) -> int | None:
        """How a fork ended, as waitpid has it; None: it has not."""
        with self._said:
            if wait:
                self._said.wait_for(lambda: pid in self._codes or self._gone)
            if self._gone and pid not in self._codes:
                raise ChildProcessError(f"what process {pid} was forked from has ended: nobody knows how that one did")
            return self._codes.get(pid)

    def _listen(self) -> None:
        while message := self._socket.recv(1024):
            pid, status = json.loads(message)
            with self._said:
                if status is None:
                    self._codes.pop(pid, None)  # of an earlier process with this id
                    self._pids.append(pid)
                else:
                    self._codes[pid] = status
                self._said.notify_all()
        with self._said:
            self._gone = True
            self._said.notify_all()


_Plain = subprocess.Popen
_template: _Template | None = None
_making = threading.Lock()


def _shared_template() -> _Template:
    global _template
    with _making:
        _template = _template or _Template()
        return _template


class _Popen(_Plain):  # type: ignore[type-arg]
    """`subprocess.Popen`, whose child may be another process's: how it ended is asked there."""

    _forked: _Template | None = None

    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
        start_new_session, *more,
    ) -> None:  # fmt: skip
        words = _words(args)
        plain = preexec_fn or pass_fds or executable or shell or gid or gids or uid
        environ = dict(os.environ if env is None else env)
        if words is None or plain or not _same_imports(environ):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
                start_new_session, *more,
            )  # type: ignore[misc]  # fmt: skip
            return
        folder = os.fspath(cwd or Path.cwd())
        request = {"words": words, "environ": environ, "folder": folder, "umask": umask}
        request["session"] = bool(start_new_session)
        files = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self._forked = _shared_template()
        self.pid = self._forked.start(request, files)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, *more: Any, **names: Any) -> int | None:
        if self._forked is None:
            return super()._internal_poll(*more, **names)
        if self.returncode is None and (status := self._forked.status(self.pid, wait=False)) is not None:
            self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._forked is None:
            return super()._try_wait(wait_flags)
        status = self._forked.status(self.pid, wait=not wait_flags)
        return (0, 0) if status is None else (self.pid, status)


def _words(args: Any) -> list[str] | None:
    """The words behind `syncpoint` of a command of this project, else None."""
    if isinstance(args, str | bytes | os.PathLike):
        return None
    line = [os.fspath(one) for one in args]
    if line[:3] == [sys.executable, "-m", "syncpoint.programs.cli"]:
        return line[3:]
    return line[1:] if line[0] == str(Path(sys.executable).parent / "syncpoint") else None


def _same_imports(environ: Mapping[str, str]) -> bool:
    """Whether what a process imports, and how, is the same as in the template."""

    def of(found: Mapping[str, str]) -> dict[str, str]:
        deciding = ("PYTHON", "SYNCPOINT_PURE_KERNEL", "LD_", "COVERAGE")
        return {name: value for name, value in found.items() if name.startswith(deciding) and name != _OWN}

    return of(environ) == of(_shared_template().environ)


# -- in the template ---------------------------------------------------------------------------------------------------


def _serve(asked: socket.socket) -> list[str] | None:
    """Fork whenever it is asked for; gives the words of its command line in each child, None once nobody asks."""
    import gc
    import importlib

    from syncpoint.programs.cli.main import COMMANDS

    for name in (*_SERVING, *(f"syncpoint.programs.cli.{module}" for module, _, _ in COMMANDS.values())):
        importlib.import_module(name)
    assert threading.active_count() == 1, "a thread of the template would be missing in what is forked"
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting = selectors.DefaultSelector()
    waiting.register(asked, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not asked:
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                asked.send(json.dumps(os.waitpid(key.data, 0)).encode())
                continue
            message, files, _, _ = socket.recv_fds(asked, _REQUEST_BYTES_MAX, 3)
            if not message:
                return None
            request = json.loads(message)
            pid = os.fork()
            if not pid:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for one in list(waiting.get_map().values()):
                    if one.fileobj is not asked:
                        os.close(one.fd)
                waiting.close()
                asked.close()
                return _become(request, files)
            for file in files:
                os.close(file)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            asked.send(json.dumps([pid, None]).encode())


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """The process that was asked for, as far as it is not its program. It ends with its template, as that one does with
    the tests, however they ended.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if request["session"]:
        os.setsid()
    if request["umask"] >= 0:
        os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    for own, given in enumerate(files):
        os.dup2(given, own)
    for given in files:
        os.close(given)
    words: list[str] = request["words"]
    return words


def _main() -> None:
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        from syncpoint.programs.cli.main import main

        sys.argv = ["syncpoint", *words]
        main()


if __name__ == "__main__":
    _main()
