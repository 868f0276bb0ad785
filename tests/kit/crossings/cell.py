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
from random import Random
from typing import TYPE_CHECKING, Any, Final

import grpc

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf import methods
from tests.integration.conftest import Space
from tests.kit.crossings.outlets import Arrival, Outlet, Pulled

if TYPE_CHECKING:
    from tests.kit.crossings.features import Feature

MESSAGE_BYTES: Final = 1100
"""Length of a message's data at least: more than the smallest bound that a file of an export may have."""

PATIENCE_S: Final = 60.0
"""How long a cell waits for what has to arrive; twice as long where its house is struck at the same time."""

AGAIN: Final = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "RESOURCE_EXHAUSTED")
"""Of these a call that is made again may succeed."""

DONE: Final = {"create": ("ALREADY_EXISTS",), "delete": ("NOT_FOUND",), "detach": ("FAILED_PRECONDITION",)}
"""By how a method's name begins: what says of a call that is made again that it was done."""

Copy = tuple[int, str]
"""The number of a message, and the label of one of its copies: the name of the rule that made it, or "letter"."""

NONE: Final[Counter[Copy]] = Counter()


@dataclass(frozen=True)
class Variation:
    """Sizes and times of a cell, drawn from a seed: other seeds try other schedules.

    `each`: messages of one round. `batch`: of one request at most. `bytes_max`: of one message. `pause_s`: behind each
    request at most.
    """

    random: Random
    each: int
    batch: int
    keys: int
    bytes_max: int
    pause_s: float

    @staticmethod
    def of(seed: int, name: str) -> Variation:
        random = Random(f"{seed} {name}")
        pause_s = random.choice((0.0, 0.0, 0.02, 0.1))
        return Variation(
            random,
            random.randint(16, 30),
            random.randint(1, 6),
            random.randint(1, 4),
            random.choice((MESSAGE_BYTES, 6_000, 40_000)),
            pause_s,
        )


@dataclass
class Sent:
    """One message as it was published; `wanted` counts what has to arrive of it, `due` is when at the earliest.

    `optional`: it may arrive or not. `stored`: it is kept by its topic. `late`: it is published again, behind others of
    its key. `attempts` counts the calls that published it, `rounds` how often all of it had to arrive.
    """

    ids: list[str]
    labels: list[str]
    due: float = 0.0
    wanted: Counter[str] = field(default_factory=Counter)
    optional: bool = False
    stored: bool = True
    late: bool = False
    attempts: int = 0
    rounds: int = 1


