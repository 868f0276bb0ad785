"""A subscribe forwarder's end of the stream Serve, driven by a test."""

from __future__ import annotations

import asyncio
from typing import Any

from syncpoint.base.kernel import frames
from syncpoint.base.kernel.acks import encode_runs
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from tests.kit.chain import SUB_NUMBER, Process


class Subscriber:
    """A subscribe forwarder's end of Serve, driven by a test."""

    def __init__(self, process: Process, incarnation: int, member: str = "") -> None:
        self.process, self.incarnation = process, incarnation
        process.harness.streams += 1
        self.place = process.harness.streams  # of all streams, in the order they were made
        self.stream = process.channel.stream(methods.CHAINS.Serve)
        self.member = member or f"s{incarnation}"
        self.received: list[Any] = []
        self.sources: dict[int, Any] = {}
        self.revoked: list[tuple[int, int]] = []
        self.answers: dict[int, Any] = {}
        self.number = 0
        self.beating, self.stream_ended = True, False
        self.releasing = True
        self.cursors: dict[int, int] = {}
        self.generation = 0
        self.owned: list[int] = []
        self.data: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Subscriber:
        await self.send_message(
            hello=internal.Hello(
                member=self.member, incarnation=self.incarnation, registered=self.incarnation, stream=self.place
            )
        )
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._receive()), loop.create_task(self._beat())]
        return self

    async def attached(self, *subscription: int, **options: Any) -> Subscriber:
        """Start, and serve a subscription."""
        await self.start()
        await self.attach(*subscription, **options)
        return self

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.beating:
                self.number += 1
                await self.send_message(heartbeat=internal.Heartbeat(number=self.number))

    async def _receive(self) -> None:
        try:
            await self._receive_all()
        finally:
            self.stream_ended = True

    async def _receive_all(self) -> None:
        while (data := await self.stream.receive()) is not None:
            message = internal.FromChains.FromString(data)
            kind = message.WhichOneof("what")
            what = getattr(message, kind)
            self.received.append((kind, what))
            if kind == "sources":
                self.generation = max(self.generation, what.generation)
                for source in what.sources:
                    self.sources[source.number] = source
                    if source.done:
                        del self.sources[source.number]
            elif kind == "revoke":
                self.revoked.append((what.source, what.grant))
                self.sources.pop(what.source, None)
                if self.releasing:
                    await self.send_message(
                        released=internal.Released(subscription=what.subscription, source=what.source, grant=what.grant)
                    )
            elif kind == "data":
                self.data.append(what.source)
            elif kind == "owned":
                self.owned = list(what.chains)
            elif kind in ("fetched", "acknowledged"):
                self.answers[what.id] = what

    async def send_message(self, **what: Any) -> None:
        await self.stream.send(internal.ToChains(**what).SerializeToString())

    async def attach(self, subscription: int = SUB_NUMBER, wanted: bool = True, **grants: int) -> None:
        held = [internal.Grant(source=int(source), grant=grant) for source, grant in grants.items()]
        await self.send_message(attach=internal.Attach(subscription=subscription, wanted=wanted, grants=held))
        await asyncio.sleep(0.05)

    @property
    def granted(self) -> dict[int, int]:
        return {number: source.grant for number, source in self.sources.items() if source.grant}

    async def _answer(self, number: int) -> Any:
        for _ in range(2000):
            if number in self.answers:
                return self.answers[number]
            await asyncio.sleep(0.01)
        raise AssertionError("no answer")

    async def fetch(
        self, source: int, begin: int = 0, *, grant: int | None = None, subscription: int = SUB_NUMBER
    ) -> Any:
        self.number += 1
        number = self.number
        await self.send_message(
            fetch=internal.Fetch(
                id=number, subscription=subscription, source=source, begin=begin, max_bytes=1 << 20,
                grant=self.granted.get(source, 0) if grant is None else grant, generation=self.generation,
            )
        )  # fmt: skip
        return await self._answer(number)

    async def read(self, source: int, begin: int = 0, subscription: int = SUB_NUMBER) -> list[str]:
        """Everything from there on that is not acknowledged."""
        out: list[str] = []
        while True:
            answer = await self.fetch(source, begin, subscription=subscription)
            assert not answer.error, answer.error
            if not answer.batches:
                return out
            for batch in answer.batches:
                for offset in range(batch.begin, batch.end):
                    at = offset - batch.first_offset
                    if not (batch.skip and batch.skip[at >> 3] >> (at & 7) & 1):
                        raw = frames.message_at(batch.payload, at)
                        out.append(pubsub.PubsubMessage.FromString(raw).data.decode())
                begin = batch.end

    async def read_all(self, subscription: int = SUB_NUMBER) -> list[str]:
        out = []
        for source in sorted(self.granted):
            out += await self.read(source, subscription=subscription)
        return out

    async def ack(self, source: int, *runs: tuple[int, int], grant: int | None = None) -> Any:
        self.number += 1
        number = self.number
        await self.send_message(
            acknowledge=internal.Acknowledge(
                id=number, subscription=SUB_NUMBER, generation=self.generation, source=source, runs=encode_runs(runs),
                urgent=True, grant=self.granted.get(source, 0) if grant is None else grant,
            )
        )  # fmt: skip
        return await self._answer(number)

    def lose(self) -> None:
        """The stream breaks."""
        for task in self.tasks:
            task.cancel()
        self.stream.cancel()
