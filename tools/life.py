"""Follow one message through the running code, and write every file it passes into docs/life-of-a-message.md.

Usage: life.py (renew the page's tables) | life.py --check (exit code 1 when they differ from the code).

One node serves in simulated time, with real files and with the kernel as Python, so that every call can be traced; a
client of a few lines publishes a message, receives it and acknowledges it. Time passes only when nothing is left to do:
what runs between two steps of the client runs because of the message. Deletion waits for the clock; of what the clock
does then, what it does as well while nothing can be deleted is left out.
"""

from __future__ import annotations

import ast
import asyncio
import difflib
import os
import re
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING_SHOWS = {"SYNCPOINT_PURE_KERNEL": "1", "PYTHONHASHSEED": "0"}  # calls of the compiled kernel would not
if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in EVERYTHING_SHOWS.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | EVERYTHING_SHOWS)
sys.path.insert(0, str(ROOT / "src"))

import hpack  # noqa: E402

from syncpoint.node.doors import Doors  # noqa: E402
from syncpoint.node.process import Node  # noqa: E402
from syncpoint.node.settings import ServeSettings  # noqa: E402
from syncpoint.publish.upkeep import LogUpkeep  # noqa: E402
from syncpoint.runtime.clock import Clock, ManualClock  # noqa: E402
from syncpoint.runtime.random import SeededRandom  # noqa: E402
from syncpoint.storage.keeper import Keeper  # noqa: E402
from syncpoint.storage.lanes import InlineLane, Lane  # noqa: E402
from syncpoint.storage.settings import StorageSettings  # noqa: E402
from syncpoint.storage.workers import Result, Step, one_by_one  # noqa: E402
from syncpoint.testing.simulated_loop import run_simulated  # noqa: E402
from syncpoint.transport.server import Server  # noqa: E402
from syncpoint.wire.messages import pubsub  # noqa: E402

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7  # kinds of frames
SOURCES = str(ROOT / "src" / "syncpoint") + os.sep
TOPIC, SUBSCRIPTION = "projects/demo/topics/orders", "projects/demo/subscriptions/billing"
PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"
PAGE = ROOT / "docs" / "life-of-a-message.md"
BEGIN, END = "<!-- {}: written by `make life` -->\n", "<!-- end -->\n"
STRETCHES = ("published", "delivered", "acknowledged", "deleted")
# Words, clocks and small helpers that everything uses: no stations.
NO_STATIONS = (
    "kernel/_", "model/", "runtime/clock", "runtime/held", "runtime/random", "runtime/trusted", "storage/checksum",
    "storage/layout", "storage/settings", "testing/", "wire/",
)  # fmt: skip
SEGMENT_ENTRIES = 20
DELIVERING = "subscribe/"
COLLECT = LogUpkeep.collect.__qualname__  # what deletes, by the clock
KEEPER = Keeper.__module__.removeprefix("syncpoint.").replace(".", "/")  # ... and what does so on a disk
IN_A_MOMENT_S = 1e-6  # less than any timer: everything that can happen now has happened
BEFORE_A_TICK_S = 0.015  # more than acknowledgements wait for company, less than to the next tick


class InlineWorkers:
    """Workers whose steps run on the loop, when it is their turn."""

    def start(self, name: str, step: Step, *, waits: bool = False) -> InlineWorker:
        return InlineWorker(step)

    def lane(self, name: str, clock: Clock) -> Lane:
        return InlineLane()

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        return one_by_one(calls)


