"""One crossing at work: numbered messages go in, arrivals come out, and a ledger says what had to come how often.

A cell has a project of its own: a topic, a subscription to it, and an outlet where its messages arrive. Its features
decide how both are configured and which copies of a message are wanted; an event is what a test does to it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from syncpoint.client.client import Client
from syncpoint.testing.official import eventually
from syncpoint.wire import methods
from tests.integration.conftest import Space
from tests.kit.crossings.outlets import Arrival, Outlet, Pulled

if TYPE_CHECKING:
    from tests.kit.crossings.features import Feature

EACH: Final = 20
"""Messages of one round of publishing."""

MESSAGE_BYTES: Final = 1100
"""Length of each message's data: more than the smallest bound that a file of an export may have."""

PATIENCE_S: Final = 60.0
"""How long a cell waits for what has to arrive."""

Copy = tuple[int, str]
"""The number of a message, and the label of one of its copies: the name of the rule that made it, or "letter"."""

NONE: Final[Counter[Copy]] = Counter()


@dataclass
class Sent:
    """One message as it was published; `wanted` counts what has to arrive of it, `due` is when at the earliest.

    `optional`: it may arrive or not. `stored`: it is kept by its topic. `attempts` counts the calls that published it.
    """

    ids: list[str]
    labels: list[str]
    due: float = 0.0
    wanted: Counter[str] = field(default_factory=Counter)
    optional: bool = False
    stored: bool = True
    attempts: int = 0


