"""Push subscriptions over both forwarders, with endpoints that the test plays, in simulated time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from syncpoint.base.model.names import READING_REFUSED
from syncpoint.broker.inner.pace import PaceLimits
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.http_sender import PushFailed
from syncpoint.broker.push.payload import Headers
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.broker.push.push_driver import PushDriver
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Retry, Subscription
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.consuming import ConsumerHarness

pytestmark = pytest.mark.shows("push")

URL = "https://e.example/push"
Answer = Callable[[str], Awaitable[int]]


def config(url: str = URL, **fields: Any) -> bytes:
    data: bytes = pubsub.Subscription(push_config=pubsub.PushConfig(push_endpoint=url, **fields)).SerializeToString()
    return data


class Harness(ConsumerHarness):
    """One push subscription. `answer`: what the endpoint does with a message's data."""

    TICK_S = 0.02

    def __init__(self, answer: Answer | None = None, **options: Any) -> None:
        super().__init__(**{"config": config(), **options})
        self.requests: list[tuple[float, str, str, dict[str, Any]]] = []  # when, host, data, body
        self.under_way = self.under_way_max = 0
        self.answer = answer or self.taken
        self.driver = self.new_driver()

    def new_driver(self) -> PushDriver:
        return PushDriver(self.consuming(), self, Vetting(), limits=PaceLimits(4, 3_000, 50))

    async def taken(self, data: str) -> int:
        await asyncio.sleep(0.01)
        return 200

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes, timeout_s: float) -> int:
        found = json.loads(body)
        data = base64.b64decode(found["message"]["data"]).decode()
        self.requests.append((self.clock.monotonic(), endpoint.host, data, found))
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            async with asyncio.timeout(timeout_s):
                return await self.answer(data)
        except TimeoutError:
            raise PushFailed("no answer") from None
        finally:
            self.under_way -= 1

    @property
    def data(self) -> list[str]:
        return [data for _, _, data, _ in self.requests]


def test_messages_are_pushed_and_acknowledged_once() -> None:
    harness = Harness()

    async def story() -> None:
        harness.forwarders.send(*map(str, range(300)))
        await asyncio.sleep(5)
        assert sorted(harness.data, key=int) == [str(number) for number in range(300)]
        assert 10 < harness.under_way_max <= 50  # it began with 4
        assert harness.unacknowledged() == 0
        await asyncio.sleep(60)
        assert len(harness.data) == 300
        [state] = harness.driver.states()
        assert (state.acknowledged, state.refused, state.last_error) == (300, 0, "")

    harness.run(story())


def test_an_endpoint_that_fails_is_asked_ever_more_seldom_and_served_once_it_is_back() -> None:
    back_at = 0.0

    async def answer(data: str) -> int:
        return 200 if harness.clock.monotonic() >= back_at else 503

    harness = Harness(answer)

    async def story() -> None:
        nonlocal back_at
        start = harness.clock.monotonic()
        back_at = start + 300
        harness.forwarders.send(*map(str, range(100)))
        await asyncio.sleep(300)
        assert len(harness.data) < 100  # of an endpoint that refuses every message at once
        assert harness.driver.states()[0].last_error == "the endpoint answered 503"
        late = [at for at, *_ in harness.requests if at - start > 120]
        assert len(late) < 20
        await asyncio.sleep(90)
        assert set(harness.data) == {str(number) for number in range(100)}
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_silence_until_the_deadline_is_a_failure_and_the_message_comes_again() -> None:
    async def answer(data: str) -> int:
        if len(harness.requests) == 1:
            await asyncio.sleep(1_000)
        return 204

    harness = Harness(answer)

    async def story() -> None:
        harness.forwarders.send("slow")
        await asyncio.sleep(9)
        assert harness.data == ["slow"]
        await asyncio.sleep(3)
        assert harness.data == ["slow", "slow"]
        assert harness.requests[1][0] - harness.requests[0][0] >= 10
        await asyncio.sleep(30)
        assert harness.data == ["slow", "slow"]

    harness.run(story())


def test_a_retry_policy_rests_each_message_for_itself() -> None:
    async def answer(data: str) -> int:
        return 500 if data == "bad" else 200

    harness = Harness(answer, retry=Retry(20.0, 60.0))

    async def story() -> None:
        harness.forwarders.send("bad")
        await asyncio.sleep(2)
        harness.forwarders.send(*map(str, range(50)))
        await asyncio.sleep(10)
        assert harness.data.count("bad") == 1
        assert len(harness.data) == 51
        await asyncio.sleep(20)
        assert harness.data.count("bad") == 2

    harness.run(story())


