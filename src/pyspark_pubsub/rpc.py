"""Calls to a server: connecting with its credentials, keeping connections, trying again, words for failures.

Place: between planning, tasks and `http2`.
Promise: UNAVAILABLE is tried again, with growing pauses, for at most `patience_seconds`, and only where a second try
does no harm; at another endpoint, if there is one. One that failed rests, for all calls of a process. Connections are
kept per process and never cross a fork. A secret is read when a connection is made and is in no text.
Leaves to `reading`: continuing after what was read when a stream of frames breaks.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from pyspark_pubsub.buffered_socket import Buffer
from pyspark_pubsub.errors import PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE, CallError, OptionError
from pyspark_pubsub.http2 import Allocate, BlockingConnection
from pyspark_pubsub.options import ServerAccess
from syncpoint.wire.protobuf.address_choice import AddressChoice
from syncpoint.wire.protobuf.messages import Package
from syncpoint.wire.protobuf.messages import rpc as rpc_messages
from syncpoint.wire.protobuf.status import missing_permission
from syncpoint.wire.protobuf.token_commands import TokenCommandError, token_command

if TYPE_CHECKING:
    import ssl

pb = Package("syncpoint.pipeline.v1")
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 2.0
CONNECT_S = 10.0
IDLE_S = 15.0
"""How often a stream that has nothing to send looks for pings."""

_idle: dict[tuple[int, ServerAccess], list[BlockingConnection]] = {}
_choices: dict[tuple[int, ServerAccess], AddressChoice] = {}
_lock = threading.Lock()


class BlockingChannel:
    """Calls to the server of one `ServerAccess`. Cheap to make; connections are shared within the process."""

    def __init__(self, access: ServerAccess) -> None:
        self.access = access

    def call(self, method: str, request: Any, *, idempotent: bool = True) -> bytes:
        """One request, one response. `method`: a path; `request`: a message. Raises CallError."""
        payload = request.SerializeToString()
        end = time.monotonic() + self.access.patience_seconds
        pauses = _pauses()
        renewed = False
        while True:
            try:
                return self._once(method, payload)
            except CallError as refused:
                error = _explained(refused)
                if self._forget_token(error) and not renewed:
                    renewed = True
                    continue
                pause = next(pauses)
                again = error.code == UNAVAILABLE and (idempotent or error.unsent)
                if not again or time.monotonic() + pause > end:
                    raise error.at(self._where(method)) from error
                time.sleep(pause)

    def frames(self, method: str, request: Any, allocate: Allocate) -> Generator[memoryview, None, None]:
        """One request, a stream of responses; not tried again. Closing the iterator cancels the call."""
        connection = self._connection()
        try:
            self._arm(connection)
            connection.start(method, self._metadata())
            connection.send([request.SerializeToString()], end=True)
            while True:
                self._arm(connection)
                message = connection.receive(allocate)
                if message is None:
                    return
                yield message
        except CallError as error:
            self._forget_token(error)
            self._failed(connection.endpoint, error)
            raise _explained(error).at(self._where(method)) from error
        finally:
            self._put_back(connection)

    def upload(self, method: str) -> Upload:
        """A stream of requests with one response. Raises CallError when no server is reachable within patience."""
        end = time.monotonic() + self.access.patience_seconds
        for pause in _pauses():
            try:
                connection = self._connection()
                try:
                    self._arm(connection)
                    connection.start(method, self._metadata())
                except CallError as error:
                    self._failed(connection.endpoint, error)
                    self._put_back(connection)
                    raise
                return Upload(self, connection, self._where(method))
            except CallError as error:
                if error.code != UNAVAILABLE or time.monotonic() + pause > end:
                    raise error.at(self._where(method)) from error
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _once(self, method: str, payload: bytes) -> bytes:
        connection = self._connection()
        try:
            self._arm(connection)
            connection.start(method, self._metadata(), self.access.call_seconds)
            connection.send([payload], end=True)
            answer = connection.receive(_plain)
            if answer is None or connection.receive(_plain) is not None:
                raise CallError(UNAVAILABLE, "The answer is not one message.")
            with _lock:
                self._choice().answered(connection.endpoint)
            return bytes(answer)
        except CallError as error:
            self._failed(connection.endpoint, error)
            raise
        finally:
            self._put_back(connection)

    def _choice(self) -> AddressChoice:
        """Where calls of this process go; for use with the lock."""
        key = os.getpid(), self.access
        if key not in _choices:
            _choices[key] = AddressChoice(self.access.endpoints)
        return _choices[key]

    def _failed(self, endpoint: str, error: CallError) -> None:
        """Use another endpoint after UNAVAILABLE; connections to this one that are idle are closed."""
        if error.code != UNAVAILABLE:
            return
        with _lock:
            moved = self._choice().failed(endpoint, time.monotonic())
            left = _idle.pop((os.getpid(), self.access), []) if moved else []
        for connection in left:
            connection.close()

    def _where(self, method: str) -> str:
        return f"{method.rpartition('/')[2]} at {','.join(self.access.endpoints)}"

    def _forget_token(self, error: CallError) -> bool:
        """Whether the server did not take a token that a command can print anew: then it will."""
        if error.code != UNAUTHENTICATED or not self.access.token_command:
            return False
        token_command(self.access.token_command).forget()
        return True

    def _arm(self, connection: BlockingConnection) -> None:
        connection.pipe.deadline = time.monotonic() + self.access.call_seconds

    def _metadata(self) -> Sequence[tuple[str, str]]:
        token = read_token(self.access)
        return (("authorization", f"Bearer {token}"),) if token else ()

    def _connection(self) -> BlockingConnection:
        with _lock:
            kept = _idle.setdefault((os.getpid(), self.access), [])
        while kept:
            try:
                connection = kept.pop()
            except IndexError:
                break
            if connection.usable:
                return connection
            connection.close()
        failures: list[str] = []
        for _ in self.access.endpoints:
            with _lock:
                endpoint = self._choice().present
            try:
                return connect(self.access, endpoint)
            except OSError as error:
                if refused := getattr(error, "verify_message", ""):  # an SSLCertVerificationError
                    text = f"The certificate of {endpoint} is not accepted ({refused}). See tls.ca."
                    raise CallError(UNAUTHENTICATED, text) from None
                failures.append(f"{endpoint}: {error.strerror or error}")
                self._failed(endpoint, CallError(UNAVAILABLE, failures[-1]))
        raise CallError(UNAVAILABLE, f"No connection ({'; '.join(failures)}).", unsent=True)

    def _put_back(self, connection: BlockingConnection) -> None:
        """Keep a connection whose call has ended; one in the middle of a call is of no use any more."""
        connection.cancel()
        if not connection.pipe.closed:
            with _lock:
                kept = _idle.setdefault((os.getpid(), self.access), [])
                if len(kept) < 8 and connection.endpoint == self._choice().present:
                    kept.append(connection)
                    return
            connection.close()


def close_idle() -> None:
    """Close the connections that this process keeps. Those in calls are left alone."""
    with _lock:
        kept = [connection for (pid, _), some in _idle.items() if pid == os.getpid() for connection in some]
        _idle.clear()
    for connection in kept:
        connection.close()


class Upload:
    """A stream of requests: `send` messages, then `finish`; `close` in every case.

    Between messages a thread answers the server's pings, since rows may be long in coming.
    """

    def __init__(self, channel: BlockingChannel, connection: BlockingConnection, where: str) -> None:
        self._channel, self._connection, self._where = channel, connection, where
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._failed: CallError | None = None
        threading.Thread(target=self._answer_pings, name="pubsub-upload", daemon=True).start()

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message made of these buffers. Raises CallError, also for what the server answered early."""
        with self._lock, self._failures():
            self._channel._arm(self._connection)
            self._connection.send(parts)

    def finish(self) -> bytes:
        """End the stream; the response."""
        with self._lock, self._failures():
            self._channel._arm(self._connection)
            self._connection.end()
            answer = self._connection.receive(_plain)
            if answer is None or self._connection.receive(_plain) is not None:
                raise CallError(UNAVAILABLE, "The answer is not one message.")
            return bytes(answer)

    def close(self) -> None:
        """Give up what is not finished."""
        self._done.set()
        with self._lock:
            self._channel._put_back(self._connection)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except CallError as error:
            self._channel._failed(self._connection.endpoint, error)
            raise _explained(error).at(self._where) from error

    def _answer_pings(self) -> None:
        while not self._done.wait(IDLE_S):
            with self._lock:
                if self._done.is_set():
                    return
                try:
                    self._channel._arm(self._connection)
                    self._connection.answer()
                except CallError as error:
                    self._failed = error.at(self._where)
                    return


