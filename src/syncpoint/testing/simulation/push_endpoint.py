"""An endpoint of push subscriptions in a simulation: what is pushed reaches a client, or does not.

Place: instead of HTTP, in every simulated proxy; addresses are not checked.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING

from syncpoint.broker.push.http_sender import PushFailed
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.testing.rigs.history import Outcome
from syncpoint.wire.protobuf.messages import pubsub

if TYPE_CHECKING:
    from syncpoint.testing.simulation.api_clients import ApiClients

URL = "https://endpoint.example/"


class SimEndpoint:
    """As one life of a proxy sees it; see `push_driver.Sender`."""

    def __init__(self, sim: ApiClients, caller: str) -> None:
        self.sim, self.caller = sim, caller

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        """Takes most of what comes; some it refuses, and of some it is not known whether it took them."""
        sim, found = self.sim, json.loads(body)
        chance, message = sim.random.random(), found["message"]
        await asyncio.sleep(sim.random.random() ** 3 * 0.3)
        if chance < 0.05:
            sim.coverage.sometimes("a push is refused")
            return 503
        name = found["subscription"].rpartition("/")[2]
        sim.received(
            name,
            f"{name}-{self.caller}",
            pubsub.PubsubMessage(
                message_id=message["message_id"],
                data=base64.b64decode(message["data"]),
                ordering_key=message.get("orderingKey", ""),
            ),
        )
        # It has the message, so it counts as acknowledged by somebody, whether that is found out or not.
        sim.history.end(sim.history.acking(name, message["message_id"]), Outcome.UNKNOWN)
        if chance < 0.1:
            sim.coverage.sometimes("the answer to a push is lost")
            await asyncio.sleep(sim.random.random() * 2)
            raise PushFailed("the connection is lost")
        return 200
