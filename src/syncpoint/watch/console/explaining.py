"""Why the subscribers of a subscription get nothing, or not all: the findings of `syncpoint why`, for a page.

Place: asks the methods of the server as the caller; `client.findings` draws the conclusions.
Promise: nothing is delivered, leased or changed. What the caller may not ask is named, not guessed.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from typing import Any, Final

from google.protobuf.message import Message
from starlette.requests import Request

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.names import parse_subscription
from syncpoint.front.client.findings import DELETED_TOPIC, HISTORY, Facts, counted_in, findings, history_asked
from syncpoint.watch.console.inner_calls import called
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Methods

ANSWER_S: Final = 5.0


async def explained(served: Methods, request: Request, subscription: str) -> dict[str, Any]:
    """`findings`, most likely cause first, and `unknown`. Raises `SyncpointError` where nothing is known."""
    name = parse_subscription(subscription)

    async def ask(method: Method, asked: Message) -> Any:
        return await called(served, method, asked, request, ANSWER_S)

    config = await ask(methods.SUBSCRIBER.GetSubscription, pubsub.GetSubscriptionRequest(subscription=name))
    state = await ask(methods.ADMIN.GetSubscriptionState, admin.GetSubscriptionStateRequest(subscription=name))
    facts = Facts(name, config, state)

    async def may_ask(method: Method, asked: Message) -> Any:
        try:
            return await ask(method, asked)
        except SyncpointError as error:
            facts.unknown.append(f"{method.rpartition('/')[2]}: {error}")
            return None

    if not config.detached and config.topic != DELETED_TOPIC:
        rules = await may_ask(methods.ADMIN.ListRules, admin.ListRulesRequest(subscription=name))
        facts.rules = None if rules is None else len(rules.rules)
        options = await may_ask(methods.ADMIN.GetTopicOptions, admin.GetTopicOptionsRequest(topic=config.topic))
        facts.send_suspended = None if options is None else options.send_suspended
        for fact, family in HISTORY.items() if methods.ADMIN.QueryHistory.encode() in served else ():
            with contextlib.suppress(SyncpointError):  # not everybody keeps history, or may read it
                asked = history_asked(name, family, int(time.time()))
                setattr(facts, fact, counted_in(await ask(methods.ADMIN.QueryHistory, asked)))
    return {"findings": [asdict(one) for one in findings(facts)], "unknown": facts.unknown}