def connect(access: ServerAccess, endpoint: str) -> BlockingConnection:
    """A new connection to host:port. Raises OSError, and OptionError for files that cannot be used."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    context = tls_context(access) if access.tls else None
    sock = socket.create_connection((host, int(port)), min(CONNECT_S, access.call_seconds))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=access.server_name or host)
            if sock.selected_alpn_protocol() not in ("h2", None):
                raise OSError("the server does not speak HTTP/2")
        made = BlockingConnection(sock, access.server_name or endpoint, time.monotonic() + access.call_seconds)
        made.endpoint = endpoint
        return made
    except BaseException:
        sock.close()
        raise


def tls_context(access: ServerAccess) -> ssl.SSLContext:
    """The context for the files named. Raises OptionError, naming the option."""
    import ssl  # not needed by most; every query starts processes that import this module

    try:
        context = ssl.create_default_context(cafile=access.ca or None)
    except OSError as error:  # SSLError among them
        raise OptionError(f"The file of tls.ca, {access.ca}, cannot be used: {_reason(error)}.") from None
    context.set_alpn_protocols(["h2"])
    if access.cert:
        try:
            context.load_cert_chain(access.cert, access.key)
        except OSError as error:
            files = f"{access.cert} and {access.key}"
            raise OptionError(
                f"The files of tls.cert and tls.key, {files}, cannot be used: {_reason(error)}."
            ) from None
    return context


def read_token(access: ServerAccess) -> str:
    """The bearer token that the options name; "": none. Raises OptionError, which never holds it."""
    if access.token_env:
        token = os.environ.get(access.token_env, "")
        if not token:
            raise OptionError(f"The variable {access.token_env} of token.env is not set on {socket.gethostname()}.")
    elif access.token_file:
        try:
            with open(access.token_file, encoding="ascii") as file:
                token = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"The file of token.file, {access.token_file}, cannot be read: {_reason(error)}."
            ) from None
    elif access.token_command:
        try:
            return token_command(access.token_command).token()
        except TokenCommandError as error:
            raise OptionError(f"The option token.command: {error}.") from None
    else:
        return ""
    token = token.strip()
    if not token or not token.isprintable() or not token.isascii():
        raise OptionError("What token.file or token.env names is not a token: one line of printable ASCII.")
    return token


def details_of(error: CallError) -> list[bytes]:
    """The details that a server gave with a failure, as serialised Anys."""
    try:
        found = [rpc_messages.Status.FromString(one).details for one in error.details]
    except DecodeError:
        return []
    return [one.SerializeToString() for details in found for one in details]


def _explained(error: CallError) -> CallError:
    """The failure with the permission that it says is missing, if it does."""
    if error.code != PERMISSION_DENIED:
        return error
    try:
        missing = missing_permission(details_of(error))
    except DecodeError:
        return error
    return CallError(error.code, f"It needs {missing}.", unsent=error.unsent) if missing else error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _plain(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _pauses() -> Iterator[float]:
    pause = PAUSE_FIRST_S
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, PAUSE_MAX_S)