class Cell:
    """One topic, one subscription and an outlet under some features."""

    def __init__(
        self,
        endpoint: str,
        bucket: Path,
        features: Sequence[Feature],
        name: str = "",
        *,
        seed: int = 0,
        struck: bool = False,
    ) -> None:
        """`struck`: something happens to the house, so calls are made again, and messages may arrive again."""
        self.space, self.features, self.folder, self.struck = Space(endpoint), features, bucket, struck
        self.name = name or " x ".join(one.name for one in features)
        self.variation = Variation.of(seed, self.name)
        self.patience_s = PATIENCE_S * (2 if struck else 1)
        self.call_s = 10.0 if struck else PATIENCE_S  # of one call: where nothing is struck, none is made again
        self.sent: dict[int, Sent] = {}
        self.letters: Outlet | None = None
        self.outlets: list[Outlet] = []
        self.created: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.closed = False
        self.last = ""  # the subscription behind a forward, from which messages arrive
        self.again_at_most = 0  # how often what was received may have come again: by seeks

    def __repr__(self) -> str:
        return self.name

    # -- what there is -----------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return any(one.name == name for one in self.features)

    def feature(self, name: str) -> Any:
        """The feature of this name, which the cell must have."""
        return next(one for one in self.features if one.name == name)

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
        self.subscription = self.new_subscription(self.topic, "sub", **self.created)
        if self.options:
            self.update("UpdateSubscriptionOptions", subscription=self.subscription, **self.options)
        for one in self.features:
            one.subscribed(self)

    def new_topic(self, short: str, **fields: Any) -> str:
        """Create a topic; its full name."""
        name = self.space.path("topics", short)
        self.call("create_topic", name=name, **fields)
        return name

    def new_subscription(self, topic: str, short: str, **fields: Any) -> str:
        """Create a subscription; its full name."""
        name = self.space.path("subscriptions", short)
        self.call("create_subscription", name=name, topic=topic, **fields)
        return name

    # -- calls -------------------------------------------------------------------------------------------------------

    def insist(self, call: Callable[[], Any], done: Sequence[str] = ()) -> Any:
        """The answer to a call; in a house that is struck it is made until it is answered.

        A status in `done` says of one that was made again that the first one did it.
        """
        end, attempts = time.monotonic() + self.patience_s, 0
        while True:
            attempts += 1
            try:
                return call()
            except (grpc.RpcError, SyncpointError) as error:
                code = code_of(error)
                if code in done and attempts > 1:
                    return None
                if not (self.struck and code in AGAIN) or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def call(self, method: str, **request: Any) -> Any:
        """One method of Google's API."""
        return self.insist(
            lambda: getattr(self.space.api, method)(request, timeout=self.call_s), DONE.get(method[:6].lower(), ())
        )

    def asked(self, method: str, **fields: Any) -> Any:
        """What a method of the admin service answers."""
        path = methods.ADMIN[method]
        patience_s = 0.0 if self.struck else self.patience_s  # `insist` does it

        def ask() -> Any:
            with Client(self.space.endpoint, timeout_s=20.0, patience_s=patience_s) as client:
                return client.call(f"Admin.{method}", path.request(**fields))

        return self.insist(ask, DONE.get(method[:6].lower(), ()))

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

    def publish(self, rounds: float = 1.0) -> list[int]:
        """Publish the next messages, as many as so many rounds have, in requests of one to several; their numbers.

        A message that a feature's topic has to refuse has been refused.
        """
        first = max(self.sent, default=-1) + 1
        numbers = list(range(first, first + int(rounds * self.variation.each)))
        waiting: list[tuple[dict[str, Any], Sent]] = []
        for number in numbers:
            message, sent = self._message(number)
            alone = next((one for one in self.features if one.publishes(self, message)), None)
            same_key = not waiting or waiting[0][0].get("ordering_key") == message.get("ordering_key")
            if waiting and (alone or not same_key or len(waiting) >= self.variation.batch):
                self.send(waiting)
                waiting = []
            if alone is None:
                waiting.append((message, sent))
            else:
                alone.publish(self, message, sent)
        if waiting:
            self.send(waiting)
        for number in numbers:
            sent = self.sent[number]
            if sent.ids and not sent.optional:
                sent.wanted.update(sent.labels)
        return numbers

    def _message(self, number: int) -> tuple[dict[str, Any], Sent]:
        length = self.variation.random.randint(MESSAGE_BYTES, self.variation.bytes_max)
        message: dict[str, Any] = {
            "data": json.dumps({"n": number}).encode().ljust(length),
            "attributes": {"n": str(number)},
        }
        sent = self.sent[number] = Sent([], [""])
        for one in self.features:
            one.message(self, number, message, sent)
        sent.labels = self.copies(number)
        if self.refuses(number):
            sent.labels = ["letter"] * len(sent.labels)
        return message, sent

    def copies(self, number: int) -> list[str]:
        """The labels of the copies that a message has in the subscription."""
        labels = [""]
        for one in self.features:
            labels = one.copies(number, labels)
        return labels

    def redriven(self, number: int) -> list[str]:
        """The labels of the copies that arrive of its letters, which are published to their subscription's topic."""
        copies = self.copies(number)
        return copies if self.last else copies * len(copies)

    def send(self, messages: Sequence[tuple[dict[str, Any], Sent]]) -> None:
        """Publish messages in one request, with the official client's call, as often as the features do it."""

        def once() -> Any:
            for _, sent in messages:
                sent.attempts += 1
            request = {"topic": self.topic, "messages": [message for message, _ in messages]}
            return self.space.api.publish(request, timeout=self.call_s)

        for _ in range(max(one.times for one in self.features)):
            for (_, sent), identifier in zip(messages, self.insist(once).message_ids, strict=True):
                sent.ids.append(identifier)
            time.sleep(self.variation.random.uniform(0.0, self.variation.pause_s))

    # -- the ledger --------------------------------------------------------------------------------------------------

    def again(self, before: Counter[Copy] = NONE) -> None:
        """Each copy that was ever wanted has to arrive once more, but for those that had arrived `before`."""
        self.again_at_most += 1
        for number, sent in self.sent.items():
            sent.rounds += 1
            if sent.wanted:
                sent.wanted.update(label for label in sent.labels if not before[number, label])

    def forget(self, numbers: Sequence[int], *, published: bool = False) -> None:
        """Nothing more of these messages may arrive, but for those that are published later, when they are due.

        `published`: all of these were. One that has become due may have been.
        """
        arrived = self.counted(labelled=True)[1]
        for number in numbers:
            sent = self.sent[number]
            if published or not sent.due:
                for label in sent.wanted:
                    sent.wanted[label] = min(sent.wanted[label], arrived[number, label])
            elif sent.due <= time.time():
                sent.optional = True
                sent.wanted.clear()

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
            eventually(lambda: not missing(), self.patience_s)
        except AssertionError:
            raise AssertionError(f"lost (number, label: times): {missing()}") from None

    def judge(self) -> None:
        """Everything wanted has arrived, nothing is left to come, and, if no process died, nothing came too often."""
        self.complete()
        try:
            eventually(self._empty, self.patience_s)
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
        assert self.struck or not surplus, f"arrived too often (number, label: times): {dict(surplus)}"
        for one in self.features:
            one.judge(self)
        self._judge_ids()

    def _judge_ids(self) -> None:
        """No copy is stored under more ids than its message was published with, each time it had to arrive."""
        ids: dict[Copy, dict[str, str]] = {}
        for one in self.arrivals():
            ids.setdefault((one.number, one.label), {})[one.message_id] = one.attributes.get(FORWARDED_FROM, "")
        once = self.has("duplicate detection") and not self.has("pipeline write")
        for (number, label), found in ids.items():
            sent = self.sent[number]
            allowed = (1 if once else max(sent.attempts, 1)) * sent.rounds * max(sent.labels.count(label), 1)
            assert len(found) <= allowed, (
                f"{number} {label} was published {allowed} times as {sent.ids}, and is {found}"
            )

    def _empty(self) -> bool:
        """Nothing is left to deliver. What an exactly-once subscription lent may outlive its time for ten minutes."""
        kept = sum(one.optional for one in self.sent.values()) if self.has("exactly once") else 0
        states = [
            self.asked("GetSubscriptionState", subscription=name) for name in (self.subscription, self.last) if name
        ]
        return all(one.backlog_messages <= kept and not one.unknown for one in states)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition within the time a cell has."""
        eventually(condition, self.patience_s, what)

    def close(self) -> None:
        """End what receives, then the clients. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        for outlet in [*self.outlets, *([self.letters] if self.letters else [])]:
            outlet.close()
        self.space.close()


def code_of(error: BaseException) -> str:
    """The name of the status that a call failed with."""
    return str(error.code.name if isinstance(error, SyncpointError) else error.code().name)  # type: ignore[attr-defined]


def soon(seconds: float) -> tuple[str, float]:
    """A point in time so far ahead: as an attribute is written, and in seconds since 1970."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.isoformat(), at.timestamp()
