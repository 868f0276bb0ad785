"""Lists of topics and subscriptions, a page at a time: filtered, sorted by any column, with what each does now and did
in the last hour.

Place: two pages of the console; names come from the catalog, rates from kept history, the rest from the state of each.
Promise: a page costs no more than a walk over the names of its project, in steps that hold nobody up, and `EXACT_MAX`
questions; everything is asked as the caller. History names the busiest of a project only. Where others count too,
`partial` is set, and what is unknown of them is sorted last, never shown as zero.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from starlette.requests import Request

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.base.model.names import parse_project
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.watch.console.inner_calls import called
from syncpoint.watch.metrics.ranked import OTHER
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Methods

STEP: Final = 500  # records checked in one turn of the event loop
SIZE_MAX: Final = 200
EXACT_MAX: Final = 200
"""Topics or subscriptions that are asked for their state for one page, or to sort by it."""
AT_ONCE: Final = 4
ANSWER_S: Final = 5.0
HOUR_S: Final = 3600
SPARK_S: Final = 120  # for each point of an hour
RECENT_S: Final = 60
_FINAL: Final = (Code.PERMISSION_DENIED, Code.UNAUTHENTICATED, Code.UNIMPLEMENTED)
_TOPIC_COLUMNS: Final = ("name", "subscriptions", "retention", "rate", "stored", "backlog", "oldest")
_SUBSCRIPTION_COLUMNS: Final = ("name", "topic", "delivery", "connected", "rate", "backlog", "bytes", "oldest")
_STANDING: Final = {
    "backlog": "syncpoint_subscription_backlog_messages",
    "bytes": "syncpoint_subscription_backlog_bytes",
    "oldest": "syncpoint_subscription_oldest_unacked_age_seconds",
    "connected": "syncpoint_subscription_subscribers",
}


class ListAsked(NamedTuple):
    """What a page shows: `wanted` is in its names, `sort` is a column."""

    project: str
    wanted: str
    sort: str
    descending: bool
    begin: int
    size: int

    @staticmethod
    def of(query: Mapping[str, str], columns: Sequence[str]) -> ListAsked:
        """Read the query: `project`, `q`, `sort` (with - before it: largest first), `begin`, `size`. Raises
        `InvalidArgument`.
        """
        sort = query.get("sort", "name")
        column = sort.removeprefix("-")
        if column not in columns:
            raise InvalidArgument("sort", f"{column!r} is not a column; choose from {', '.join(columns)}")
        begin, size = (_count(query, name, most) for name, most in (("begin", 10**9), ("size", SIZE_MAX)))
        project = parse_project(query.get("project", ""))
        return ListAsked(project, query.get("q", "").lower(), column, sort != column, begin, size or 50)


@dataclass(slots=True)
class Figures:
    """Numbers by the short names of what has them. `partial`: others have some, which are unknown."""

    rates: dict[str, list[float | None]] = field(default_factory=dict)
    standing: dict[str, dict[str, float]] = field(default_factory=dict)
    partial: bool = False
    known: bool = True

    def rate(self, name: str) -> float | None:
        """The newest one; None: it is unknown."""
        found = next((one for one in reversed(self.rates.get(name, ())) if one is not None), None)
        return self._or_zero(found)

    def now(self, column: str, name: str) -> float | None:
        """What it stands at."""
        return self._or_zero(self.standing.get(column, {}).get(name))

    def _or_zero(self, found: float | None) -> float | None:
        return 0.0 if found is None and self.known and not self.partial else found


class ResourceLists:
    """The pages. `served`: methods with their gate."""

    def __init__(self, served: Methods, catalog: Catalog) -> None:
        self._served, self._catalog = served, catalog

    async def topics(self, request: Request) -> dict[str, Any]:
        """A page of topics. Raises `InvalidArgument`."""
        asked, asking = ListAsked.of(request.query_params, _TOPIC_COLUMNS), _Asking(self._served, request)
        records, total = await _matching(self._catalog.topics_in, asked, _topic_words)
        figures = await self._figures(asking, asked.project, "topic", "syncpoint_topic_messages_total", ())
        held = await self._figures(asking, asked.project, "subscription", "", ("backlog", "oldest"))
        backlogs = self._by_topic(asked.project, held)

        def row(record: Topic, state: admin.TopicState | None) -> dict[str, Any]:
            config, short = pubsub.Topic.FromString(record.config), _short(record.name)
            stored = None if state is None else sum(one.next_offset - one.first_offset for one in state.sources)
            none = 0.0 if held.known and not held.partial else None
            return {
                "name": record.name,
                "labels": dict(config.labels),
                "schema": config.schema_settings.schema,
                "retention": record.retention_s,
                "subscriptions": self._catalog.subscription_count_of(record.incarnation),
                "stored": stored,
                "rate": figures.rate(short),
                "spark": figures.rates.get(short, []),
                "backlog": backlogs.get(record.incarnation, (none, none))[0],
                "oldest": backlogs.get(record.incarnation, (none, none))[1],
            }

        async def state_of(record: Topic) -> Any:
            return await asking.state(methods.ADMIN.GetTopicState, admin.GetTopicStateRequest(topic=record.name))

        busy = figures.rates
        rows = await _page(asked, records, row, state_of, ("stored",), lambda one: _short(one.name) in busy)
        partial = figures.partial or held.partial
        return {"rows": rows, "total": total, "matched": len(records), "partial": partial, "unknown": asking.unknown}

    async def subscriptions(self, request: Request) -> dict[str, Any]:
        """A page of subscriptions. Raises `InvalidArgument`."""
        asked, asking = ListAsked.of(request.query_params, _SUBSCRIPTION_COLUMNS), _Asking(self._served, request)
        records, total = await _matching(self._catalog.subscriptions_in, asked, _subscription_words)
        family = "syncpoint_subscription_messages_total"
        figures = await self._figures(asking, asked.project, "subscription", family, tuple(_STANDING))

        def row(record: Subscription, state: admin.SubscriptionState | None) -> dict[str, Any]:
            config, short = pubsub.Subscription.FromString(record.config), _short(record.name)
            now: dict[str, Any] = {column: figures.now(column, short) for column in _STANDING}
            if state is not None:
                now = {
                    "backlog": state.backlog_messages,
                    "bytes": state.backlog_bytes,
                    "connected": state.subscribers,
                    "oldest": state.oldest_unacked_age.ToTimedelta().total_seconds(),
                }
            return {
                "name": record.name,
                "topic": "" if self._catalog.topic_of(record) is None else record.topic_name,
                "delivery": _delivery(record, config),
                "rate": figures.rate(short),
                "spark": figures.rates.get(short, []),
                **now,
            }

        async def state_of(record: Subscription) -> Any:
            request = admin.GetSubscriptionStateRequest(subscription=record.name, ranges_max=1)
            return await asking.state(methods.ADMIN.GetSubscriptionState, request)

        waiting = figures.standing.get("backlog", {})
        rows = await _page(asked, records, row, state_of, tuple(_STANDING), lambda one: _short(one.name) in waiting)
        known = {"partial": figures.partial, "unknown": asking.unknown}
        return {"rows": rows, "total": total, "matched": len(records), **known}

    def _by_topic(self, project: str, held: Figures) -> dict[int, tuple[float | None, float | None]]:
        """Sum up backlogs by topic, and find the oldest age, for topics whose subscriptions history knows."""
        found: dict[int, tuple[float | None, float | None]] = {}
        for short, messages in held.standing.get("backlog", {}).items():
            record = self._catalog.subscription(f"{project}/subscriptions/{short}")
            if record is not None:
                before, age = found.get(record.topic_incarnation, (0.0, 0.0))
                oldest = held.standing.get("oldest", {}).get(short, 0.0)
                found[record.topic_incarnation] = ((before or 0.0) + messages, max(age or 0.0, oldest))
        return found

    async def _figures(self, asking: _Asking, project: str, label: str, rates: str, standing: Sequence[str]) -> Figures:
        """What history has: a counter's rates over the last hour, and where gauges stood last."""
        found, now = Figures(), int(time.time())
        if rates:
            over = await asking.history(project, label, rates, now - HOUR_S, SPARK_S)
            found.known = over is not None
            found.rates = {name: values for name, values in (over or {}).items() if name != OTHER}
            found.partial = any(one for one in (over or {}).get(OTHER, ())[-2:])
        for column in standing:
            over = await asking.history(project, label, _STANDING[column], now - RECENT_S, 0)
            found.known = found.known and over is not None
            newest = {name: [one for one in values if one is not None][-1:] for name, values in (over or {}).items()}
            found.partial = found.partial or any(newest.pop(OTHER, ()))
            found.standing[column] = {name: values[0] for name, values in newest.items() if values}
        return found


