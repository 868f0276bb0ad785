"""The transforms of a topic or a subscription, one after another, on a list of messages.

Place: called where messages come in, and where they are delivered. Promise: each message has an outcome of its own: as
it is afterwards, dropped, or why it could not be transformed. Id, publish time and ordering key never change, nor do
the counts that end circles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from httpcore import AsyncNetworkBackend

from syncpoint.base.model.limits import PUBLISH_REQUEST_BYTES_MAX as MESSAGE_BYTES_MAX
from syncpoint.base.model.names import project_of
from syncpoint.base.model.reserved import COUNTS, keep
from syncpoint.base.runtime.project_turns import ShareOf
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.catalog.transforms.compression import compressed
from syncpoint.catalog.transforms.errors import NotTried, SandboxUnavailable, TransformError
from syncpoint.catalog.transforms.inference import Models
from syncpoint.catalog.transforms.model_client import ModelClient
from syncpoint.catalog.transforms.sandbox import Function, Result, Sandbox
from syncpoint.wire.protobuf.messages import pubsub

OFF_LOOP_BYTES: Final = 64 << 10  # more is compressed in a thread
TURN_BYTES: Final = 256 << 10  # are converted in a turn of the event loop, and a message that is larger by itself
MESSAGE_COST_BYTES: Final = 2048  # what a message costs besides its bytes, in bytes
RESULTS_BYTES_MAX: Final = 64 << 20  # of all messages of a list, after one transform
Outcome = pubsub.PubsubMessage | TransformError | None
"""A message, None where it was dropped, or an error."""


class Transformer:
    """Apply the transforms of a topic or subscription, in order, to a list of messages. One for a process."""

    def __init__(self, sandbox: Sandbox, models: Models) -> None:
        self.sandbox, self.models = sandbox, models
        self.given = self.dropped = self.failed = 0  # messages that came, and those that came to nothing

    @classmethod
    def of(cls, models: Mapping[str, str], connect: AsyncNetworkBackend | None = None) -> Transformer:
        """`models`: for each endpoint name its URL, as the operator configured it. `connect`: see `ModelClient`."""
        return cls(Sandbox(), Models(models, ModelClient(connect)))

    def share(self, share_of: ShareOf) -> None:
        """Let projects have their turns together with those they share them with."""
        self.sandbox.turns.share_of = share_of
        for turns in self.models.turns.values():
            turns.share_of = share_of

    async def close(self) -> None:
        """End its processes and connections."""
        await self.sandbox.close()
        if isinstance(self.models.client, ModelClient):
            await self.models.client.close()

    async def transformed(self, of: Topic | Subscription, messages: Sequence[pubsub.PubsubMessage]) -> list[Outcome]:
        """What the transforms of a topic or a subscription make of messages; see `apply`."""
        return await self.apply(project_of(of.name), of.transforms, messages, of=of)

    async def apply(
        self,
        project: str,
        transforms: Sequence[pubsub.MessageTransform],
        messages: Sequence[pubsub.PubsubMessage],
        *,
        of: Topic | Subscription | None = None,
    ) -> list[Outcome]:
        """An outcome for each message; the messages themselves are not changed. `project`: whose transforms they are;
        `of`: what has them. Raises `SandboxUnavailable`.
        """
        outcomes: list[Outcome] = list(messages)
        for index, transform in enumerate(transforms):
            if transform.disabled:
                continue
            left = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, pubsub.PubsubMessage)]
            given = [outcomes[place] for place in left]
            found = await self._one(project, transform, given, of)  # type: ignore[arg-type]
            for place, outcome in zip(left, found, strict=True):
                if isinstance(outcome, TransformError):
                    outcome = type(outcome)(f"message_transforms[{index}]: {outcome}")
                outcomes[place] = outcome
        self.given += len(messages)
        self.dropped += sum(one is None for one in outcomes)
        self.failed += sum(isinstance(one, TransformError) for one in outcomes)
        return outcomes

    async def _one(
        self,
        project: str,
        transform: pubsub.MessageTransform,
        messages: Sequence[pubsub.PubsubMessage],
        of: Topic | Subscription | None,
    ) -> Sequence[Outcome]:
        match transform.WhichOneof("transform"):
            case "javascript_udf":
                return await self._udf(project, transform.javascript_udf, messages)
            case "compression":
                kind = transform.compression
                room = _Room()
                return [await _data(one, partial(_compressed, kind), room) for one in messages]
            case "ai_inference":
                ask = partial(self.models.infer, project, transform.ai_inference, of=of)
                room = _Room()
                return await asyncio.gather(*(_data(one, ask, room) for one in messages))
        return messages  # unset: nothing to do

    async def _udf(
        self, project: str, kind: pubsub.JavaScriptUDF, messages: Sequence[pubsub.PubsubMessage]
    ) -> Sequence[Outcome]:
        outcomes: list[Outcome] = list(messages)
        places, texts = [], []
        pieces = _Pieces()
        for place, message in enumerate(messages):
            await pieces.after(len(message.data))
            try:
                texts.append(_as_json(message))
                places.append(place)
            except UnicodeDecodeError:
                outcomes[place] = TransformError("the data is not valid UTF-8, which a function needs")
        try:
            function = Function(kind.function_name, kind.code)
            results: Sequence[Result] = await self.sandbox.run(project, function, texts)
        except TransformError as error:
            results = [error] * len(texts)
        for place, result in zip(places, results, strict=True):
            await pieces.after(len(result) if isinstance(result, str) else 0)
            outcomes[place] = _changed(messages[place], result) if isinstance(result, str) else result
        return outcomes


class _Pieces:
    """Conversions of messages, cut so that others have their turn."""

    def __init__(self) -> None:
        self._size = 0

    async def after(self, size: int) -> None:
        """Make room for a message of this size."""
        self._size += size + MESSAGE_COST_BYTES
        if self._size > TURN_BYTES:
            self._size = 0
            await asyncio.sleep(0)


class _Room:
    """How many bytes more the messages of a list may have together."""

    def __init__(self) -> None:
        self.left = RESULTS_BYTES_MAX

    def take(self, size: int) -> None:
        """Raises `TransformError` for what is too large, `NotTried` where others have taken the room."""
        if size > MESSAGE_BYTES_MAX:
            raise TransformError(f"the result is larger than {MESSAGE_BYTES_MAX} bytes")
        self.left -= size
        if self.left < 0:
            raise NotTried(f"the results of its batch exceed {RESULTS_BYTES_MAX >> 20} MiB")


async def _data(message: pubsub.PubsubMessage, change: Callable[[bytes], Awaitable[bytes]], room: _Room) -> Outcome:
    try:
        room.take(0)
        data = await change(message.data)
        room.take(len(data))
    except TransformError as error:
        return error
    changed = pubsub.PubsubMessage()
    changed.CopyFrom(message)
    changed.data = data
    return changed


async def _compressed(kind: pubsub.Compression, data: bytes) -> bytes:
    # Decompressing may bring a hundred times as much as it is given.
    decompress = kind.compression_mode == pubsub.Compression.DECOMPRESS
    if len(data) * (100 if decompress else 1) <= OFF_LOOP_BYTES:
        return compressed(data, kind)
    return await asyncio.to_thread(compressed, data, kind)


def _as_json(message: pubsub.PubsubMessage) -> str:
    metadata: dict[str, str] = {}
    if message.message_id:
        metadata["message_id"] = message.message_id
    if message.HasField("publish_time"):
        metadata["publish_time"] = message.publish_time.ToDatetime().strftime("%Y-%m-%dT%H:%M:%SZ")
    if message.ordering_key:
        metadata["ordering_key"] = message.ordering_key
    return json.dumps([{"data": message.data.decode(), "attributes": dict(message.attributes)}, metadata])


def _changed(message: pubsub.PubsubMessage, result: str) -> Outcome:
    changed = pubsub.PubsubMessage()
    changed.CopyFrom(message)
    changed.attributes.clear()
    try:
        found = json.loads(result)
        changed.data = found["data"].encode()
        changed.attributes.update(found["attributes"])
        keep(COUNTS, message.attributes, changed.attributes)
    except (UnicodeEncodeError, ValueError):
        return TransformError("it returned text that is not valid Unicode")
    if len(changed.data) > MESSAGE_BYTES_MAX:
        return TransformError(f"it returned a message larger than {MESSAGE_BYTES_MAX} bytes")
    return changed


__all__ = ["Outcome", "SandboxUnavailable", "Transformer"]
