"""JSON that takes more than a moment is read and written by other processes, which changes nothing but who pays."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import pytest

from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.rest.app import APART_ANSWER_BYTES, APART_BYTES, APART_VALUES, RestApp
from syncpoint.wire.transport.calls import Call, Unary
from tests.kit.working_apart import WorkingApart
from tests.unit.wire.rest.test_gated import asked

PUBLISH, PULL = "/v1/projects/a/topics/one:publish", "/v1/projects/a/subscriptions/two:pull"
FEW = [{"data": "AAAA", "attributes": {"a": "b"}}]


def publish(call: Call, request: bytes) -> None:
    found = pubsub.PublishRequest.FromString(request)
    call.reply(pubsub.PublishResponse(message_ids=[str(len(found.messages))]).SerializeToString())


def pull(call: Call, request: bytes) -> None:
    number = pubsub.PullRequest.FromString(request).max_messages
    received = [pubsub.ReceivedMessage(ack_id="x" * 100)] * number
    call.reply(pubsub.PullResponse(received_messages=received).SerializeToString())


def answer(apart: WorkingApart, path: str, body: bytes) -> tuple[int, Any]:
    table = {methods.PUBLISHER.Publish.encode(): Unary(publish), methods.SUBSCRIBER.Pull.encode(): Unary(pull)}
    app = RestApp(table, 10_000_000, payer=lambda call: "projects/payer", apart=apart)
    return asyncio.run(asked(app, "POST", path, body, None))


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ([{"data": "A" * (APART_BYTES + 4)}], 1),
        ([{}] * (APART_VALUES + 1), APART_VALUES + 1),
        ([{"attributes": {str(one): "" for one in range(APART_VALUES)}}], 1),
    ],
    ids=["bytes", "objects", "fields"],
)
def test_a_large_body_is_read_by_another_process(content: Any, count: int) -> None:
    apart = WorkingApart()
    assert answer(apart, PUBLISH, json.dumps({"messages": content}).encode()) == (200, {"messageIds": [str(count)]})
    assert apart.apart == ["projects/payer"]
    assert apart.at_once == ["projects/payer"], "the answer is short"


def test_a_large_answer_is_written_by_another_process() -> None:
    apart = WorkingApart()
    count = APART_ANSWER_BYTES // 100
    status, found = answer(apart, PULL, b'{"maxMessages": %d}' % count)
    assert (status, len(found["receivedMessages"])) == (200, count)
    assert len(apart.apart) == len(apart.at_once) == 1


def test_what_is_short_is_done_at_once_unless_this_turn_of_the_loop_is_full() -> None:
    apart = WorkingApart()
    body = json.dumps({"messages": FEW}).encode()
    assert answer(apart, PUBLISH, body) == (200, {"messageIds": ["1"]})
    assert (len(apart.apart), len(apart.at_once)) == (0, 2)
    apart.busy = True
    assert answer(apart, PUBLISH, body) == (200, {"messageIds": ["1"]})
    assert (len(apart.apart), len(apart.at_once)) == (2, 2)


@pytest.mark.parametrize("limit", [10_000_000, 1_000])
def test_a_compressed_body_is_unfolded_in_a_thread(limit: int) -> None:
    apart = WorkingApart()
    app = RestApp(
        {methods.PUBLISHER.Publish.encode(): Unary(publish)}, limit, payer=lambda call: "projects/payer", apart=apart
    )
    body = zlib.compress(json.dumps({"messages": FEW * 100}).encode(), wbits=31)
    status, found = asyncio.run(asked(app, "POST", PUBLISH, body, None, (b"content-encoding", b"gzip")))
    assert apart.in_threads == ["projects/payer"]
    assert status == (200 if limit > 1_000 else 429), found


def test_what_is_refused_elsewhere_is_refused_as_it_would_be_here() -> None:
    apart = WorkingApart()
    bad = json.dumps({"messages": FEW, "no": 1}).encode()
    here = answer(apart, PUBLISH, bad)
    apart.busy = True
    assert answer(apart, PUBLISH, bad) == here
    assert here[0] == 400
    assert len(apart.apart) == 1
