"""A way for TCP between programs and a server that can be cut: connections end, and new ones are refused."""

from __future__ import annotations

import contextlib
import socket
import threading


class TcpCut:
    """`endpoint` leads to `target`, unless it is cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, and take no other."""
        self._is_cut = True
        for one in list(self._open):
            _end(one)

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def close(self) -> None:
        """End it."""
        self.cut()
        _end(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise ConnectionError
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass  # the other end is gone, which its own thread sees, too
        finally:
            self._open -= {one, other}
            _end(one)
            _end(other)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended
        one.shutdown(socket.SHUT_RDWR)
    one.close()
