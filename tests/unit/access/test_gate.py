"""The gate: nothing reaches a method whose caller may not; what may is not asked again at every call."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from syncpoint.access.gate import DENIED, INVALID, MISSING, STANDS_S
from syncpoint.access.policy import PREFIX, orphaned_policies
from syncpoint.access.rules import RULES, SERVER
from syncpoint.access.tokens import ANONYMOUS
from syncpoint.metadata.records import CatalogChange, Setting, Snapshot, Subscription, Topic
from syncpoint.model.errors import Code, PermissionDenied, SyncpointError, Unauthenticated
from syncpoint.schemas import stored
from syncpoint.transport.calls import Streaming, Unary
from syncpoint.wire import methods
from syncpoint.wire.messages import iam, pubsub

from .conftest import ISSUER, OTHER_KEY, World, jwks

TOPIC, SUBSCRIPTION, SNAPSHOT = "projects/a/topics/one", "projects/a/subscriptions/two", "projects/a/snapshots/three"
PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.StreamingPull
ANN, BOB = "user:ann@example.com", "bob@example.com"
OTHERS = frozenset({BOB, "projects/b"})


@pytest.fixture
def world() -> World:
    made = World()
    made.apply(
        CatalogChange.put(Topic(1, TOPIC)),
        CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC)),
        CatalogChange.put(Snapshot(3, SNAPSHOT, 1, TOPIC)),
    )
    return made


NAMING = ("Topic", "Subscription", "Snapshot", "TopicOptions", "SubscriptionOptions", "StageFrame")


def of_project_a(kind: type[Message]) -> Any:
    """A request whose every field that may name something names something of project a."""
    request: Any = kind()
    for field in kind.DESCRIPTOR.fields:
        name = {
            "project": "projects/a", "parent": "projects/a", "topic": TOPIC, "subscription": SUBSCRIPTION,
            "snapshot": SNAPSHOT, "resource": TOPIC, "email": "app@a.example",
        }.get(field.name)  # fmt: skip
        if field.name == "name" and field.cpp_type == field.CPPTYPE_STRING:
            schemas = kind.DESCRIPTOR.file.name.endswith("schema.proto")
            kinds = {"Topic": TOPIC, "Subscription": SUBSCRIPTION, "Snapshot": SNAPSHOT}
            name = "projects/a/schemas/four" if schemas else kinds.get(kind.DESCRIPTOR.name, SNAPSHOT)
            if "Cursor" in kind.DESCRIPTOR.name or "Link" in kind.DESCRIPTOR.name:
                name = "one"
        if field.is_repeated:
            continue
        if field.message_type is not None and field.message_type.file.package.startswith(
            ("google.pubsub", "syncpoint")
        ):
            if field.message_type.name in (
                "Topic",
                "Subscription",
                "Snapshot",
                "TopicOptions",
                "SubscriptionOptions",
                "StageFrame",
            ):
                getattr(request, field.name).CopyFrom(of_project_a(type(getattr(request, field.name))))
        elif name is not None and field.cpp_type == field.CPPTYPE_STRING and field.containing_oneof is None:
            setattr(request, field.name, name)
    return request


CLOSED = sorted(path for path, rule in RULES.items() if not rule.open and not rule.known)


@pytest.mark.parametrize("path", CLOSED)
def test_who_may_do_everything_elsewhere_may_do_nothing_here(world: World, path: methods.Method) -> None:
    """A tenant's token on every method, for what belongs to another tenant: one answer, whether it exists or not."""
    world.grant("projects/b", "roles/owner", f"user:{BOB}")
    request = of_project_a(path.request)
    answers = []
    for _ in range(2):
        error = world.call(path, request, world.token(email=BOB))
        assert isinstance(error, PermissionDenied), path
        assert error.message == DENIED
        answers.append((error.code, error.message))
        assert isinstance(world.call(path, request), Unauthenticated)
        for record in (Snapshot(3, SNAPSHOT, 1, TOPIC), Subscription(2, SUBSCRIPTION, 1, TOPIC), Topic(1, TOPIC)):
            world.apply(CatalogChange.delete(record))
    assert answers[0] == answers[1], "it does not show whether the resource exists"
    assert world.reached == []


