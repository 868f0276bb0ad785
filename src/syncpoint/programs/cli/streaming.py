"""Messages on standard output as they come: what `subscriptions pull --follow` and `syncpoint tail` share.

Place: between a subscriber of `syncpoint.client` and a terminal or pipe.
Promises: a message counts as written once all its bytes are in the pipe, terminal or file, and is acknowledged only
then. A reader that pauses (`less`) holds up nothing but the output; one that leaves (`head`) ends the command, as
Ctrl-C does, with exit code 0.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.output import as_dict, inform, show
from syncpoint.programs.cli.settings import Settings, kept

if TYPE_CHECKING:
    import asyncio

    from syncpoint.client import AsyncSubscriber, Message

ALIGNED_MAX = 40
"""Data are padded to the widest so far, up to this, so that what follows stands in a column."""
OUTSTANDING_MESSAGES, OUTSTANDING_BYTES = 1_000, 16 << 20
END_S = 2.0
"""At the end, how long to wait for the output; for the last acknowledgements, twice as long."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_, format_option = kept(
    "format_option",
    "--format",
    type=click.Choice(["table", "json", "lines"]),
    help="The output format [table]; `lines` prints only the data, one message a line.",
)


def data_text(data: bytes) -> str:
    """Data as text where it is text, else as Python would write the bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class Lines:
    """How each message is written: `json` as an object, `lines` as its data, `table` for people."""

    def __init__(self, form: str, *, with_ack_ids: bool) -> None:
        self._form, self._with_ack_ids, self._width = form, with_ack_ids, 0

    def of(self, received: Any) -> bytes:
        """A message with the end of its line."""
        if self._form == "lines":
            return bytes(received.message.data) + b"\n"
        if self._form == "json":
            value = as_dict(received)
            if not self._with_ack_ids:
                value.pop("ackId", None)
            return json.dumps(value, ensure_ascii=False).encode(errors="replace") + b"\n"
        message = received.message
        time = message.publish_time.ToJsonString().removesuffix("Z").partition(".")
        data = data_text(message.data).replace("\n", "\\n")
        self._width = max(self._width, min(len(data), ALIGNED_MAX))
        cells = [
            f"{time[0]}.{time[2][:3]:0<3}Z",
            data.ljust(self._width),
            f"[{message.ordering_key}]" if message.ordering_key else "",
            show(dict(message.attributes)),
            received.ack_id if self._with_ack_ids else "",
        ]
        return "   ".join(cell for cell in cells if cell).rstrip().encode(errors="replace") + b"\n"


async def write_out(data: bytes) -> None:
    """Write to standard output, without blocking where its reader does not read. Raises `BrokenPipeError`."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # not a file, as in tests
        click.echo(data, nl=False)
        return
    import asyncio  # not with every command

    rest = memoryview(data)
    while rest:
        if not select.select((), (descriptor,), (), 0)[1]:
            loop, ready = asyncio.get_running_loop(), asyncio.Event()
            loop.add_writer(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(descriptor)
        rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]  # a writable pipe has room for as much


