"""Programs of two tenants of one server: a quiet one that publishes and receives at an even pace and measures it, and a
noisy one that publishes as fast as it is answered.

Place: for `bench.neighbor`; each is a process of its own, `python -m tests.kit.neighbors WHAT PORT PROJECT TOKEN`. When
its input ends, the quiet one prints its times as JSON, the noisy one how many of its calls were answered and refused.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import threading
import time
from typing import Final

import grpc

from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

RATE: Final = 100
"""Messages that the quiet one publishes in a second, each in a call of its own."""
BYTES: Final = 1000
TOGETHER: Final = 10
"""Messages in a call of the noisy one."""
CALLERS: Final = 16
CONNECTIONS: Final = 4


async def quiet(port: str, project: str, token: str) -> dict[str, list[float]]:
    """Seconds from a message's publish to the answer, and to its receipt."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        metadata = [("authorization", token)]
        answers: list[float] = []
        receipts: list[float] = []
        publish = channel.unary_unary(methods.PUBLISHER.Publish)
        stream = channel.stream_stream(methods.SUBSCRIBER.StreamingPull)(metadata=metadata)
        first = pubsub.StreamingPullRequest(subscription=f"{project}/subscriptions/sss", stream_ack_deadline_seconds=60)
        await stream.write(first.SerializeToString())

        async def receive() -> None:
            async for response in stream:
                now = time.monotonic()
                found = pubsub.StreamingPullResponse.FromString(response).received_messages
                receipts.extend(now - struct.unpack_from("d", one.message.data)[0] for one in found)
                acks = pubsub.StreamingPullRequest(ack_ids=[one.ack_id for one in found])
                await stream.write(acks.SerializeToString())

        async def one() -> None:
            began = time.monotonic()
            data = struct.pack("d", began).ljust(BYTES, b"q")
            request = pubsub.PublishRequest(topic=f"{project}/topics/ttt", messages=[{"data": data}])
            await publish(request.SerializeToString(), metadata=metadata, timeout=60)
            answers.append(time.monotonic() - began)

        over = _input_ends()
        receiving, sent = asyncio.create_task(receive()), set()
        await one()
        print("begun", flush=True)
        due = time.monotonic()
        while not over.is_set():
            sent.add(task := asyncio.create_task(one()))
            task.add_done_callback(sent.discard)
            due += 1 / RATE
            await asyncio.sleep(due - time.monotonic())
        await asyncio.gather(*sent)
        for _ in range(600):
            if len(receipts) >= len(answers):
                break
            await asyncio.sleep(0.1)
        receiving.cancel()
        return {"answers": sorted(answers[1:]), "receipts": sorted(receipts[1:])}


async def noisy(port: str, project: str, token: str) -> dict[str, int]:
    """Calls that heed no refusal: each is followed by the next one at once."""
    counts = {"answered": 0, "refused": 0}
    request = pubsub.PublishRequest(topic=f"{project}/topics/ttt", messages=[{"data": b"n" * BYTES}] * TOGETHER)
    data, over = request.SerializeToString(), _input_ends()

    async def caller(channel: grpc.aio.Channel) -> None:
        publish = channel.unary_unary(methods.PUBLISHER.Publish)
        while not over.is_set():
            try:
                await publish(data, metadata=[("authorization", token)], timeout=60)
                counts["answered"] += 1
            except grpc.RpcError:
                counts["refused"] += 1

    own = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each channel
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", own) for _ in range(CONNECTIONS)]
    print("begun", flush=True)
    await asyncio.gather(*(caller(channel) for channel in channels for _ in range(CALLERS // CONNECTIONS)))
    for channel in channels:
        await channel.close()
    return counts


def _input_ends() -> asyncio.Event:
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def read() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=read, daemon=True).start()
    return over


if __name__ == "__main__":
    print(json.dumps(asyncio.run({"quiet": quiet, "noisy": noisy}[sys.argv[1]](*sys.argv[2:]))))