@pytest.mark.parametrize("path", [path for path in CLOSED if not RULES[path].internal])
def test_an_owner_reaches_every_method(world: World, path: methods.Method) -> None:
    request = of_project_a(path.request)
    assert world.call(path, request, world.token(email="root@example.com")) is None
    assert world.reached == [(path, request.SerializeToString())]


def test_internal_methods_are_closed_to_owners_of_the_server_too(world: World) -> None:
    error = world.call(methods.METADATA.Txn, methods.METADATA.Txn.request(), world.token(email="root@example.com"))
    assert isinstance(error, PermissionDenied)


def test_health_is_open_and_reflection_is_for_who_is_known(world: World) -> None:
    check = methods.HEALTH.Check
    assert world.call(check, check.request()) is None
    assert world.call(check, check.request(), b"Bearer junk") is None
    info = methods.REFLECTION.ServerReflectionInfo
    assert isinstance(world.call(info, info.request()), Unauthenticated)
    assert world.call(info, info.request(), world.token()) is None


def test_the_body_decides_whatever_headers_and_repetitions_say(world: World) -> None:
    world.grant("projects/b", "roles/pubsub.publisher", ANN)
    first, last = "projects/b/topics/mine", TOPIC
    request = (
        pubsub.PublishRequest(topic=first).SerializeToString() + pubsub.PublishRequest(topic=last).SerializeToString()
    )
    ended: list[SyncpointError | None] = []
    call = world.opened(PUBLISH, world.token(), ended)
    call.metadata[b"x-goog-request-params"] = b"topic=projects/b/topics/mine"
    method = world.table[PUBLISH.encode()]
    assert isinstance(method, Unary)
    call.run(method.handler, call, request)
    assert isinstance(ended[0], PermissionDenied), "in protobuf the last one counts"


def test_what_callers_are_told_is_what_the_real_service_says(world: World) -> None:
    request = pubsub.PublishRequest(topic=TOPIC)
    for authorization, message in ((None, MISSING), (b"Bearer x", INVALID), (b"Basic YTpi", INVALID), (b"", INVALID)):
        error = world.call(PUBLISH, request, authorization)
        assert isinstance(error, Unauthenticated)
        assert error.message == message
    illegal = world.call(PUBLISH, pubsub.PublishRequest(topic="projects/a/topics/../x"), world.token())
    assert illegal is not None
    assert illegal.code is Code.INVALID_ARGUMENT


def test_everybody_may_what_all_users_may(world: World) -> None:
    world.grant(TOPIC, "roles/pubsub.publisher", "allUsers")
    assert world.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC)) is None
    get = pubsub.GetTopicRequest(topic=TOPIC)
    assert isinstance(world.call(methods.PUBLISHER.GetTopic, get), Unauthenticated)


def test_a_certificate_is_as_good_as_a_token_and_a_token_comes_first(world: World) -> None:
    world.grant(TOPIC, "roles/pubsub.publisher", "serviceAccount:etl@a.example")
    request = pubsub.PublishRequest(topic=TOPIC)
    etl = {"subject": ((("commonName", "etl"),),), "serialNumber": "1", "issuer": ()}
    assert world.call(PUBLISH, request, certificate=etl) is None
    other = {**etl, "subject": ((("commonName", "x"),),), "serialNumber": "2"}
    assert isinstance(world.call(PUBLISH, request, certificate=other), Unauthenticated)
    assert isinstance(world.call(PUBLISH, request, world.token(), certificate=etl), PermissionDenied)


def test_a_decision_is_made_once_until_something_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.grant(TOPIC, "roles/pubsub.publisher", ANN)
    token, request = world.token(), pubsub.PublishRequest(topic=TOPIC)
    assert world.call(PUBLISH, request, token) is None
    with monkeypatch.context() as nothing:
        nothing.setattr(world.policies, "verdict", None)
        nothing.setattr(world.authenticator, "by_token", None)
        for _ in range(3):
            assert world.call(PUBLISH, request, token) is None
    world.grant(TOPIC, "roles/pubsub.viewer", ANN)
    assert isinstance(world.call(PUBLISH, request, token), PermissionDenied)


