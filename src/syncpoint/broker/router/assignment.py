"""What a topic and a subscription are assigned to, as it stands in the metadata.

Place: written by routers, read by proxies and forwarders. Values only; JSON is their stored form, and fields that a
newer version added are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`chains` share the ordering keys of the topic (`rendezvous.pick_chain`); `epoch` counts the changes of that set.

    They lie in one region. `elsewhere`: region -> the chains there that share messages without a key, of publishers for
    whom that region is the nearest one allowed.
    """

    epoch: int
    chains: tuple[int, ...]
    elsewhere: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The stored form."""
        values: dict[str, Any] = {"epoch": self.epoch, "chains": list(self.chains)}
        if self.elsewhere:
            values["elsewhere"] = {region: list(chains) for region, chains in sorted(self.elsewhere.items())}
        return json.dumps(values, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> TopicAssignment:
        """Raises `ValueError` for anything else."""
        found = _mapping(data)
        elsewhere = {str(region): _numbers(chains) for region, chains in found.get("elsewhere", {}).items()}
        return TopicAssignment(int(found["epoch"]), _numbers(found["chains"]), elsewhere)


@dataclass(frozen=True, slots=True)
class SubscriptionAssignment:
    """`members` share the clients of the subscription; `epoch` counts the changes."""

    epoch: int
    members: tuple[str, ...]

    def encode(self) -> bytes:
        """The stored form."""
        return json.dumps({"epoch": self.epoch, "members": list(self.members)}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> SubscriptionAssignment:
        """Raises `ValueError` for anything else."""
        found = _mapping(data)
        return SubscriptionAssignment(int(found["epoch"]), tuple(map(str, found["members"])))


def _mapping(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict) or "epoch" not in found:
        raise ValueError("not an assignment in JSON")
    return found


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(map(int, values))