def test_ordered_messages_are_pushed_one_after_the_other_through_failures() -> None:
    failed: set[str] = set()
    taken: list[str] = []

    async def answer(data: str) -> int:
        await asyncio.sleep(0.01)
        if int(data) % 3 == 0 and data not in failed:
            failed.add(data)
            return 500
        taken.append(data)
        return 200

    harness = Harness(answer, ordered=True)

    async def story() -> None:
        for number in range(12):
            harness.forwarders.send(str(number), key="k")
        await asyncio.sleep(60)
        assert harness.under_way_max == 1
        assert taken == [str(number) for number in range(12)]

    harness.run(story())


def test_delivery_attempts_count_what_was_sent_and_nothing_else() -> None:
    """One message fails always. Those that waited behind the pauses were not sent, and are no dead letters."""

    async def answer(data: str) -> int:
        await asyncio.sleep(0.2)
        return 500 if data == "bad" else 200

    harness = Harness(answer, dead_letter=DeadLetter("projects/p/topics/dead", 5))

    async def story() -> None:
        harness.forwarders.send("bad", *map(str, range(40)))
        await asyncio.sleep(120)
        attempts = [body["deliveryAttempt"] for _, _, data, body in harness.requests if data == "bad"]
        assert attempts[:5] == [1, 2, 3, 4, 5]
        others = [body["deliveryAttempt"] for _, _, data, body in harness.requests if data != "bad"]
        assert set(others) == {1}
        assert len(others) == 40

    harness.run(story())


def test_what_waits_for_its_key_through_pauses_is_not_counted() -> None:
    async def answer(data: str) -> int:
        if data == "bad":
            return 500
        await asyncio.sleep(0.3)
        return 200

    harness = Harness(answer, ordered=True, dead_letter=DeadLetter("projects/p/topics/dead", 5))

    async def story() -> None:
        harness.forwarders.send(*map(str, range(20)), key="good")
        harness.forwarders.send("bad", key="bad")
        await asyncio.sleep(120)
        assert [body["deliveryAttempt"] for _, _, data, body in harness.requests if data == "bad"][:5] == [
            1,
            2,
            3,
            4,
            5,
        ]
        others = [(data, body["deliveryAttempt"]) for _, _, data, body in harness.requests if data != "bad"]
        assert others == [(str(number), 1) for number in range(20)]

    harness.run(story())


def test_another_ack_deadline_holds_for_what_is_pushed_from_then_on() -> None:
    async def answer(data: str) -> int:
        await asyncio.sleep(30)
        return 200

    harness = Harness(answer)

    async def story() -> None:
        await asyncio.sleep(1)
        harness.change(CatalogChange.put(replace(harness.forwarders.record, ack_deadline_s=60)))
        await asyncio.sleep(1)
        harness.forwarders.send("slow")
        await asyncio.sleep(90)
        assert harness.data == ["slow"]
        assert harness.driver.states()[0].acknowledged == 1

    harness.run(story())


def test_the_endpoint_can_be_changed_and_taken_away() -> None:
    harness = Harness()

    async def story() -> None:
        record = harness.forwarders.record
        harness.forwarders.send("1")
        await asyncio.sleep(1)
        harness.change(CatalogChange.put(_with(record, config("https://other.example/"))))
        await asyncio.sleep(1)
        harness.forwarders.send("2")
        await asyncio.sleep(1)
        harness.change(CatalogChange.put(_with(record, b"")))
        await asyncio.sleep(1)
        harness.forwarders.send("3")
        await asyncio.sleep(60)
        assert [(host, data) for _, host, data, _ in harness.requests] == [("e.example", "1"), ("other.example", "2")]
        assert harness.driver.states() == []
        harness.change(CatalogChange.put(_with(record, config())))
        await asyncio.sleep(2)
        assert harness.data == ["1", "2", "3"]  # the backlog was kept

    harness.run(story())


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_these_answers_acknowledge(status: int) -> None:
    harness = Harness(partial(answering, status))

    async def story() -> None:
        harness.forwarders.send("a")
        await asyncio.sleep(60)
        assert harness.data == ["a"]
        assert (harness.driver.acknowledged, harness.unacknowledged()) == (1, 0)

    harness.run(story())


@pytest.mark.parametrize("status", [100, 103, 203, 205, 206, 301, 302, 307, 400, 404, 429, 500, 503])
def test_after_any_other_answer_a_message_comes_again(status: int) -> None:
    harness = Harness(partial(answering, status))

    async def story() -> None:
        harness.forwarders.send("a")
        await asyncio.sleep(5)
        assert len(harness.data) > 1
        assert harness.driver.acknowledged == 0

    harness.run(story())


async def answering(status: int, data: str) -> int:
    return status