class Cell:
    """One topic, one subscription and an outlet under some features."""

    def __init__(self, endpoint: str, bucket: Path, features: Sequence[Feature]) -> None:
        self.space, self.features, self.folder = Space(endpoint), features, bucket
        self.sent: dict[int, Sent] = {}
        self.letters: Outlet | None = None
        self.outlets: list[Outlet] = []
        self.created: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.closed = False
        self.last = ""  # the subscription behind a forward, from which messages arrive

    def __repr__(self) -> str:
        return " x ".join(one.name for one in self.features)

    # -- what there is -----------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return any(one.name == name for one in self.features)

    def open(self) -> None:
        """Create what the features ask for, and begin to receive."""
        topic: dict[str, Any] = {"message_retention_duration": {"seconds": 3600}}
        for one in self.features:
            topic |= one.topic(self)
        self.topic = self.space.topic(**topic)
        options: dict[str, Any] = {}
        for one in self.features:
            options |= one.topic_options(self)
        if options:
            self.update("UpdateTopicOptions", topic=self.topic, **options)
        self.created = {"ack_deadline_seconds": 60, "retain_acked_messages": True}
        for one in self.features:
            self.created |= one.subscription(self)
            self.options |= one.subscription_options(self)
        if not self.last:
            self.created |= self.finals()
        self.subscribe()
        own = [outlet for one in self.features for outlet in one.outlets(self)]
        self.outlets += own or [Pulled(self.space, self.last or self.subscription, self.refuses)]

    def finals(self) -> dict[str, Any]:
        """Fields of the subscription from which messages arrive."""
        return {name: value for one in self.features for name, value in one.final(self).items()}

    def subscribe(self) -> None:
        """Create the subscription with its options and rules."""
        self.subscription = self.space.subscription(self.topic, **self.created)
        if self.options:
            self.update("UpdateSubscriptionOptions", subscription=self.subscription, **self.options)
        for one in self.features:
            one.subscribed(self)

    def asked(self, method: str, **fields: Any) -> Any:
        """What a method of the admin service answers."""
        path = methods.ADMIN[method]
        with Client(self.space.endpoint, timeout_s=20.0, patience_s=60.0) as client:
            return client.call(f"Admin.{method}", path.request(**fields))

    def update(self, method: str, **options: Any) -> None:
        """Change options of the topic or the subscription that `options` names first."""
        mask = [name for name in options if name not in ("topic", "subscription")]
        self.asked(method, options=options, update_mask={"paths": mask})

    def suspend(self, suspended: bool = True) -> None:
        """Suspend or resume receiving from the subscription."""
        self.update("UpdateSubscriptionOptions", subscription=self.subscription, receive_suspended=suspended)

    def refuses(self, number: int) -> bool:
        """Whether the receiver gives this message back each time."""
        return any(one.refuses(number) for one in self.features)

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, count: int = EACH, *, insist: bool = False) -> list[int]:
        """Publish the next messages, one request each; with `insist` until each is answered well.

        Returns their numbers. A message that a feature's topic has to refuse has been refused.
        """
        first = max(self.sent, default=-1) + 1
        numbers = list(range(first, first + count))
        for number in numbers:
            self._publish(number, insist)
        return numbers

    def _publish(self, number: int, insist: bool) -> None:
        message: dict[str, Any] = {
            "data": json.dumps({"n": number}).encode().ljust(MESSAGE_BYTES),
            "attributes": {"n": str(number)},
        }
        sent = Sent([], [""])
        self.sent[number] = sent
        for one in self.features:
            one.message(number, message, sent)
        for one in self.features:
            sent.labels = one.copies(number, sent.labels)
        if self.refuses(number) and sent.labels:
            sent.labels = ["letter"] * len(sent.labels)
        for one in self.features:
            if one.publish(self, message, sent, insist):
                break
        else:
            self.send(message, sent, insist)
        if sent.ids and not sent.optional:
            sent.wanted.update(sent.labels)

    def send(self, message: dict[str, Any], sent: Sent, insist: bool = False) -> None:
        """Publish one request of one message with the official client's call."""
        end = time.monotonic() + PATIENCE_S
        while True:
            sent.attempts += 1
            try:
                answer = self.space.api.publish({"topic": self.topic, "messages": [message]}, timeout=10)
            except grpc.RpcError as error:
                again = error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "RESOURCE_EXHAUSTED")
                if not (insist and again) or time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                sent.ids += answer.message_ids
                return

    # -- the ledger --------------------------------------------------------------------------------------------------

    def again(self, before: Counter[Copy] = NONE) -> None:
        """Each copy that was ever wanted has to arrive once more, but for those that had arrived `before`."""
        for number, sent in self.sent.items():
            if sent.wanted:
                sent.wanted.update(label for label in sent.labels if not before[number, label])

    def forget(self, numbers: Sequence[int]) -> None:
        """Nothing more of these messages may arrive, but for those that are published later, when they are due."""
        arrived = self.counted(labelled=True)[1]
        for number in numbers:
            if not self.sent[number].due:
                wanted = self.sent[number].wanted
                for label in wanted:
                    wanted[label] = min(wanted[label], arrived[number, label])

    def arrivals(self) -> list[Arrival]:
        """Everything that has arrived, in order of arrival at each outlet."""
        found = [one for outlet in self.outlets for one in outlet.arrivals()]
        if self.letters is not None:
            found += [replace(one, label="letter") for one in self.letters.arrivals()]
        return found

    def counted(self, labelled: bool) -> tuple[Counter[Copy], Counter[Copy]]:
        """What was wanted, and what has arrived; without labels where the outlet does not show them."""
        wanted: Counter[Copy] = Counter()
        for number, sent in self.sent.items():
            for label, count in sent.wanted.items():
                wanted[number, label if labelled else ""] += count
        return wanted, Counter((one.number, one.label if labelled else "") for one in self.arrivals())

    def complete(self) -> None:
        """Wait until everything that is wanted has arrived; fails with what is missing."""

        def missing() -> dict[Copy, int]:
            labelled = all(one.labelled for one in self.outlets)
            wanted, got = self.counted(labelled)
            return dict(wanted - got)

        try:
            eventually(lambda: not missing(), PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"lost (number, label: times): {missing()}") from None

    def judge(self, *, exact: bool) -> None:
        """Everything wanted has arrived, nothing is left to come, and with `exact` nothing came too often."""
        self.complete()
        try:
            eventually(self._empty, PATIENCE_S)
        except AssertionError:
            state = self.asked("GetSubscriptionState", subscription=self.subscription)
            raise AssertionError(f"{state.backlog_messages} messages are never acknowledged: {state}") from None
        self.complete()
        labelled = all(one.labelled for one in self.outlets)
        wanted, got = self.counted(labelled)
        known = {number for number, sent in self.sent.items() if not sent.optional}
        surplus = Counter({copy: count for copy, count in (got - wanted).items() if copy[0] in known})
        never = {copy for copy in surplus if wanted[copy] == 0}
        assert not never, f"arrived though not wanted: {sorted(never)}"
        assert not exact or not surplus, f"arrived too often (number, label: times): {dict(surplus)}"
        for one in self.features:
            one.judge(self)

    def judge_ids(self) -> None:
        """No copy is stored under more ids than its message was published with."""
        ids: dict[Copy, set[str]] = {}
        for one in self.arrivals():
            ids.setdefault((one.number, one.label), set()).add(one.message_id)
        once = self.has("duplicate detection") and not self.has("pipeline write")
        for (number, label), found in ids.items():
            allowed = 1 if once else max(self.sent[number].attempts, 1)
            assert len(found) <= allowed, f"{number} {label} was published {allowed} times and has the ids {found}"

    def _empty(self) -> bool:
        """Nothing is left to deliver. What an exactly-once subscription lent may outlive its time for ten minutes."""
        kept = sum(one.optional for one in self.sent.values()) if self.has("exactly once") else 0
        states = [
            self.asked("GetSubscriptionState", subscription=name) for name in (self.subscription, self.last) if name
        ]
        return all(one.backlog_messages <= kept and not one.unknown for one in states)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition within the time a cell has."""
        eventually(condition, PATIENCE_S, what)

    def close(self) -> None:
        """End what receives, then the clients. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        for outlet in [*self.outlets, *([self.letters] if self.letters else [])]:
            outlet.close()
        self.space.close()


def soon(seconds: float) -> tuple[str, float]:
    """A point in time so far ahead: as an attribute is written, and in seconds since 1970."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.isoformat(), at.timestamp()
