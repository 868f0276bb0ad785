"""Several addresses for `syncpoint.client`: two sites, and two proxies of one cluster; killed, silent, switched."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.client import (
    AcknowledgeError,
    AcknowledgeStatus,
    BatchSettings,
    ClientRetry,
    FlowControl,
    Message,
    Publisher,
    Subscriber,
)
from syncpoint.client.service_link import Connecting
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("client")

RETRY = ClientRetry(maximum=0.5)
KEYS = ("a", "b", "c")


@pytest.fixture
def sites(boot: Callable[..., ServerProcess], enter: Callable[[str], Space]) -> Any:
    """Two servers that know nothing of each other, with the same topic and subscription."""
    servers = [boot(), boot()]
    spaces = [enter(server.endpoint) for server in servers]
    spaces[1].project = spaces[0].project
    names = [space.pair(enable_message_ordering=True) for space in spaces]
    assert names[0] == names[1]
    return servers, spaces, *names[0]


class Publishing(threading.Thread):
    """Publishes numbers of keys until it is ended; `confirmed`: those that were."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        super().__init__(daemon=True)
        self.publisher, self.topic = publisher, topic
        self.confirmed: list[tuple[str, int]] = []
        self.errors: list[BaseException] = []
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        try:
            while not self._over.is_set():
                outcomes = {
                    (key, n): self.publisher.publish(self.topic, b"%d" % n, ordering_key=key)
                    for n in range(number, number + 20)
                    for key in KEYS
                }
                number += 20
                for named, outcome in outcomes.items():
                    outcome.result(100)
                    self.confirmed.append(named)
        except BaseException as error:
            self.errors.append(error)

    def more(self, count: int = 200) -> None:
        """Wait until this many more are confirmed."""
        wanted = len(self.confirmed) + count
        eventually(lambda: len(self.confirmed) >= wanted or self.errors, 60)
        assert self.errors == []

    def end(self) -> None:
        self._over.set()
        self.join(120)
        assert self.errors == []


def stored(space: Space, subscription: str) -> list[tuple[str, int]]:
    """Everything that a site has, in the order of its delivery."""
    found: list[tuple[str, int]] = []
    while got := space.peek(subscription):
        found += [(one.message.ordering_key, int(one.message.data)) for one in got]
        space.ack(subscription, *got)
    return found


def firsts_in_order(found: list[tuple[str, int]]) -> bool:
    """Whether each key's messages came in order, when what came again is left out."""
    firsts = list(dict.fromkeys(found))
    return all([n for k, n in firsts if k == key] == sorted(n for k, n in firsts if k == key) for key in KEYS)


def test_a_killed_site_is_left_for_the_other_one_and_nothing_confirmed_is_lost(sites: Any) -> None:
    servers, spaces, topic, subscription = sites
    with Publisher([server.endpoint for server in servers], retry=RETRY) as publisher:
        publishing = Publishing(publisher, topic)
        publishing.start()
        publishing.more()
        assert publisher.address == servers[0].endpoint
        servers[0].kill9()
        publishing.more()
        assert publisher.address == servers[1].endpoint
        servers[0].start()
        publishing.more()
        assert publisher.address == servers[1].endpoint  # it stays
        publishing.end()
    found = [stored(space, subscription) for space in spaces]
    assert set(publishing.confirmed) <= {*found[0], *found[1]}
    assert all(map(firsts_in_order, found))
    for key in KEYS:  # what the first site has comes before, but for what was under way when it was killed
        first = [n for k, n in found[0] if k == key]
        second = [n for k, n in found[1] if k == key]
        assert max(first) - min(second) < 20
        assert {*first, *second} == set(range(max(second) + 1))


def test_a_switch_between_sites_stores_nothing_twice_and_keeps_the_order_of_keys(sites: Any) -> None:
    servers, spaces, topic, subscription = sites
    addresses = [server.endpoint for server in servers]
    with Publisher(addresses, batch_settings=BatchSettings(max_messages=7)) as publisher:
        publishing = Publishing(publisher, topic)
        publishing.start()
        publishing.more()
        publisher.switch_to(addresses[1])
        publishing.more()
        publishing.end()
        with pytest.raises(ValueError, match="none of the addresses"):
            publisher.switch_to("nowhere:1")
    found = [stored(space, subscription) for space in spaces]
    assert sorted([*found[0], *found[1]]) == sorted(publishing.confirmed)
    for key in KEYS:
        numbers = [[n for k, n in one if k == key] for one in found]
        assert numbers[0] + numbers[1] == list(range(len(numbers[0]) + len(numbers[1])))
        assert all(numbers)


