"""Schemas, transforms, pushes and exports on one server, on `serve --workers` and on a cluster; and for forwards,
pushes and exports, what a seek brings back, copies that rules make, and changes of where messages go."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from queue import Empty
from threading import Event
from typing import Any, Protocol
from urllib.request import urlopen

import grpc
import jwt
import pytest

from syncpoint.catalog.access.keysets import keys_of_set
from syncpoint.testing.rigs.official import attributes_of, bodies, eventually, refused
from tests.integration.conftest import Space
from tests.kit.endpoint import Endpoint
from tests.kit.houses import ISSUER, MODEL

pytestmark = pytest.mark.shows("one-house", "forwarding")


@pytest.fixture
def space(house: str) -> Iterator[Space]:
    made = Space(house)
    yield made
    made.close()


def test_what_is_published_is_pushed_in_order_until_it_is_pulled_again(space: Space) -> None:
    with Endpoint() as endpoint:
        pushed = {"push_endpoint": endpoint.url}
        topic, subscription = space.pair(push_config=pushed, enable_message_ordering=True)
        endpoint.status = 500
        for number in range(5):
            space.publish(topic, b"%d" % number, key="k")
        assert endpoint.next_data() == b"0"
        endpoint.status = 204
        seen = [endpoint.next_data() for _ in range(5)]
        while seen[0] == b"0" and seen[1] == b"0":
            seen = [*seen[1:], endpoint.next_data()]
        assert seen == [b"%d" % number for number in range(5)]
        with refused("FAILED_PRECONDITION"):
            space.pull(subscription)
        space.api.modify_push_config({"subscription": subscription, "push_config": {}})

        def is_pulled() -> bool:
            """A process that pushes may know of the change a moment later, and push one more."""
            space.publish(topic, b"pulled", key="k")
            found = space.pull_once(subscription)
            if found:
                space.ack(subscription, *found)
            return found != []

        eventually(is_pulled)
        space.api.modify_push_config({"subscription": subscription, "push_config": pushed})
        space.publish(topic, b"pushed again", key="k")
        assert next(data for _ in range(20) if (data := endpoint.next_data()) != b"pulled") == b"pushed again"


def test_what_is_published_is_exported_to_a_bucket(space: Space, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = {"bucket": "archive", "filename_prefix": f"{space.project}/", "max_messages": 1_000}
    topic, subscription = space.pair(cloud_storage_config=config)
    eventually(lambda: space.api.get_subscription({"subscription": subscription}).state == 1)
    names = {b"%d" % number for number in range(1_000)}
    space.publish(topic, *names)

    def written() -> set[bytes]:
        files = tmp_path_factory.getbasetemp().rglob(f"bucket/{space.project}/*")
        return {line for path in files if path.suffix != ".part" for line in path.read_bytes().split(b"\n")}

    eventually(lambda: written() == names)
    with refused("FAILED_PRECONDITION"):
        space.pull(subscription)


def test_what_does_not_fit_the_schema_of_a_topic_is_refused(space: Space) -> None:
    fields = [{"name": "id", "type": "string"}]
    definition = {"type": "record", "name": "Order", "fields": fields}
    newer = {**definition, "fields": [*fields, {"name": "count", "type": "int", "default": 0}]}
    schema = {"type_": "AVRO", "definition": json.dumps(definition)}
    made = space.api.create_schema({"parent": f"projects/{space.project}", "schema_id": "order", "schema": schema})
    topic = space.topic()
    subscription = space.subscription(topic)
    space.publish(topic, b"anything")
    settings = {"schema": made.name, "encoding": "JSON"}
    space.api.update_topic(
        {"topic": {"name": topic, "schema_settings": settings}, "update_mask": {"paths": ["schema_settings"]}}
    )
    for _ in range(8):  # whichever process takes it
        with refused("INVALID_ARGUMENT", "Invalid data in message: Message failed schema validation."):
            space.publish(topic, b"anything")
        space.publish(topic, b'{"id": "a"}')
    committed = space.api.commit_schema({"name": made.name, "schema": {**schema, "definition": json.dumps(newer)}})
    for _ in range(8):
        space.publish(topic, b'{"id": "b", "count": 1}')
    rolled = space.api.rollback_schema({"name": made.name, "revision_id": made.revision_id})
    large = json.dumps({"id": "c" * 100_000}).encode()
    with refused("INVALID_ARGUMENT", "Message failed schema validation."):
        space.publish(topic, large, b"anything")
    space.publish(topic, large)
    marks = Counter(
        attributes_of(one).get("googclient_schemarevisionid", "") for one in space.pull(subscription, 18, ack=True)
    )
    assert marks.pop("") == 1
    # Of those that one message fits, the newest: another process may know it a moment later.
    assert marks == Counter({made.revision_id: 8, committed.revision_id: 8, rolled.revision_id: 1})
    space.api.delete_schema({"name": made.name})
    assert space.api.get_topic({"topic": topic}).schema_settings.schema == "_deleted-schema_"


def test_each_message_is_stored_by_the_revisions_that_its_topic_has_while_these_change(space: Space) -> None:
    """Each message fits one revision and no other, so its mark and whether it is taken follow from the range."""
    name, revisions = space.path("schemas", "growing"), list[str]()
    for number in range(3):
        fields = [{"name": f"f{one}", "type": "int", "default": 0} for one in range(number + 1)]
        given = {"type_": "AVRO", "definition": json.dumps({"type": "record", "name": "R", "fields": fields})}
        if revisions:
            made = space.api.commit_schema({"name": name, "schema": given})
        else:
            parent = f"projects/{space.project}"
            made = space.api.create_schema({"parent": parent, "schema_id": "growing", "schema": given})
        revisions.append(made.revision_id)
    settings = {"schema": name, "encoding": "JSON"}
    topic = space.topic(schema_settings=settings)
    subscription = space.subscription(topic)
    taken: dict[str, int] = {}

    def publish(over: Event) -> Counter[str]:
        refusals: Counter[str] = Counter()
        while not over.is_set():
            for number in range(3):
                body = json.dumps({f"f{one}": 1 for one in range(number + 1)}).encode()
                try:
                    taken[space.publish(topic, body)[0]] = number
                except grpc.RpcError as error:
                    refusals[error.code().name] += 1
        return refusals

    over, mask = Event(), {"paths": ["schema_settings"]}
    with ThreadPoolExecutor() as pool:
        publishing = [pool.submit(publish, over) for _ in range(2)]
        try:
            for first, last in ((0, 0), (1, 2), (2, 2), (0, 1)):
                bounds = {"first_revision_id": revisions[first], "last_revision_id": revisions[last]}
                changed = {"name": topic, "schema_settings": {**settings, **bounds}}
                space.api.update_topic({"topic": changed, "update_mask": mask})
                for number in range(3):
                    body = json.dumps({f"f{one}": 2 for one in range(number + 1)}).encode()
                    with nullcontext() if first <= number <= last else refused("INVALID_ARGUMENT"):
                        taken[space.publish(topic, body)[0]] = number
            space.api.delete_schema({"name": name})
            with refused("NOT_FOUND", "Schema associated with topic deleted."):
                space.publish(topic, b'{"f0": 1}')
        finally:
            over.set()
        assert set().union(*(one.result() for one in publishing)) <= {"INVALID_ARGUMENT", "NOT_FOUND"}
    got = space.pull(subscription, len(taken), ack=True)
    marks = {one.message.message_id: one.message.attributes["googclient_schemarevisionid"] for one in got}
    assert marks == {identifier: revisions[number] for identifier, number in taken.items()}


def transform(code: str, name: str = "f") -> dict[str, Any]:
    return {"javascript_udf": {"function_name": name, "code": f"function {name}(message, metadata) {{ {code} }}"}}


def test_a_topic_changes_what_is_published_and_drops_what_its_function_drops(space: Space) -> None:
    code = "if (message.data === 'b') return null; if (message.data === 'bad') throw Error('no');"
    code += " message.data += '!'; message.attributes.key = String(metadata.ordering_key); return message;"
    topic = space.topic(message_transforms=[transform(code)])
    subscription = space.subscription(topic, enable_message_ordering=True)
    assert len(space.api.get_topic({"topic": topic}).message_transforms) == 1
    ids = space.publish(topic, b"a", b"b", b"c", key="k")
    assert len(set(ids)) == 3
    got = space.pull(subscription, 2, ack=True)
    assert [(one.message.data, dict(one.message.attributes)) for one in got] == [
        (b"a!", {"key": "k"}), (b"c!", {"key": "k"}),
    ]  # fmt: skip
    assert [one.message.message_id for one in got] == [ids[0], ids[2]]
    assert len(space.publish(topic, b"b", b"b")) == 2
    with refused("INVALID_ARGUMENT", "Error: no"):
        space.publish(topic, b"d", b"bad")
    for number in range(10):
        space.publish(topic, b"%d" % number, key="k")
    assert bodies(space.pull(subscription, 10, ack=True)) == [b"%d!" % number for number in range(10)]
    space.api.update_topic({"topic": {"name": topic}, "update_mask": {"paths": ["message_transforms"]}})
    space.publish(topic, b"plain")
    assert bodies(space.pull(subscription, ack=True)) == [b"plain"]
    with refused("INVALID_ARGUMENT", "javascript_udf.code"):
        space.topic("bad", message_transforms=[transform("return (")])


def test_a_subscription_changes_what_it_delivers_and_gives_up_what_it_cannot(space: Space) -> None:
    topic, letters = space.topic(), space.topic("letters")
    dead = space.subscription(letters, "dead")
    code = "if (message.data === 'drop') return null; if (message.data === 'bad') throw Error('no');"
    code += " return {data: message.data.toUpperCase(), attributes: {id: metadata.message_id}};"
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 5}
    changed = space.subscription(topic, message_transforms=[transform(code)], dead_letter_policy=policy)
    same = space.subscription(topic, "same")
    ids = space.publish(topic, b"a", b"drop", b"b")
    stream = space.stream(changed)
    got = stream.wait(2)
    space.ack(changed, *got)
    assert sorted(stream.bodies) == [b"A", b"B"]
    assert {one.message.attributes["id"] for one in got} == {ids[0], ids[2]}
    stream.cancel()
    assert sorted(bodies(space.pull(same, 3, ack=True))) == [b"a", b"b", b"drop"]
    space.publish(topic, b"bad", b"c")
    assert bodies(space.pull(changed, 1, ack=True)) == [b"C"]
    space.stream(changed)
    assert bodies(space.pull(dead, 1, ack=True)) == [b"bad"]


def test_a_model_is_asked_by_a_service_account_and_its_answer_is_stored(
    space: Space, house: str, model: Endpoint
) -> None:
    account = "asker@p.example"
    asking = {"endpoint": MODEL, "unstructured_inference": {"parameters": {"depth": 2}}}
    topic = space.topic(message_transforms=[{"ai_inference": {**asking, "service_account_email": account}}])
    subscription = space.subscription(topic)
    space.publish(topic, b'{"text": "hi"}')
    headers, body = model.next()
    with urlopen(f"http://{house}/oauth2/v3/certs") as answer:
        keys = keys_of_set(answer.read())
    token = headers["authorization"].removeprefix("Bearer ")
    found = jwt.decode(token, keys[jwt.get_unverified_header(token)["kid"]].key, ["RS256"], audience=model.url)
    assert (found["iss"], found["email"], json.loads(body)) == (ISSUER, account, {"depth": 2, "text": "hi"})
    [data] = bodies(space.pull(subscription, ack=True))
    assert json.loads(data) == {"model_input": json.loads(body), "model_output": {"score": 0.5}}


def test_nothing_overtakes_a_message_of_its_key_that_cannot_be_transformed(space: Space) -> None:
    topic, letters = space.topic(), space.topic("letters")
    dead = space.subscription(letters, "dead")
    code = "if (message.data === 'bad') { let n = 0; while (n < 1e6) n++; throw Error('no'); } return message;"
    ordered = space.subscription(
        topic, enable_message_ordering=True, message_transforms=[transform(code)],
        dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5},
    )  # fmt: skip
    stream = space.stream(ordered)
    for body in (b"bad", b"a", b"b"):
        space.publish(topic, body, key="k")
    assert bodies(space.pull(dead, 1, ack=True)) == [b"bad"]
    stream.wait(2)
    assert stream.bodies == [b"a", b"b"]


WITHIN_S = 60.0


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
        self.space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["forward_to"]})

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
        space.asked("CreateRule", subscription=one.subscription, rule=rule)
    space.asked("DeleteRule", subscription=one.subscription, name="$Default")
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


def test_what_is_published_after_a_suspension_was_answered_waits_for_its_end(space: Space, stack: ExitStack) -> None:
    topic = space.topic()
    one = Pushed(space, topic, 1, stack)
    space.publish(topic, b"first")
    eventually(lambda: one.got(0)[b"first"], within=WITHIN_S)  # somebody waits for the next message
    for turn in range(6):
        for suspended in (True, False):
            options = {"subscription": one.subscription, "receive_suspended": suspended}
            space.asked("UpdateSubscriptionOptions", options=options, update_mask={"paths": ["receive_suspended"]})
            if suspended:
                space.publish(topic, b"%d" % turn)
                Event().wait(0.03)  # in which it would come
                assert not one.got(0)[b"%d" % turn]
        eventually(lambda wanted=b"%d" % turn: one.got(0)[wanted], within=WITHIN_S)
