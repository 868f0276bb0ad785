"""One remote disk as its user sees it: commands that wait until the server is back, or give up.

Place: between `remote_files`, which knows paths and handles, and `command_channel`.
Promise: a command is executed once and in full, however often the connection was lost on the way, unless `call` raised
`DiskUnreachable`; then it was, or it never will be once another command of ours was executed. After `abandon` nothing
of before is executed any more once this disk has answered again.
Threads: any number. Each command takes a channel of its own; there are as many as were ever needed at once.
"""

from __future__ import annotations

import errno
import math
import ssl
import threading
from collections.abc import Callable
from typing import NamedTuple

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, FolderExchanged
from syncpoint.log.diskserver.command_channel import ChannelLost, CommandChannel, Patience, Server
from syncpoint.log.diskserver.payload_cache import SentPayloads
from syncpoint.log.diskserver.protocol import LOOKUPS, DiskOp, Hello, Reply, Request, Status

Make = Callable[[int, bool], Request]
"""(which life of the server is asked, whether an earlier life may have done it) -> the request."""


class DiskAddress(NamedTuple):
    """Where a disk is served, and its name there."""

    host: str
    port: int
    disk: str


Where = Callable[[], DiskAddress | None]
"""Where the disk is served now; None while nobody knows. Called by any thread."""


Silent = dict[Server | str, tuple[float, str]]
"""A server without a sign of life, or one disk of which no more is known (its root) -> until when not to ask, why."""


class _Terms(NamedTuple):
    """Terms of one command: its token, the disk's generation, its timeout in seconds, and handles to close with it."""

    hello: Hello
    generation: int
    give_up_s: float
    closing: list[int]


