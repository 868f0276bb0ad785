"""Lists of the console: filtered, sorted, cut, and honest about what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, PermissionDenied
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.watch.console.resource_lists import EXACT_MAX, STEP
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.transport.calls import Call, Unary
from tests.unit.watch.console.test_console_pages import OneGate, Served, run

ADMIN = methods.ADMIN
NAN = float("nan")
TOPICS, SUBSCRIPTIONS = "/console/api/topics?project=projects/p", "/console/api/subscriptions?project=projects/p"


class Kept:
    """What states and history answer; `series`: family -> short name -> values."""

    def __init__(self, served: Served) -> None:
        self.series: dict[str, dict[str, list[float]]] = {}
        self.states: dict[str, int] = {}
        self.asked: list[str] = []
        self.refused: Exception | None = None
        methods_of = served.methods
        methods_of[ADMIN.QueryHistory.encode()] = Unary(self.history)
        methods_of[ADMIN.GetTopicState.encode()] = Unary(self.topic)
        methods_of[ADMIN.GetSubscriptionState.encode()] = Unary(self.subscription)
        self._catalog = served.catalog

    def put(self, *records: Topic | Subscription) -> None:
        for change in self._catalog.assign([CatalogChange.put(one) for one in records]):
            self._catalog.apply(change)

    def history(self, call: Call, request: bytes) -> None:
        asked = admin.QueryHistoryRequest.FromString(request)
        assert list(asked.labels) == ["project=p"]
        if self.refused is not None:
            raise self.refused
        (label,) = asked.group_by
        found = self.series.get(asked.family, {})
        series = [admin.HistorySeries(labels={label: name}, values=values) for name, values in found.items()]
        call.reply(admin.QueryHistoryResponse(series=series).SerializeToString())

    def topic(self, call: Call, request: bytes) -> None:
        name = admin.GetTopicStateRequest.FromString(request).topic
        self.asked.append(name)
        state = admin.TopicState(topic=name)
        state.sources.add(first_offset=1, next_offset=1 + self.states.get(name, 0))
        call.reply(state.SerializeToString())

    def subscription(self, call: Call, request: bytes) -> None:
        name = admin.GetSubscriptionStateRequest.FromString(request).subscription
        self.asked.append(name)
        found = self.states.get(name, 0)
        call.reply(admin.SubscriptionState(backlog_messages=found, subscribers=found % 3).SerializeToString())


def topic(number: int, short: str, **labels: str) -> Topic:
    return Topic(number, f"projects/p/topics/{short}", pubsub.Topic(labels=labels).SerializeToString())


def names(page: Any) -> list[str]:
    return [one["name"].rpartition("/")[2] for one in page["rows"]]


async def page_of(served: Served, path: str, **headers: str) -> Any:
    status, _, body = await served.ask("GET", path, **headers)
    assert status == 200, body
    return body


@plain_test(run)
async def test_topics_by_their_rate_with_the_last_hour_and_the_backlog_of_their_subscriptions(served: Served) -> None:
    kept = Kept(served)
    kept.put(topic(1, "idle"), topic(2, "quick"), topic(3, "slow"))
    kept.put(*(Subscription(10 + at, f"projects/p/subscriptions/s{at}", 2, "projects/p/topics/quick") for at in (1, 2)))
    kept.series["syncpoint_topic_messages_total"] = {"quick": [1.0, 9.0, NAN], "slow": [2.0, 0.5, 0.5]}
    kept.series["syncpoint_subscription_backlog_messages"] = {"s1": [4.0, 3.0], "s2": [2.0, NAN]}
    kept.series["syncpoint_subscription_oldest_unacked_age_seconds"] = {"s1": [7.0], "s2": [8.0]}
    found = await page_of(served, f"{TOPICS}&sort=-rate")
    assert names(found) == ["quick", "slow", "idle"]
    quick, _, idle = found["rows"]
    assert (quick["rate"], quick["spark"], quick["subscriptions"]) == (9.0, [1.0, 9.0, None], 2)
    assert (quick["backlog"], quick["oldest"]) == (5.0, 8.0)
    assert (idle["rate"], idle["backlog"], idle["oldest"], found["partial"]) == (0.0, 0.0, 0.0, False)
    assert names(await page_of(served, f"{TOPICS}&sort=rate")) == ["idle", "slow", "quick"]


@plain_test(run)
async def test_what_history_does_not_name_is_unknown_and_comes_last(served: Served) -> None:
    kept = Kept(served)
    kept.put(topic(1, "a"), topic(2, "b"))
    kept.series["syncpoint_topic_messages_total"] = {"b": [1.0], "_other": [5.0]}
    for order in ("rate", "-rate"):
        found = await page_of(served, f"{TOPICS}&sort={order}")
        assert names(found) == ["b", "a"]
        assert (found["rows"][1]["rate"], found["partial"]) == (None, True)


@plain_test(run)
async def test_without_history_rates_are_unknown_and_the_list_is_there(served: Served) -> None:
    kept = Kept(served)
    kept.put(topic(1, "a"))
    kept.states["projects/p/topics/a"] = 6
    kept.refused = FailedPrecondition("nobody keeps history")
    (row,) = (found := await page_of(served, TOPICS))["rows"]
    assert (row["rate"], row["backlog"], row["stored"]) == (None, None, 6)
    assert found["unknown"] == ["QueryHistory: FAILED_PRECONDITION: nobody keeps history"]


@plain_test(run)
async def test_pages_of_many_ask_for_the_states_of_what_they_show(served: Served) -> None:
    kept = Kept(served)
    many = 2 * STEP + 1
    kept.put(*(topic(number, f"t{number:05}", team=f"x{number % 2}") for number in range(1, many + 1)))
    found = await page_of(served, f"{TOPICS}&begin=1000&size=2")
    assert (names(found), found["total"], found["matched"]) == (["t01001"], many, many)
    assert kept.asked == ["projects/p/topics/t01001"]
    assert names(await page_of(served, f"{TOPICS}&sort=-name&size=1")) == ["t01001"]
    found = await page_of(served, f"{TOPICS}&q=Team=x0&size=1")
    assert (found["matched"], found["total"]) == (STEP, many)
    kept.asked.clear()
    await page_of(served, f"{TOPICS}&sort=-stored&size=5")
    assert len(kept.asked) == 5  # none of the others is busy


@plain_test(run)
async def test_few_are_sorted_by_their_states_exactly(served: Served) -> None:
    kept = Kept(served)
    kept.put(topic(1, "t"))
    for at in range(EXACT_MAX):
        kept.put(Subscription(10 + at, f"projects/p/subscriptions/s{at:03}", 1, "projects/p/topics/t"))
        kept.states[f"projects/p/subscriptions/s{at:03}"] = at
    found = await page_of(served, f"{SUBSCRIPTIONS}&sort=-backlog&size=2")
    assert names(found) == [f"s{EXACT_MAX - 1}", f"s{EXACT_MAX - 2}"]
    assert found["rows"][0] | {"spark": 0} == {
        "name": f"projects/p/subscriptions/s{EXACT_MAX - 1}",
        "topic": "projects/p/topics/t",
        "delivery": "pull",
        "rate": 0.0,
        "spark": 0,
        "backlog": EXACT_MAX - 1,
        "bytes": 0,
        "connected": (EXACT_MAX - 1) % 3,
        "oldest": 0.0,
    }
    assert len(kept.asked) == EXACT_MAX


@plain_test(run)
async def test_who_is_refused_once_is_asked_no_more(served: Served) -> None:
    kept = Kept(served)
    kept.put(*(topic(number, f"t{number}") for number in range(1, 9)))
    kept.refused = PermissionDenied("no")
    found = await page_of(served, f"{TOPICS}&sort=-backlog")
    assert len(found["rows"]) == 8
    assert found["unknown"] == ["QueryHistory: PERMISSION_DENIED: no"]


@plain_test(run, OneGate())
async def test_who_may_list_a_project_is_asked(served: Served) -> None:
    assert (await served.ask("GET", TOPICS))[0] == 401
    assert (await served.ask("GET", SUBSCRIPTIONS))[0] == 401
    assert (await page_of(served, TOPICS, authorization="Bearer good"))["rows"] == []


@pytest.mark.parametrize("query", ["sort=color", "begin=-1", "size=201", "begin=x", f"begin={'9' * 5000}"])
@plain_test(run)
async def test_what_is_no_list_is_refused(served: Served, *, query: str) -> None:
    assert (await served.ask("GET", f"{TOPICS}&{query}"))[0] == 400
    assert (await served.ask("GET", "/console/api/topics?project=p"))[0] == 400
