"""What the service consumes itself, on one server, on `serve --workers` and on a cluster: for forwards, pushes and
exports, what a seek brings back, copies that rules make, and changes of where messages go."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, Protocol

import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf import methods
from tests.integration.conftest import Space
from tests.kit.endpoint import Endpoint

pytestmark = pytest.mark.shows("forwarding")

WITHIN_S = 60.0


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


def admin(space: Space, method: str, **fields: Any) -> None:
    with Client(space.endpoint) as client:
        client.call(f"Admin.{method}", methods.ADMIN[method].request(**fields))


class Consumer(Protocol):
    """A kind: a subscription that goes to one of several targets, and what has arrived at each."""

    subscription: str

    def turn_to(self, target: int) -> None: ...
    def got(self, target: int) -> Counter[bytes]: ...


class Forwarded:
    def __init__(self, space: Space, topic: str, targets: int, **fields: Any) -> None:
        self.space, self.subscription = space, space.subscription(topic, "consumed", **fields)
        self.topics = [space.topic(f"target{number}") for number in range(targets)]
        self.readers = [space.subscription(one, f"reader{number}") for number, one in enumerate(self.topics)]
        self.found = [Counter[bytes]() for _ in self.topics]
        self.turn_to(0)

    def turn_to(self, target: int) -> None:
        options = {"subscription": self.subscription, "forward_to": self.topics[target]}
        admin(self.space, "UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})

    def got(self, target: int) -> Counter[bytes]:
        received = self.space.peek(self.readers[target])
        if received:
            self.space.ack(self.readers[target], *received)
        self.found[target].update(one.message.data for one in received)
        return self.found[target]


class Pushed:
    def __init__(self, space: Space, topic: str, targets: int, stack: ExitStack, **fields: Any) -> None:
        self.space, self.subscription = space, space.subscription(topic, "consumed", **fields)
        self.endpoints = [stack.enter_context(Endpoint()) for _ in range(targets)]
        self.found = [Counter[bytes]() for _ in self.endpoints]
        self.turn_to(0)

    def turn_to(self, target: int) -> None:
        config = {"push_endpoint": self.endpoints[target].url}
        self.space.api.modify_push_config({"subscription": self.subscription, "push_config": config})

    def got(self, target: int) -> Counter[bytes]:
        while True:
            try:
                _, body = self.endpoints[target].requests.get_nowait()
            except Empty:
                return self.found[target]
            self.found[target][base64.b64decode(json.loads(body)["message"]["data"])] += 1


class Exported:
    def __init__(self, space: Space, topic: str, folder: Path, **fields: Any) -> None:
        self.space, self.folder = space, folder
        self.subscription = space.subscription(topic, "consumed", cloud_storage_config=self.config(0), **fields)

    def config(self, target: int) -> dict[str, Any]:
        return {"bucket": "archive", "filename_prefix": f"{self.space.project}/{target}/", "max_messages": 1_000}

    def turn_to(self, target: int) -> None:
        changed = {"name": self.subscription, "cloud_storage_config": self.config(target)}
        mask = {"paths": ["cloud_storage_config"]}
        self.space.api.update_subscription({"subscription": changed, "update_mask": mask})

    def got(self, target: int) -> Counter[bytes]:
        files = self.folder.rglob(f"bucket/{self.space.project}/{target}/*")
        return Counter(line for path in files for line in path.read_bytes().split(b"\n"))


@pytest.fixture(params=["forward", "push", "export"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def consumer(
    kind: str, space: Space, stack: ExitStack, factory: pytest.TempPathFactory, *, targets: int = 1, **fields: Any
) -> tuple[str, Consumer]:
    topic = space.topic()
    if kind == "forward":
        return topic, Forwarded(space, topic, targets, **fields)
    if kind == "push":
        return topic, Pushed(space, topic, targets, stack, **fields)
    return topic, Exported(space, topic, factory.getbasetemp(), **fields)


def each_came(one: Consumer, wanted: list[bytes], times: int) -> bool:
    """Whether each has arrived at the first target this often."""
    got = one.got(0)
    return all(got[data] >= times for data in wanted)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_a_seek_brings_back_comes_again(
    kind: str, space: Space, stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, one = consumer(kind, space, stack, tmp_path_factory, retain_acked_messages=True)
    wanted = numbers(1_000)
    space.publish(topic, *wanted)
    for times in (1, 2, 3):
        eventually(partial(each_came, one, wanted, times), within=WITHIN_S)
        space.api.seek({"subscription": one.subscription, "time": {"seconds": 1}})


def test_each_copy_that_rules_make_comes(
    kind: str, space: Space, stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, one = consumer(kind, space, stack, tmp_path_factory)
    for number in range(2):
        rule = {"name": f"r{number}", "sql": "1=1", "action": f"SET sys.CorrelationId = 'copy{number}'"}
        admin(space, "CreateRule", subscription=one.subscription, rule=rule)
    admin(space, "DeleteRule", subscription=one.subscription, name="$Default")
    wanted = numbers(500)
    space.publish(topic, *wanted)
    eventually(partial(each_came, one, wanted, 2), within=WITHIN_S)
    if kind == "export":
        assert one.got(0) == Counter(dict.fromkeys(wanted, 2)), "none is written twice in place of another"


def test_after_a_change_of_where_messages_go_none_goes_to_an_earlier_place(
    kind: str, space: Space, stack: ExitStack, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    rounds = 4
    topic, one = consumer(kind, space, stack, tmp_path_factory, targets=rounds)
    for target in range(rounds):
        if target:
            one.turn_to(target)
        for start in range(0, 1_000, 100):
            space.publish(topic, *(b"%d-%d" % (target, number) for number in range(start, start + 100)))
    wanted = {b"%d-%d" % (target, number) for target in range(rounds) for number in range(1_000)}

    def all_came() -> bool:
        return wanted <= {data for target in range(rounds) for data in one.got(target)}

    eventually(all_came, within=WITHIN_S)
    if "node" in request.node.callspec.id:  # a proxy learns of the change by its watch
        for target in range(rounds):
            late = [data for data in one.got(target) if int(data.split(b"-")[0]) > target]
            assert not late, f"published after the change away from {target}"