def test_a_token_is_good_until_it_expires_and_its_key_is_taken_away(world: World) -> None:
    world.grant(TOPIC, "roles/pubsub.publisher", ANN)
    request = pubsub.PublishRequest(topic=TOPIC)
    soon = world.token(exp=world.claims()["iat"] + 30)
    assert world.call(PUBLISH, request, soon) is None
    world.clock.advance(29)
    assert world.call(PUBLISH, request, soon) is None
    world.clock.advance(12)
    assert isinstance(world.call(PUBLISH, request, soon), Unauthenticated)
    token = world.token()
    assert world.call(PUBLISH, request, token) is None
    world.authenticator.sets.put(ISSUER, jwks(key_2=OTHER_KEY), world.clock.monotonic())
    assert isinstance(world.call(PUBLISH, request, token), Unauthenticated)


def test_a_decision_under_a_condition_is_made_again_within_a_second_or_so(world: World) -> None:
    now_s = world.clock.time_ns() / 1e9
    ends = datetime.datetime.fromtimestamp(now_s + 5, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    policy = iam.Policy(version=3, bindings=[iam.Binding(role="roles/pubsub.publisher", members=[ANN])])
    policy.bindings[0].condition.expression = f'request.time < timestamp("{ends}")'
    world.apply(CatalogChange.put(world.policies.changed(TOPIC, policy)[0]))
    token, request = world.token(), pubsub.PublishRequest(topic=TOPIC)
    assert world.call(PUBLISH, request, token) is None
    world.clock.advance(7)
    assert isinstance(world.call(PUBLISH, request, token), PermissionDenied)


def opened(world: World, token: bytes) -> tuple[Any, list[SyncpointError | None]]:
    ended: list[SyncpointError | None] = []
    call = world.opened(PULL, token, ended)
    method = world.table[PULL.encode()]
    assert isinstance(method, Streaming)
    call.run(method.handler, call)
    if not ended:
        call.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
    return call, ended


def test_a_stream_ends_when_its_token_does_and_when_its_grant_is_taken_back(world: World) -> None:
    world.grant("projects/a", "roles/pubsub.subscriber", ANN)
    short, ended_short = opened(world, world.token(exp=world.claims()["iat"] + 30))
    long, ended_long = opened(world, world.token())
    long.on_message(b"")  # an acknowledgement: judged no more
    assert [request for _, request in world.reached].count(b"") == 1
    world.gate.sweep()
    world.clock.advance(41)
    assert ended_short == ended_long == []
    world.gate.sweep()
    assert isinstance(ended_short[0], Unauthenticated)
    assert world.drained == [short], "the method lets go of what it has"
    assert ended_long == []
    key = f"{PREFIX}projects/a"
    value = world.catalog.setting(key)
    assert value is not None
    world.apply(CatalogChange.delete(Setting(key, value)))
    world.gate.sweep()
    assert isinstance(ended_long[0], PermissionDenied)


def test_a_stream_that_is_over_is_not_kept(world: World) -> None:
    world.grant("projects/a", "roles/pubsub.subscriber", ANN)
    call, _ = opened(world, world.token())
    call.finish()
    world.gate.sweep()
    assert not world.gate._streams


def test_a_stream_of_a_stranger_is_refused_at_its_first_message(world: World) -> None:
    call, ended = opened(world, world.token())
    assert isinstance(ended[0], PermissionDenied)
    assert world.reached == []
    assert world.drained == [call]


def test_every_frame_of_a_stage_is_judged(world: World) -> None:
    stage = methods.EPOCH_WRITER.Stage
    world.grant(SERVER, "roles/syncpoint.epochWriter", ANN)
    ended: list[SyncpointError | None] = []
    call = world.opened(stage, world.token(), ended)
    method = world.table[stage.encode()]
    assert isinstance(method, Streaming)
    call.run(method.handler, call)
    frame = stage.request()
    frame.frame.topic = TOPIC
    assert call.on_message is not None
    call.on_message(frame.SerializeToString())
    assert ended == []
    world.grant(SERVER, "roles/syncpoint.logReader", ANN)
    call.on_message(frame.SerializeToString())
    assert isinstance(ended[0], PermissionDenied)
    assert len(world.reached) == 1


def test_decisions_are_noted_with_who_what_and_why(world: World) -> None:
    world.grant(TOPIC, "roles/pubsub.publisher", ANN)
    world.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), world.token())
    world.call(methods.PUBLISHER.DeleteTopic, pubsub.DeleteTopicRequest(topic=TOPIC), world.token())
    world.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), b"Bearer x")
    revision = world.catalog.revision
    assert world.audited == [
        (ANN, "memory", PUBLISH, "pubsub.topics.publish", TOPIC, True, revision, ""),
        (ANN, "memory", methods.PUBLISHER.DeleteTopic, "pubsub.topics.delete", TOPIC, False, revision, "no grant"),
        ("", "memory", PUBLISH, "", "", False, revision, "the token is no JWT"),
    ]
    assert ANONYMOUS.principal == ""
    assert STANDS_S <= 30


