"""Transforms that a test plays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from syncpoint.catalog.transforms.message_transforms import Outcome, Transformer
from syncpoint.wire.protobuf.messages import pubsub


class PlayedTransformer(Transformer, ABC):
    """Its `play` says what becomes of messages."""

    async def apply(
        self,
        project: str,
        transforms: Sequence[pubsub.MessageTransform],
        messages: Sequence[pubsub.PubsubMessage],
        *,
        of: object = None,
    ) -> list[Outcome]:
        return await self.play(transforms, messages)

    @abstractmethod
    async def play(self, transforms: Sequence[Any], messages: Sequence[Any]) -> list[Outcome]:
        """What comes of the messages."""
