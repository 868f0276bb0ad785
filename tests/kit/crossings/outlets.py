"""Where the messages of a crossing arrive: pulled by an official client, pushed to an endpoint, exported to files."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc

from syncpoint.testing.rigs import official
from tests.integration.conftest import Space
from tests.kit.endpoint import Endpoint


@dataclass(frozen=True)
class Arrival:
    """One copy of a message that was received and kept."""

    number: int
    label: str
    when: float
    message_id: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


class Outlet(Protocol):
    """Receives until it is closed. `labelled`: arrivals show which rule made a copy."""

    labelled: bool

    def arrivals(self) -> list[Arrival]:
        """What has arrived so far."""
        ...

    def close(self) -> None:
        """Stop receiving."""
        ...


class Pulled:
    """Pulls and acknowledges in a thread, through whatever happens to the server; gives back what `refuses`.

    `confirmed`: of what was received, what the server said to be acknowledged.
    """

    labelled = True

    def __init__(self, space: Space, subscription: str, refuses: Callable[[int], bool] = lambda number: False) -> None:
        self._api, self.subscription, self._refuses = official.Api(space.endpoint), subscription, refuses
        self._found: list[Arrival] = []
        self.confirmed: Counter[tuple[int, str, str]] = Counter()  # number, label and id of what was acknowledged
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crossing", daemon=True)
        self._thread.start()

    def arrivals(self) -> list[Arrival]:
        return list(self._found)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._turn()
            except grpc.RpcError:  # suspended, deleted for a moment, or the server is down: the ledger judges
                self._over.wait(0.1)

    def _turn(self) -> None:
        answer = self._api.pull({"subscription": self.subscription, "max_messages": 100}, timeout=3)
        kept, refused, copies = [], [], []
        for one in answer.received_messages:
            attributes = dict(one.message.attributes)
            number = int(attributes["n"])
            if self._refuses(number):
                refused.append(one.ack_id)
            else:
                kept.append(one.ack_id)
                label, identifier = attributes.get("RuleName", ""), one.message.message_id
                self._found.append(Arrival(number, label, time.time(), identifier, attributes))
                copies.append((number, label, identifier))
        if kept:
            self._api.acknowledge({"subscription": self.subscription, "ack_ids": kept}, timeout=10)
            self.confirmed.update(copies)
        if refused:
            request = {"subscription": self.subscription, "ack_ids": refused, "ack_deadline_seconds": 0}
            self._api.modify_ack_deadline(request, timeout=10)

    def close(self) -> None:
        self._over.set()
        self._thread.join(15)
        self._api.close()


class Pushed(Endpoint):
    """An endpoint that takes what is pushed, but for what `refuses`, which it answers with 500."""

    labelled = True

    def __init__(self, refuses: Callable[[int], bool] = lambda number: False) -> None:
        super().__init__()
        self._refuses = refuses
        self._found: list[Arrival] = []

    def status_of(self, body: bytes) -> int:
        message = json.loads(body)["message"]
        number = int(json.loads(base64.b64decode(message["data"]))["n"])
        if self._refuses(number):
            return 500
        attributes = message.get("attributes", {})
        identifier = message["messageId"]
        self._found.append(Arrival(number, attributes.get("RuleName", ""), time.time(), identifier, attributes))
        return 204

    def arrivals(self) -> list[Arrival]:
        return list(self._found)


class Bucket:
    """The files that an export has finished below a prefix of a bucket."""

    labelled = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arrivals(self) -> list[Arrival]:
        paths = sorted(one for one in self.folder.rglob("*") if one.is_file() and one.suffix != ".part")
        lines = [(path, line) for path in paths for line in path.read_bytes().splitlines() if line]
        return [Arrival(int(json.loads(line)["n"]), "", path.stat().st_mtime) for path, line in lines]

    def close(self) -> None:
        """Nothing runs here."""