class _Asking:
    """Questions for one page, as its caller. `unknown`: those that had no answer, each once."""

    def __init__(self, served: Methods, request: Request) -> None:
        self._served, self._request = served, request
        self._refused: set[Method] = set()
        self.unknown: list[str] = []

    async def state(self, method: Method, asked: Message) -> Any:
        """The response; None: it is unknown. Who is refused once asks no more."""
        if method in self._refused:
            return None
        try:
            if method.encode() not in self._served:
                raise SyncpointError(Code.UNIMPLEMENTED, f"This server has no method {method}.")
            return await called(self._served, method, asked, self._request, ANSWER_S)
        except SyncpointError as error:
            if error.code in _FINAL:
                self._refused.add(method)
            text = f"{method.rpartition('/')[2]}: {error}"
            if error.code is not Code.NOT_FOUND and text not in self.unknown and len(self.unknown) < AT_ONCE:
                self.unknown.append(text)
            return None

    async def history(
        self, project: str, label: str, family: str, begin_s: int, step_s: int
    ) -> dict[str, list[float | None]] | None:
        """By the label's values: numbers by time, None where nothing is known; None: nothing is known at all."""
        named = [f"project={project.removeprefix('projects/')}"]
        asked = admin.QueryHistoryRequest(family=family, labels=named, group_by=[label])
        asked.start_time.FromSeconds(begin_s)
        asked.step.FromSeconds(step_s)
        found = await self.state(methods.ADMIN.QueryHistory, asked)
        if found is None:
            return None
        return {
            one.labels[label]: [None if math.isnan(value) else value for value in one.values] for one in found.series
        }