class RemoteDisk:
    """All commands to one disk of one chain under one epoch."""

    def __init__(
        self,
        root: str,
        where: Where,
        hello: Hello,
        clock: Clock,
        patience: Patience,
        tls: ssl.SSLContext | None,
        silent: Silent,
        sent: SentPayloads,
    ) -> None:
        """`silent`: who does not answer; `sent`: what servers got. Of all disks."""
        self.root = root
        self.generation = 0  # goes up whenever the disk is abandoned
        self.reached = False  # since it was abandoned
        self.restarts = 0  # of the machine, seen so far
        self._where = where
        self._hello = hello
        self._clock = clock
        self._patience = patience
        self._tls = tls
        self._changed = threading.Condition()
        self._resolving = threading.Lock()
        self._free: list[CommandChannel] = []
        self._busy: list[CommandChannel] = []
        self._doubtful: list[CommandChannel] = []  # their last command was given up and may be under way
        self._channels = 0
        self._closing: list[int] = []
        self._fenced: str | None = None
        self._silent = silent
        self._sent = sent
        self._boot = ""

    def close_later(self, handle: int) -> None:
        """Notify the server with the next command that a handle which wrote nothing is not needed any more."""
        with self._changed:
            self._closing.append(handle)

    def call(self, make: Make, *, forever: bool, generation: int) -> Reply:
        """Have a command executed. `forever`: wait until the disk is back or abandoned.

        Raises `DiskFenced`, `DiskUnreachable`, and the `OSError` of the command.
        """
        if not forever and self._silent and (why := self._quiet()):
            raise self._unreachable(why)
        return self._call(make, generation, math.inf if forever else self._patience.give_up_s)

    def _quiet(self) -> str:
        """Why it is not asked at present; "" when it is. Only what was asked itself, or serves it now, counts."""
        address, now = self._where(), self._clock.monotonic()
        keys: list[Server | str] = [self.root] if address is None else [self.root, (address.host, address.port)]
        found = (self._silent.get(key, (now, "")) for key in keys)
        return next((why for until, why in found if until > now), "")

    def _call(self, make: Make, generation: int, give_up_s: float) -> Reply:
        channel, terms = self._take(generation, give_up_s)
        try:
            reply = self._until_answered(channel, terms, make)
        except BaseException:
            with self._changed:
                if generation == self.generation:
                    self._closing += terms.closing
            raise
        finally:
            self._give_back(channel)
        if reply.status == Status.FENCED:
            raise self._note_fence(terms, bytes(reply.payload).decode())
        if reply.status == Status.ERROR and reply.errno == errno.ESTALE:
            raise FolderExchanged(errno.ESTALE, bytes(reply.payload).decode(), self.root)
        if reply.status == Status.ERROR:
            raise OSError(reply.errno, bytes(reply.payload).decode(), self.root)
        return reply

    def _until_answered(self, channel: CommandChannel, terms: _Terms, make: Make) -> Reply:
        hello = terms.hello
        answered_at = self._clock.monotonic()  # of the server, or of nothing else when the command began
        sent_to = 0  # the life of the server that may have got it
        again = whole = False
        request: Request | None = None
        channel.seq += 1
        while True:
            try:
                self._resolve_doubt(hello)
                if not channel.connected:
                    self._connect(channel, hello)
                answered_at = self._clock.monotonic()
                if sent_to not in (0, channel.server):
                    again = True
                request = make(channel.server, again)
                sent_to = channel.server
                changes = request.changes if whole else self._sent.name(channel.server, request.changes)
                reply = channel.exchange(
                    request._replace(seq=channel.seq, epoch=hello.epoch, closes=terms.closing, changes=changes)
                )
                self._answered(channel)
                whole = True  # whatever comes now: what was named may not be there
                if reply.status == Status.LACKING:
                    continue
                with self._changed:
                    self.reached = self.reached or terms.generation == self.generation
                return reply
            except DiskFenced as error:
                raise self._note_fence(terms, str(error.strerror)) from None
            except ChannelLost as error:
                whole = True
                patient = self._clock.monotonic() - answered_at < terms.give_up_s
                if not self.reached or terms.generation != self.generation or not patient:
                    if terms.generation == self.generation:  # else it was us who hung up
                        until = self._clock.monotonic() + self._patience.quiet_s
                        self._silent[error.server or self.root] = until, str(error)
                    self._doubt(channel, request, sent=sent_to != 0)
                    raise self._unreachable(str(error)) from error
                with self._changed:
                    self._changed.wait(self._patience.retry_s)
            except OSError:
                if sent_to:
                    self._doubt(channel, request, sent=True)
                raise

    def _note_fence(self, terms: _Terms, why: str) -> OSError:
        """What to raise: where we gave this disk up ourselves, it was our own next session that ended this one."""
        with self._changed:
            if terms.generation != self.generation:
                return self._unreachable("this process gave it up")
            self._fenced = why
            return DiskFenced(errno.ESTALE, why)

    def _connect(self, channel: CommandChannel, hello: Hello) -> None:
        address = self._where()
        if address is None:
            raise ChannelLost("no process serves it")
        channel.connect(address.host, address.port, hello._replace(disk=address.disk))
        with self._changed:
            if self._boot not in ("", channel.boot):
                self.restarts += 1
            self._boot = channel.boot
        self._sent.found(channel.server, self.root)

    def _answered(self, channel: CommandChannel) -> None:
        if self._silent:
            self._silent.pop(self.root, None)
            if channel.place is not None:
                self._silent.pop(channel.place, None)

    def _doubt(self, channel: CommandChannel, request: Request | None, *, sent: bool) -> None:
        channel.break_off()
        channel.doubtful = sent and request is not None and request.op not in LOOKUPS

    def _resolve_doubt(self, hello: Hello) -> None:
        """Make sure that the commands given up are not executed from now on."""
        if not self._doubtful:
            return
        with self._resolving:
            while self._doubtful:
                channel = self._doubtful[0]
                self._connect(channel, hello)
                with self._changed:
                    channel.doubtful = False
                    if channel in self._doubtful:  # the disk was not abandoned in the meantime
                        self._doubtful.remove(channel)
                        self._free.append(channel)

    def _take(self, generation: int, give_up_s: float) -> tuple[CommandChannel, _Terms]:
        with self._changed:
            if self._fenced is not None:
                raise DiskFenced(errno.ESTALE, self._fenced)
            if generation != self.generation:
                raise self._unreachable("this process gave it up")
            if self._free:
                channel = self._free.pop()
            else:
                self._channels += 1
                channel = CommandChannel(self._channels, self._tls, self._patience)
            self._busy.append(channel)
            closing, self._closing = self._closing, []
            return channel, _Terms(self._hello, generation, give_up_s, closing)

    def _give_back(self, channel: CommandChannel) -> None:
        with self._changed:
            if channel not in self._busy:
                channel.break_off()  # the disk was abandoned in the meantime
                return
            self._busy.remove(channel)
            (self._doubtful if channel.doubtful else self._free).append(channel)

    def abandon(self, session: int) -> None:
        """Commands under way fail now; whatever comes later is done under another session, which ends this one's."""
        with self._changed:
            self.generation += 1
            self.reached = False
            self._hello = self._hello._replace(session=session)
            channels = self._busy + self._free + self._doubtful
            self._busy, self._free, self._doubtful, self._closing = [], [], [], []
            for channel in channels:
                channel.break_off()
            self._changed.notify_all()
        self._sent.lost(self.root)

    def leave(self, new_session: Callable[[], int], *, clean: bool) -> None:
        """Notify the server that we are done, if it is there, and hang up. The disk may be opened anew.

        A server that did not answer may hold our files open, and their locks: a session of its own ends them.
        """
        session = None
        try:
            if self.reached and self._fenced is None:
                request = Request(DiskOp.LEAVE, a=int(clean))
                self._call(lambda server, again: request, self.generation, 0.0)
                session = self._hello.session
        except OSError:
            pass  # then the server does not know that all is clean, which is safe
        finally:
            self.abandon(new_session() if session is None else session)

    def _unreachable(self, why: str) -> DiskUnreachable:
        return DiskUnreachable(errno.ETIMEDOUT, f"disk {self.root} is unreachable: {why}")