def test_a_flood_of_false_tokens_does_not_fill_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "syncpoint.access")
    request = pubsub.PublishRequest(topic=TOPIC)
    for _ in range(50):
        world.call(PUBLISH, request, b"Bearer x")
    world.clock.advance(1)
    world.call(PUBLISH, request, b"Bearer x")
    assert [record.getMessage().rpartition(";")[2] for record in caplog.records] == [
        "a caller at memory is refused: the token is no JWT",
        " 49 others since the last time",
    ]


def test_a_table_with_a_method_that_has_no_rule_is_not_opened(world: World) -> None:
    with pytest.raises(KeyError):
        world.gate.guarded({b"/new.Service/Method": Unary(lambda call, request: None)})


def test_nothing_is_read_of_callers_to_whom_nothing_is_granted(world: World) -> None:
    for header, text in ((None, MISSING), (b"Bearer nonsense", INVALID)):
        with pytest.raises(Unauthenticated, match=text[:40]):
            world.gate.admit(world.opened(PUBLISH, header, []))
    world.gate.admit(world.opened(PUBLISH, world.token(), []))
    world.grant("projects/a", "roles/pubsub.viewer", "allUsers")
    world.gate.admit(world.opened(PUBLISH, None, []))


def test_a_policy_of_a_schema_holds_for_its_revisions_and_ends_with_it(world: World) -> None:
    schema = "projects/a/schemas/four"
    made = stored.Schema(schema, 7, pubsub.Schema.AVRO, (), 0).with_revision("0000000a", 1)
    world.apply(CatalogChange.put(made.setting()))
    world.grant(schema, "roles/pubsub.viewer", f"user:{BOB}")
    get, validate = methods.SCHEMAS.GetSchema, methods.SCHEMAS.ValidateSchema
    commit, create = methods.SCHEMAS.CommitSchema, methods.PUBLISHER.CreateTopic
    bob = world.token(email=BOB)
    assert world.call(get, pubsub.GetSchemaRequest(name=f"{schema}@0000000a"), bob) is None
    for path, request in (
        (commit, pubsub.CommitSchemaRequest(name=schema)),
        (validate, pubsub.ValidateSchemaRequest(parent="projects/a")),
        (get, pubsub.GetSchemaRequest(name="projects/a/schemas/five")),
    ):
        assert isinstance(world.call(path, request, bob), PermissionDenied)
    world.grant("projects/b", "roles/pubsub.editor", f"user:{BOB}")
    topic = pubsub.Topic(name="projects/b/topics/mine", schema_settings={"schema": schema})
    assert isinstance(world.call(create, topic, bob), PermissionDenied), "to read it is not to attach it"
    world.grant(schema, "roles/pubsub.editor", f"user:{BOB}")
    assert world.call(create, topic, bob) is None
    gone = [CatalogChange.delete(made.setting())]
    world.apply(*orphaned_policies(world.catalog, gone), *gone)
    assert not world.catalog.settings_named(f"{PREFIX}schemas/")
    world.apply(CatalogChange.put(replace(made, uid=8).setting()))
    assert isinstance(world.call(get, pubsub.GetSchemaRequest(name=schema), bob), PermissionDenied)