async def _matching(
    page_of: Callable[[str, str | None, int], list[Any]], asked: ListAsked, words: Callable[[Any], Iterable[str]]
) -> tuple[list[Any], int]:
    """The records of a project that are wanted, and how many there are."""
    found: list[Any] = []
    after, total = None, 0
    while records := page_of(asked.project, after, STEP):
        after, total = records[-1].name, total + len(records)
        found += [one for one in records if not asked.wanted or any(asked.wanted in text for text in words(one))]
        await asyncio.sleep(0)
    return found, total


async def _page(
    asked: ListAsked,
    records: list[Any],
    row: Callable[[Any, Any], dict[str, Any]],
    state_of: Callable[[Any], Any],
    of_states: Sequence[str],
    is_busy: Callable[[Any], bool],
) -> list[dict[str, Any]]:
    """Sort, cut, and ask for the states of what is shown. To sort by what states tell, all are asked where they are
    few, else those that are busy.
    """
    states: dict[str, Any] = {}
    ordered = records
    if asked.sort in of_states:
        few = records if len(records) <= EXACT_MAX else [one for one in records if is_busy(one)][:EXACT_MAX]
        states = await _states(few, state_of)
    if asked.sort != "name":
        ordered = await _sorted(asked, records, lambda one: row(one, states.get(one.name))[asked.sort])
    elif asked.descending:
        ordered = records[::-1]
    shown = ordered[asked.begin : asked.begin + asked.size]
    states |= await _states([one for one in shown if one.name not in states], state_of)
    return [row(one, states.get(one.name)) for one in shown]


async def _sorted(asked: ListAsked, records: list[Any], value_of: Callable[[Any], Any]) -> list[Any]:
    """By a column, in the order of names where that is equal; what is unknown comes last."""
    known, unknown = [], []
    for number, one in enumerate(records):
        value = value_of(one)
        if value is None:
            unknown.append(one)
        else:
            known.append((value, one))
        if number % STEP == STEP - 1:
            await asyncio.sleep(0)
    known.sort(key=lambda pair: pair[0], reverse=asked.descending)
    return [*(one for _, one in known), *unknown]


async def _states(records: Sequence[Any], state_of: Callable[[Any], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at in range(0, len(records), AT_ONCE):
        some = records[at : at + AT_ONCE]
        answers = await asyncio.gather(*map(state_of, some))
        found |= {one.name: answer for one, answer in zip(some, answers, strict=True)}
    return found


def _topic_words(record: Topic) -> Iterable[str]:
    yield _short(record.name).lower()
    if record.config:
        for key, value in pubsub.Topic.FromString(record.config).labels.items():
            yield f"{key}={value}".lower()


def _subscription_words(record: Subscription) -> Iterable[str]:
    yield _short(record.name).lower()
    yield _short(record.topic_name).lower()


def _delivery(record: Subscription, config: pubsub.Subscription) -> str:
    if record.detached:
        return "detached"
    if config.push_config.push_endpoint:
        return "push"
    if config.cloud_storage_config.bucket:
        return "export"
    return "forward" if record.options.forward_to else "pull"


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _count(query: Mapping[str, str], name: str, most: int) -> int:
    text = query.get(name, "0")
    if not text.isdecimal() or len(text) > 20 or int(text) > most:
        raise InvalidArgument(name, f"must be a number from 0 to {most}")
    return int(text)