class InlineWorker:
    def __init__(self, step: Step) -> None:
        self._step, self._loop = step, asyncio.get_running_loop()
        self._ended = False
        self._due: asyncio.Handle | None = None
        self.wake()

    def wake(self) -> None:
        if not self._ended:
            self._again(0.0)

    def stop(self, timeout_s: float) -> bool:
        self._ended = True
        return True

    def _again(self, delay: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(delay, self._run) if delay else self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._due = None
        if not self._ended:
            delay = self._step()
            if delay is not None and self._due is None:
                self._again(delay)


class Client(asyncio.Protocol):
    """As much of gRPC over HTTP/2 as one message needs, and nothing of the product's code."""

    def __init__(self) -> None:
        self._encoder, self._buffer, self._next = hpack.Encoder(), b"", 1
        self.bodies: dict[int, bytes] = {}
        self._news = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(SETTINGS, 0, 0, b""))

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def close(self) -> None:
        self._transport.close()

    def begin(self, path: str, message: Any, *, end: bool) -> int:
        """Send the head and one message of a call; returns its stream."""
        stream, self._next = self._next, self._next + 2
        self.bodies[stream] = b""
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a"),
                ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
        self._transport.write(self._frame(HEADERS, 4, stream, self._encoder.encode(head)))
        self.send(stream, message, end=end)
        return stream

    def send(self, stream: int, message: Any, *, end: bool = False) -> None:
        body = message.SerializeToString()
        self._transport.write(self._frame(DATA, int(end), stream, struct.pack(">BI", 0, len(body)) + body))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + length:
                return
            kind, flags, stream = self._buffer[3], self._buffer[4], int.from_bytes(self._buffer[5:9], "big")
            payload = self._buffer[9 : 9 + length]
            if kind == DATA:
                self.bodies[stream] += payload
            elif kind == PING and not flags:
                self._transport.write(self._frame(PING, 1, 0, payload))
            elif kind == GOAWAY or (kind == HEADERS and flags & 1 and payload.count(b"grpc-status\x010") != 1):
                raise RuntimeError(f"the server refuses: {payload!r}")
            self._buffer = self._buffer[9 + length :]
        self._news.set()

    async def answer(self, stream: int) -> bytes:
        """The next message of a stream."""
        while True:
            body = self.bodies[stream]
            if len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5], "big"):
                end = 5 + int.from_bytes(body[1:5], "big")
                self.bodies[stream] = body[end:]
                return body[5:end]
            self._news.clear()
            await self._news.wait()

    async def call(self, path: str, message: Any) -> bytes:
        return await self.answer(self.begin(path, message, end=True))


Place = tuple[str, str]  # a file without its ending, a function


class Trace:
    """Calls from one file into another, each pair of file and function once, with the way that led to it."""

    def __init__(self) -> None:
        self.ways: dict[tuple[Place, bool], list[Place]] = {}  # by place, and whether delivering led to it

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCES):
            return
        here = _place(frame)
        if (here, True) in self.ways and (here, False) in self.ways:
            return
        way, back = [here], frame.f_back
        while back is not None:
            if back.f_code.co_filename.startswith(SOURCES):
                caller = _place(back)
                if caller[0] != way[-1][0]:
                    way.append(caller)
                elif len(way) == 1:
                    return  # within the file
            back = back.f_back
        way.reverse()
        self.ways.setdefault((here, any(file.startswith(DELIVERING) for file, _ in way)), way)


def _place(frame: FrameType) -> Place:
    function = frame.f_code.co_qualname.partition(".<locals>.<")[0].replace(".<locals>", "")
    return frame.f_code.co_filename.removeprefix(SOURCES).removesuffix(".py"), function


@contextmanager
def traced(into: dict[str, Trace], name: str) -> Iterator[None]:
    """Everything that runs meanwhile is noted."""
    into[name] = Trace()
    sys.setprofile(into[name])
    try:
        yield
    finally:
        sys.setprofile(None)


def messages(*data: bytes) -> Any:
    return pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=one) for one in data])