def test_after_a_change_of_the_endpoint_nothing_more_goes_to_the_earlier_one() -> None:
    async def slowly(data: str) -> int:
        await asyncio.sleep(3)
        return 200

    harness = Harness(slowly, ordered=True)

    async def story() -> None:
        harness.forwarders.send("under way", "waits", key="k")
        await asyncio.sleep(1)
        other = config("https://other.example/push")
        harness.change(CatalogChange.put(replace(harness.forwarders.record, config=other)))
        harness.forwarders.send("later", key="l")
        await asyncio.sleep(60)
        hosts = {data: host for _, host, data, _ in harness.requests}
        assert hosts.pop("under way") != "other.example"
        assert hosts == {"waits": "other.example", "later": "other.example"}
        assert len(harness.data) == 3

    harness.run(story())


def test_what_a_seek_brings_back_is_pushed_again_also_while_it_waits() -> None:
    async def slowly(data: str) -> int:
        await asyncio.sleep(1)
        return 200

    harness = Harness(slowly, ordered=True, retain_acked=True)

    async def story() -> None:
        harness.forwarders.send("a", "b", "c", key="k")
        await asyncio.sleep(1.5)  # b is under way, c waits
        seek_to_time(harness.forwarders.publish, harness.forwarders.record, 0, None)
        harness.forwarders.quiesce()
        await asyncio.sleep(30)
        assert harness.data == ["a", "b", "a", "b", "c"]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_push_under_way_counts_although_the_subscription_moves_to_another_process() -> None:
    async def answer(data: str) -> int:
        await asyncio.sleep(3)
        return 200

    harness = Harness(answer)

    async def story() -> None:
        harness.forwarders.send("1")
        await asyncio.sleep(1)
        harness.mine = False
        await asyncio.sleep(1.5)
        assert harness.driver.states() == []
        other = Harness.new_driver(harness)
        harness.mine = True
        other.start()
        await asyncio.sleep(60)
        await other.close()
        assert harness.data == ["1"]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_what_an_ended_process_had_under_way_comes_again() -> None:
    async def answer(data: str) -> int:
        await asyncio.sleep(0 if len(harness.requests) > 1 else 1_000)
        return 200

    harness = Harness(answer)

    async def story() -> None:
        harness.forwarders.send("1")
        await asyncio.sleep(1)
        await harness.driver.close()
        other = harness.new_driver()
        other.start()
        await asyncio.sleep(2)
        await other.close()
        assert harness.data == ["1", "1"]
        assert harness.unacknowledged() == 0

    harness.run(story())


def test_a_deleted_subscription_is_pushed_no_more() -> None:
    harness = Harness()

    async def story() -> None:
        harness.forwarders.send("1")
        await asyncio.sleep(1)
        harness.change(CatalogChange.delete(harness.forwarders.record))
        await asyncio.sleep(5)
        assert harness.data == ["1"]
        assert harness.driver.states() == []
        assert harness.forwarders.subscribe.deliveries == {}

    harness.run(story())


def test_what_may_not_be_pushed_says_so_and_takes_nothing() -> None:
    token = pubsub.PushConfig.OidcToken(service_account_email="pusher@p.example")
    for options in ({"config": config("https://10.0.0.1/")}, {"config": config(oidc_token=token)}):
        harness = Harness(**options)

        async def story(harness: Harness = harness) -> None:
            harness.forwarders.send("1")
            await asyncio.sleep(5)
            assert harness.data == []
            assert harness.unacknowledged() == 0
            assert harness.driver.states()[0].last_error

        harness.run(story())


def test_what_may_be_pushed_only_later_is_pushed_then() -> None:
    harness = Harness()
    harness.refusal = READING_REFUSED

    async def story() -> None:
        harness.forwarders.send("1")
        await asyncio.sleep(5)
        assert "grant it roles/pubsub.subscriber" in harness.driver.states()[0].last_error
        harness.refusal = ""
        await asyncio.sleep(5)
        assert harness.data == ["1"]
        assert harness.unacknowledged() == 0
        assert harness.driver.states()[0].last_error == ""

    harness.run(story())


def _with(record: Subscription, data: bytes) -> Subscription:
    return replace(record, config=data)


def test_what_is_lent_while_a_refusal_is_on_its_way_does_not_overtake_what_comes_again() -> None:
    async def answer(data: str) -> int:
        if data == "other":
            return 500 if len(harness.requests) < 3 else 200  # a pause begins, which "0" does not prolong
        if harness.data.count(data) == 1 and data == "0":
            await asyncio.sleep(2)
            asyncio.get_running_loop().call_soon(lend)
            return 500
        return 200

    def lend() -> None:
        harness.forwarders.send("1", key="k")
        harness.forwarders.quiesce()

    harness = Harness(answer, ordered=True)

    async def story() -> None:
        harness.forwarders.send("0", key="k")
        harness.forwarders.send("other")
        await asyncio.sleep(30)
        assert [data for data in harness.data if data != "other"] == ["0", "0", "1"]

    harness.run(story())