class Interruption:
    """Ctrl-C, SIGTERM and the loss of the terminal: the first ends what is followed, or what is being done beside it;
    a second one ends the command at once. A context manager.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._end: Callable[[], object] | None = None
        self._asked = False

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._came) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def ends(self, loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> Iterator[None]:
        """While this lasts, the first of them sets `over`."""
        self._end = lambda: loop.call_soon_threadsafe(over.set)
        try:
            yield
        finally:
            self._end = None

    def _came(self, number: int, frame: object) -> None:
        if self._end is None or self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._end()


class _Trouble(logging.Handler):
    """Reports what the client tries again, each failure once until messages come."""

    shown = ""

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = (record.args or ("",))[-1]  # type: ignore[index]  # see `ServiceLink.trouble`
        if isinstance(error, SyncpointError) and error.message != self.shown:
            self.shown = error.message
            inform(f"{error.code.name}: {error.message} Trying again ...")


class _Followed:
    """A subscription's messages on their way to standard output."""

    def __init__(self, subscription: str, lines: Lines, messages: float, skip: Collection[str], *, acknowledge: bool):
        import asyncio

        self._subscription, self._lines, self._skip, self._acknowledges = subscription, lines, skip, acknowledge
        self._left = messages
        self._taken: list[Message] = []  # what is neither acknowledged nor given back
        self._writing = asyncio.Lock()
        self.trouble = _Trouble(logging.WARNING)

    async def run(self, subscriber: AsyncSubscriber, over: asyncio.Event) -> None:
        """Until `over`, or until there were as many as wanted. Raises `SyncpointError`, and `BrokenPipeError`."""
        import asyncio

        writing, ended = asyncio.create_task(self._keep_writing(subscriber)), asyncio.create_task(over.wait())
        await asyncio.wait([writing, ended], return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._writing.acquire(), END_S)
        writing.cancel()
        ended.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * END_S):
                await asyncio.wait([writing, ended])
                for message in self._taken:
                    message.nack()
                await subscriber.close()
        if writing.done() and not writing.cancelled():
            writing.result()

    async def _keep_writing(self, subscriber: AsyncSubscriber) -> None:
        from syncpoint.client import FlowControl

        most = int(max(1, min(OUTSTANDING_MESSAGES, self._left)))
        flow = FlowControl(max_messages=most, max_bytes=OUTSTANDING_BYTES, max_lease_duration=inf)
        async with aclosing(subscriber.batches(self._subscription, flow_control=flow)) as batches:
            async for batch in batches:
                async with self._writing:
                    self.trouble.shown = ""
                    some = batch[: int(min(len(batch), self._left))]
                    self._taken += some
                    wanted = [self._lines.of(one.received) for one in some if one.message_id not in self._skip]
                    await write_out(b"".join(wanted))
                    self._left -= len(wanted)
                    await self._written(some)
                    for one in batch[len(some) :]:
                        one.nack()
                if self._left <= 0:
                    return

    async def _written(self, some: Sequence[Message]) -> None:
        """Acknowledge these, and wait for the answer: one that does not count comes again, unless that lasts."""
        from syncpoint.client import AcknowledgeError, AcknowledgeStatus

        if not self._acknowledges:
            if len(self._taken) >= OUTSTANDING_MESSAGES:
                held = f"{OUTSTANDING_MESSAGES:,} messages are held: no more are received."
                inform(f"{held} --auto-ack acknowledges them.")
            return
        for one in some[:-1]:
            one.ack()
        try:
            await some[-1].ack_with_response()
        except AcknowledgeError as error:
            if error.cause is not None and error.error_code is AcknowledgeStatus.PERMISSION_DENIED:
                raise error.cause from None
        self._taken.clear()


def follow(
    settings: Settings,
    subscription: str,
    interruption: Interruption,
    lines: Lines,
    *,
    messages: float = inf,
    acknowledge: bool = True,
    skip: Collection[str] = (),
) -> None:
    """Write a subscription's messages until there were as many as wanted, until --timeout or until somebody ends it.
    `skip`: ids of messages that were written before.
    """
    if sys.stdout is None:
        raise Problem("standard output is closed: nobody would get the messages")
    import asyncio

    from syncpoint.client import AsyncSubscriber

    followed = _Followed(subscription, lines, messages, skip, acknowledge=acknowledge)

    async def run() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        if settings.timeout_option:
            loop.call_later(settings.timeout_option, over.set)
        with suppress(AttributeError, OSError, ValueError):
            if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
                loop.add_reader(sys.stdout.fileno(), over.set)  # is called when the reader has gone
        with interruption.ends(loop, over):
            await followed.run(AsyncSubscriber(**reach), over)

    reach = settings.reach()
    log = logging.getLogger("syncpoint.client")
    log.addHandler(followed.trouble)
    try:
        asyncio.run(run())
    finally:
        log.removeHandler(followed.trouble)