async def follow(folder: Path, clock: ManualClock) -> dict[str, Trace]:
    """The life of one message: what ran in each stretch of it, and while nothing could be deleted ("idle")."""
    servers: list[Server] = []

    async def serve(methods: Any, host: str, port: int, *, tls: object, limits: Any) -> Server:
        servers.append(Server(methods, limits, None, asyncio.get_running_loop()))
        return servers[0]

    doors = Doors(
        make_workers=InlineWorkers,
        notifier=lambda loop: loop.call_soon,
        serve=serve,
        keep_memory=lambda: None,
        settle_memory=lambda: None,
    )
    storage = StorageSettings(
        segment_bytes=64 * 1024, segment_entries_max=SEGMENT_ENTRIES, pool_segments=1, reserve_bytes=0
    )
    node = Node(ServeSettings(data=folder, storage=storage), clock=clock, random=SeededRandom(1), doors=doors)
    await node.start()
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    await loop.connect_accepted_socket(servers[0].make_connection, near)
    _, client = await loop.create_connection(Client, sock=far)
    await client.call(PUBLISHER + "CreateTopic", pubsub.Topic(name=TOPIC))
    await client.call(SUBSCRIBER + "CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC))
    pull = client.begin(
        SUBSCRIBER + "StreamingPull",
        pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=600),
        end=False,
    )

    async def receive() -> list[str]:
        response = pubsub.StreamingPullResponse.FromString(await client.answer(pull))
        return [one.ack_id for one in response.received_messages]

    def acknowledge(ack_ids: list[str]) -> None:
        client.send(pull, pubsub.StreamingPullRequest(ack_ids=ack_ids))

    found: dict[str, Trace] = {}
    await client.call(PUBLISHER + "Publish", messages(b"the first one opens the source"))
    first = await receive()
    await asyncio.sleep(70.041)  # between two ticks; what is due once a minute has been done
    with traced(found, "published"):
        await client.call(PUBLISHER + "Publish", messages(b"hello"))
        await asyncio.sleep(IN_A_MOMENT_S)
    with traced(found, "delivered"):
        followed = await receive()
        await asyncio.sleep(IN_A_MOMENT_S)
    others: list[str] = []
    for _ in range(SEGMENT_ENTRIES):  # its segment ends
        await client.call(PUBLISHER + "Publish", messages(b"another"))
        others += await receive()
    with traced(found, "idle"):
        acknowledge(first)
        await asyncio.sleep(10)
    with traced(found, "acknowledged"):
        acknowledge(followed + others)
        await asyncio.sleep(BEFORE_A_TICK_S)
    with traced(found, "deleted"):
        await asyncio.sleep(10)
    client.close()
    await node.stop()
    return found


def stations(found: dict[str, Trace]) -> dict[str, dict[str, tuple[str, str]]]:
    """Per stretch the files in their order: by which function each is entered, and from which file."""
    tables: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in STRETCHES}
    for name in STRETCHES:
        for (here, delivering), way in found[name].ways.items():
            collected = COLLECT in {function for _, function in way}
            kept = KEEPER in {file for file, _ in way} and (here, delivering) not in found["idle"].ways
            wanted = (collected or kept) if name == "deleted" else not collected
            if not wanted:
                continue
            early = name == "published" and delivering  # delivery begins while the publisher is being answered
            begin = next(at for at, (file, _) in enumerate(way) if file.startswith(DELIVERING)) if early else 0
            table = tables["delivered" if early else name]
            for at, (file, function) in enumerate(way):
                if at < begin or file.startswith(NO_STATIONS):
                    continue
                caller = way[at - 1][0] if at else ""
                known = table.setdefault(file, (function, caller))
                if "__" in known[0] and known[1] == caller:
                    table[file] = (function, caller)  # says more than a constructor does
    return tables


def first_sentence(file: str) -> str:
    """What a file says of itself."""
    text = ast.get_docstring(ast.parse(Path(SOURCES, file + ".py").read_text())) or ""
    sentence = re.split(r"(?<=\.)\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]
    return sentence.rstrip(".").replace("|", "\\|")


def table(rows: dict[str, tuple[str, str]]) -> str:
    """One stretch as the page has it."""
    lines = ["| file | entered by | from | what it says of itself |", "|---|---|---|---|"]
    for file, (function, caller) in rows.items():
        known = f"`{caller}`" if caller and not caller.startswith(NO_STATIONS) else "the event loop"
        lines.append(f"| `{file}` | `{function}` | {known} | {first_sentence(file)} |")
    return "\n".join([*lines, ""])


def renewed(page: str, tables: dict[str, dict[str, tuple[str, str]]]) -> str:
    """The page with these tables in their places."""
    for name, rows in tables.items():
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not end:
            raise SystemExit(f"{PAGE.name} has no place for the table {name!r}: a line {begin!r} and a line {END!r}")
        page = before + begin + table(rows) + end + after
    return page


def main(arguments: list[str]) -> int:
    """Renew or check the page."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        life = asyncio.wait_for(follow(Path(folder) / "data", clock), 1000)
        tables = stations(run_simulated(clock, life))
    old = PAGE.read_text()
    new = renewed(old, tables)
    if "--check" not in arguments:
        PAGE.write_text(new)
    elif old != new:
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "code", lineterm="", n=0):
            print(line)
        print(f"docs/{PAGE.name} does not show the way that a message takes now. `make life` renews it.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