def test_a_site_that_stands_still_is_left(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    servers, _, topic, subscription = sites
    of = Connecting.of
    monkeypatch.setattr(Connecting, "of", lambda *args, **options: replace(of(*args, **options), check_s=0.5))
    addresses = [server.endpoint for server in servers]
    with Publisher(addresses, retry=RETRY) as publisher, Subscriber(addresses) as subscriber:
        publishing = Publishing(publisher, topic)
        publishing.start()
        publishing.more()
        messages = subscriber.messages(subscription)
        next(messages).ack()
        assert servers[0].pid
        os.kill(servers[0].pid, signal.SIGSTOP)
        try:
            publishing.more()
            assert publisher.address == addresses[1]
            for message in messages:
                message.ack()
                if subscriber.address == addresses[1]:
                    break
        finally:
            os.kill(servers[0].pid, signal.SIGCONT)
        publishing.end()
    assert publishing.confirmed


def test_a_subscriber_goes_on_at_the_other_site_and_switches_back_when_asked(sites: Any) -> None:
    servers, spaces, topic, subscription = sites
    addresses = [server.endpoint for server in servers]
    for number, space in enumerate(spaces):
        space.publish(topic, *(b"%d-%d" % (number, n) for n in range(50)))
    seen: Counter[bytes] = Counter()

    def callback(message: Message) -> None:
        seen[message.data] += 1
        message.ack()

    with Subscriber(addresses) as subscriber:
        future = subscriber.subscribe(subscription, callback)
        eventually(lambda: len(seen) == 50)
        subscriber.switch_to(addresses[1])
        eventually(lambda: len(seen) == 100)
        servers[1].kill9()
        spaces[0].publish(topic, b"last")
        eventually(lambda: seen[b"last"] > 0)
        assert subscriber.address == addresses[0]
        future.cancel()
        future.result(20)
    assert set(seen.values()) == {1}


def test_a_switch_of_a_subscriber_waits_for_what_is_handled(sites: Any) -> None:
    servers, spaces, topic, subscription = sites
    addresses = [server.endpoint for server in servers]
    spaces[0].publish(topic, *(b"%d" % n for n in range(20)))
    held: list[Message] = []
    go_on = threading.Event()
    handled: list[bytes] = []

    def callback(message: Message) -> None:
        held.append(message)
        go_on.wait(60)
        handled.append(message.data)
        message.ack()

    with Subscriber(addresses) as subscriber:
        future = subscriber.subscribe(subscription, callback, workers=3)
        eventually(lambda: len(held) == 3)
        switching = threading.Thread(target=subscriber.switch_to, args=(addresses[1],))
        switching.start()
        free: set[str] = set()

        def all_others_are_free() -> bool:
            free.update(one.message.message_id for one in spaces[0].peek(subscription))
            return len(free) == 17

        eventually(all_others_are_free)
        assert switching.is_alive()
        assert subscriber.address == addresses[0]
        go_on.set()
        switching.join(60)
        assert subscriber.address == addresses[1]
        future.cancel()
        future.result(20)
    assert len(handled) == 3


def test_proxies_of_a_cluster_are_one_service_and_exactly_once_holds_over_kills_and_switches(
    cluster: Any, enter: Callable[[str], Space]
) -> None:
    space = enter(cluster.proxies[1])
    topic = space.topic()
    ordered = space.subscription(topic, "ordered", enable_message_ordering=True)
    once = space.subscription(topic, "once", enable_exactly_once_delivery=True)
    received: list[tuple[str, int]] = []
    done: set[tuple[str, int]] = set()  # handled, or perhaps handled
    confirmed: set[str] = set()  # by id: what was published again has another one
    again: list[str] = []
    lock = threading.Lock()

    def keep_order(message: Message) -> None:
        received.append((message.ordering_key, int(message.data)))
        message.ack()

    def keep_once(message: Message) -> None:
        named = message.ordering_key, int(message.data)
        with lock:
            if message.message_id in confirmed:
                again.append(message.message_id)
        try:
            message.ack_with_response().result(60)
        except AcknowledgeError as error:
            if error.error_code is AcknowledgeStatus.OTHER:
                done.add(named)
            return
        with lock:
            confirmed.add(message.message_id)
            done.add(named)

    addresses = cluster.proxies[:2]
    (first,) = [one.name for one in cluster.local.states() if one.pid and one.name == cluster.names("proxy")[0]]
    flow = FlowControl(max_messages=200, ack_timeout=20, lease_duration=10)
    with Publisher(addresses, retry=RETRY) as publisher, Subscriber(addresses, flow_control=flow) as subscriber:
        futures = [
            subscriber.subscribe(ordered, keep_order),
            subscriber.subscribe(once, keep_once, workers=20),
        ]
        publishing = Publishing(publisher, topic)
        publishing.start()
        publishing.more()
        cluster.local.kill(first)
        publishing.more()
        eventually(lambda: subscriber.address == publisher.address == addresses[1])
        cluster.local.start(first)
        publisher.switch_to(addresses[0])
        subscriber.switch_to(addresses[0])
        publishing.more()
        publishing.end()
        wanted = set(publishing.confirmed)
        eventually(lambda: wanted <= set(received) and wanted <= done, 90)
        for future in futures:
            future.cancel()
            future.result(60)
    assert again == []
    assert firsts_in_order(received)
    assert subscriber.address == addresses[0]
