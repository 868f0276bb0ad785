"""The gate: nothing reaches a method whose caller may not; what may is not asked again at every call."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from syncpoint.base.kernel.publish import count_plain, scan_plain
from syncpoint.base.model.errors import Code, PermissionDenied, SyncpointError, Unauthenticated
from syncpoint.catalog.access.accounts import Account
from syncpoint.catalog.access.authors import judge_caller
from syncpoint.catalog.access.gate import DENIED, INVALID, MISSING, STANDS_S
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.catalog.access.policy import PREFIX, orphaned_policies
from syncpoint.catalog.access.quotas import Quotas
from syncpoint.catalog.access.rules import RULES
from syncpoint.catalog.access.tokens import ANONYMOUS
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Snapshot, Subscription, Topic
from syncpoint.catalog.schemas import stored
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import iam, pubsub
from syncpoint.wire.transport.calls import Streaming, Unary

from .conftest import ISSUER, OTHER_KEY, Harness, jwks

TOPIC, SUBSCRIPTION, SNAPSHOT = "projects/a/topics/one", "projects/a/subscriptions/two", "projects/a/snapshots/three"
PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.StreamingPull
ANN, BOB = "user:ann@example.com", "bob@example.com"
THEIRS = Account("app@a.example", "projects/a").setting()
OTHERS = frozenset({BOB, "projects/b"})


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.apply(
        CatalogChange.put(Topic(1, TOPIC)),
        CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC)),
        CatalogChange.put(Snapshot(3, SNAPSHOT, 1, TOPIC)),
        CatalogChange.put(THEIRS),
    )
    return made


def of_project_a(kind: type[Message]) -> Any:
    """A request whose every field that may name something names something of project a."""
    request: Any = kind()
    for field in kind.DESCRIPTOR.fields:
        name = {
            "project": "projects/a", "parent": "projects/a", "topic": TOPIC, "subscription": SUBSCRIPTION,
            "snapshot": SNAPSHOT, "resource": TOPIC, "email": "app@a.example", "tenant": "acme",
        }.get(field.name)  # fmt: skip
        if field.name == "name" and field.cpp_type == field.CPPTYPE_STRING:
            schemas = kind.DESCRIPTOR.file.name.endswith("schema.proto")
            kinds = {"Topic": TOPIC, "Subscription": SUBSCRIPTION, "Snapshot": SNAPSHOT}
            name = "projects/a/schemas/four" if schemas else kinds.get(kind.DESCRIPTOR.name, SNAPSHOT)
            if "Cursor" in kind.DESCRIPTOR.name or "Link" in kind.DESCRIPTOR.name:
                name = "one"
            if "Tenant" in kind.DESCRIPTOR.name:
                name = "acme"
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
                "DeadLetterSelection",
                "Tenant",
                "Drill",
            ):
                getattr(request, field.name).CopyFrom(of_project_a(type(getattr(request, field.name))))
        elif name is not None and field.cpp_type == field.CPPTYPE_STRING and field.containing_oneof is None:
            setattr(request, field.name, name)
    return request


CLOSED = sorted(path for path, rule in RULES.items() if not rule.open and not rule.known)


@pytest.mark.parametrize("path", CLOSED)
def test_who_may_do_everything_elsewhere_may_do_nothing_here(harness: Harness, path: methods.Method) -> None:
    """A tenant's token on every method, for what belongs to another tenant: one answer, whether it exists or not."""
    harness.grant("projects/b", "roles/owner", f"user:{BOB}")
    request = of_project_a(path.request)
    answers = []
    for _ in range(2):
        error = harness.call(path, request, harness.token(email=BOB))
        assert isinstance(error, PermissionDenied), path
        assert error.message == DENIED
        answers.append((error.code, error.message, error.details))
        assert isinstance(harness.call(path, request), Unauthenticated)
        for record in (
            Snapshot(3, SNAPSHOT, 1, TOPIC),
            Subscription(2, SUBSCRIPTION, 1, TOPIC),
            Topic(1, TOPIC),
            THEIRS,
        ):
            harness.apply(CatalogChange.delete(record))
    assert answers[0] == answers[1], "it does not show whether the resource exists"
    assert harness.reached == []


@pytest.mark.parametrize("path", [path for path in CLOSED if not RULES[path].internal])
def test_an_owner_reaches_every_method(harness: Harness, path: methods.Method) -> None:
    request = of_project_a(path.request)
    assert harness.call(path, request, harness.token(email="root@example.com")) is None
    assert harness.reached == [(path, request.SerializeToString())]


def test_accounts_of_a_project_pay_together_and_others_for_themselves(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for email in ("one@q.example", "two@r.example"):
        harness.apply(CatalogChange.put(Account(email, "projects/a", drawn_uid=email).setting()))

    def payer(principal: str) -> str:
        monkeypatch.setattr(harness.gate, "principal_of", lambda call: principal)
        return harness.gate.payer_of(harness.opened(PUBLISH, None, []))

    assert payer("serviceAccount:one@q.example") == payer("serviceAccount:two@r.example") == "projects/a"
    assert payer("serviceAccount:configured@b.example") == "serviceAccount:configured@b.example"
    assert (payer(ANN), payer("")) == (ANN, "")


def test_internal_methods_are_closed_to_owners_of_the_server_too(harness: Harness) -> None:
    error = harness.call(methods.METADATA.Txn, methods.METADATA.Txn.request(), harness.token(email="root@example.com"))
    assert isinstance(error, PermissionDenied)


def test_health_is_open_and_reflection_is_for_who_is_known(harness: Harness) -> None:
    check = methods.HEALTH.Check
    assert harness.call(check, check.request()) is None
    assert harness.call(check, check.request(), b"Bearer junk") is None
    info = methods.REFLECTION.ServerReflectionInfo
    assert isinstance(harness.call(info, info.request()), Unauthenticated)
    assert harness.call(info, info.request(), harness.token()) is None


def test_the_body_decides_whatever_headers_and_repetitions_say(harness: Harness) -> None:
    harness.grant("projects/b", "roles/pubsub.publisher", ANN)
    first, last = "projects/b/topics/mine", TOPIC
    request = (
        pubsub.PublishRequest(topic=first).SerializeToString() + pubsub.PublishRequest(topic=last).SerializeToString()
    )
    ended: list[SyncpointError | None] = []
    call = harness.opened(PUBLISH, harness.token(), ended)
    call.metadata[b"x-goog-request-params"] = b"topic=projects/b/topics/mine"
    method = harness.table[PUBLISH.encode()]
    assert isinstance(method, Unary)
    call.run(method.handler, call, request)
    assert isinstance(ended[0], PermissionDenied), "in protobuf the last one counts"


def test_what_callers_receive_is_what_the_real_service_says(harness: Harness) -> None:
    request = pubsub.PublishRequest(topic=TOPIC)
    for authorization, message in ((None, MISSING), (b"Bearer x", INVALID), (b"Basic YTpi", INVALID), (b"", INVALID)):
        error = harness.call(PUBLISH, request, authorization)
        assert isinstance(error, Unauthenticated)
        assert error.message == message
    illegal = harness.call(PUBLISH, pubsub.PublishRequest(topic="projects/a/topics/../x"), harness.token())
    assert illegal is not None
    assert illegal.code is Code.INVALID_ARGUMENT


def test_everybody_may_what_all_users_may(harness: Harness) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", "allUsers")
    assert harness.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC)) is None
    get = pubsub.GetTopicRequest(topic=TOPIC)
    assert isinstance(harness.call(methods.PUBLISHER.GetTopic, get), Unauthenticated)


def test_a_certificate_is_as_good_as_a_token_and_a_token_comes_first(harness: Harness) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", "serviceAccount:etl@a.example")
    request = pubsub.PublishRequest(topic=TOPIC)
    etl = {"subject": ((("commonName", "etl"),),), "serialNumber": "1", "issuer": ()}
    assert harness.call(PUBLISH, request, certificate=etl) is None
    other = {**etl, "subject": ((("commonName", "x"),),), "serialNumber": "2"}
    assert isinstance(harness.call(PUBLISH, request, certificate=other), Unauthenticated)
    assert isinstance(harness.call(PUBLISH, request, harness.token(), certificate=etl), PermissionDenied)


def test_a_decision_is_made_once_until_something_changes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", ANN)
    token, request = harness.token(), pubsub.PublishRequest(topic=TOPIC)
    assert harness.call(PUBLISH, request, token) is None
    with monkeypatch.context() as nothing:
        nothing.setattr(harness.policies, "verdict", None)
        nothing.setattr(harness.authenticator, "by_token", None)
        for _ in range(3):
            assert harness.call(PUBLISH, request, token) is None
    harness.grant(TOPIC, "roles/pubsub.viewer", ANN)
    assert isinstance(harness.call(PUBLISH, request, token), PermissionDenied)


def test_a_token_is_good_until_it_expires_and_its_key_is_taken_away(harness: Harness) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", ANN)
    request = pubsub.PublishRequest(topic=TOPIC)
    soon = harness.token(exp=harness.claims()["iat"] + 30)
    assert harness.call(PUBLISH, request, soon) is None
    harness.clock.advance(29)
    assert harness.call(PUBLISH, request, soon) is None
    harness.clock.advance(12)
    assert isinstance(harness.call(PUBLISH, request, soon), Unauthenticated)
    token = harness.token()
    assert harness.call(PUBLISH, request, token) is None
    harness.authenticator.sets.put(ISSUER, jwks(key_2=OTHER_KEY), harness.clock.monotonic())
    assert isinstance(harness.call(PUBLISH, request, token), Unauthenticated)


def test_a_decision_under_a_condition_is_made_again_within_a_second_or_so(harness: Harness) -> None:
    now_s = harness.clock.time_ns() / 1e9
    ends = datetime.datetime.fromtimestamp(now_s + 5, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    policy = iam.Policy(version=3, bindings=[iam.Binding(role="roles/pubsub.publisher", members=[ANN])])
    policy.bindings[0].condition.expression = f'request.time < timestamp("{ends}")'
    harness.apply(CatalogChange.put(harness.policies.changed(TOPIC, policy)[0]))
    token, request = harness.token(), pubsub.PublishRequest(topic=TOPIC)
    assert harness.call(PUBLISH, request, token) is None
    harness.clock.advance(7)
    assert isinstance(harness.call(PUBLISH, request, token), PermissionDenied)


def opened(harness: Harness, token: bytes) -> tuple[Any, list[SyncpointError | None]]:
    ended: list[SyncpointError | None] = []
    call = harness.opened(PULL, token, ended)
    method = harness.table[PULL.encode()]
    assert isinstance(method, Streaming)
    call.run(method.handler, call)
    if not ended:
        call.on_message(pubsub.StreamingPullRequest(subscription=SUBSCRIPTION).SerializeToString())
    return call, ended


def test_a_stream_ends_when_its_token_does_and_when_its_grant_is_taken_back(harness: Harness) -> None:
    harness.grant("projects/a", "roles/pubsub.subscriber", ANN)
    short, ended_short = opened(harness, harness.token(exp=harness.claims()["iat"] + 30))
    long, ended_long = opened(harness, harness.token())
    long.on_message(b"")  # an acknowledgement: judged no more
    assert [request for _, request in harness.reached].count(b"") == 1
    harness.gate.sweep()
    harness.clock.advance(41)
    assert ended_short == ended_long == []
    harness.gate.sweep()
    assert isinstance(ended_short[0], Unauthenticated)
    assert harness.drained == [short], "the method lets go of what it has"
    assert ended_long == []
    key = f"{PREFIX}projects/a"
    value = harness.catalog.setting(key)
    assert value is not None
    harness.apply(CatalogChange.delete(Setting(key, value)))
    harness.gate.sweep()
    assert isinstance(ended_long[0], PermissionDenied)


def test_a_stream_that_is_over_is_not_kept(harness: Harness) -> None:
    harness.grant("projects/a", "roles/pubsub.subscriber", ANN)
    call, _ = opened(harness, harness.token())
    call.finish()
    harness.gate.sweep()
    assert not harness.gate._streams


def test_a_stream_of_a_stranger_is_refused_at_its_first_message(harness: Harness) -> None:
    call, ended = opened(harness, harness.token())
    assert isinstance(ended[0], PermissionDenied)
    assert harness.reached == []
    assert harness.drained == [call]


def test_every_frame_of_a_stage_is_judged(harness: Harness) -> None:
    stage = methods.EPOCH_WRITER.Stage
    harness.grant(SERVER, "roles/syncpoint.epochWriter", ANN)
    ended: list[SyncpointError | None] = []
    call = harness.opened(stage, harness.token(), ended)
    method = harness.table[stage.encode()]
    assert isinstance(method, Streaming)
    call.run(method.handler, call)
    frame = stage.request()
    frame.frame.topic = TOPIC
    assert call.on_message is not None
    call.on_message(frame.SerializeToString())
    assert ended == []
    harness.grant(SERVER, "roles/syncpoint.logReader", ANN)
    call.on_message(frame.SerializeToString())
    assert isinstance(ended[0], PermissionDenied)
    assert len(harness.reached) == 1


def test_acknowledgements_are_exchanged_with_a_right_of_its_own(harness: Harness) -> None:
    """Neither who consumes nor who copies may, and a right on one subscription is none on another."""
    for method in methods.ACK_EXCHANGE:
        own = method.request(subscription=SUBSCRIPTION)
        other = method.request(subscription=SUBSCRIPTION + "-other")
        for role, resource in (("roles/pubsub.subscriber", SUBSCRIPTION), ("roles/syncpoint.epochWriter", SERVER)):
            harness.grant(resource, role, ANN)
            refused = harness.call(method, own, harness.token())
            assert isinstance(refused, PermissionDenied)
            assert "syncpoint.subscriptions.exchangeAcks" in str(refused.details)
        harness.grant(SUBSCRIPTION, "roles/syncpoint.ackExchanger", ANN)
        assert harness.call(method, own, harness.token()) is None
        assert isinstance(harness.call(method, other, harness.token()), PermissionDenied)


def test_decisions_are_noted_with_who_what_and_why(harness: Harness) -> None:
    harness.grant(TOPIC, "roles/pubsub.publisher", ANN)
    harness.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), harness.token())
    harness.call(methods.PUBLISHER.DeleteTopic, pubsub.DeleteTopicRequest(topic=TOPIC), harness.token())
    harness.call(PUBLISH, pubsub.PublishRequest(topic=TOPIC), b"Bearer x")
    revision = harness.catalog.revision
    assert harness.audited == [
        (ANN, "memory", PUBLISH, "pubsub.topics.publish", TOPIC, True, revision, ""),
        (ANN, "memory", methods.PUBLISHER.DeleteTopic, "pubsub.topics.delete", TOPIC, False, revision, "no grant"),
        ("", "memory", PUBLISH, "", "", False, revision, "the token is no JWT"),
    ]
    assert ANONYMOUS.principal == ""
    assert STANDS_S <= 30


def test_a_flood_of_false_tokens_does_not_fill_the_log(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "syncpoint.catalog.access")
    request = pubsub.PublishRequest(topic=TOPIC)
    for _ in range(50):
        harness.call(PUBLISH, request, b"Bearer x")
    harness.clock.advance(1)
    harness.call(PUBLISH, request, b"Bearer x")
    assert [record.getMessage().rpartition(";")[2] for record in caplog.records] == [
        "a caller at memory is refused: the token is no JWT",
        " 49 others since the last time",
    ]


def test_a_table_with_a_method_that_has_no_rule_is_not_opened(harness: Harness) -> None:
    with pytest.raises(KeyError):
        harness.gate.guarded({b"/new.Service/Method": Unary(lambda call, request: None)})


def test_nothing_is_read_of_callers_to_whom_nothing_is_granted(harness: Harness) -> None:
    for header, text in ((None, MISSING), (b"Bearer nonsense", INVALID)):
        with pytest.raises(Unauthenticated, match=text[:40]):
            harness.gate.admit(harness.opened(PUBLISH, header, []), TOPIC)
    assert [(one[0], one[4]) for one in harness.audited] == [("", TOPIC)] * 2, "who, and on what"
    harness.gate.admit(harness.opened(PUBLISH, harness.token(), []))
    harness.grant("projects/a", "roles/pubsub.viewer", "allUsers")
    harness.gate.admit(harness.opened(PUBLISH, None, []))


def test_a_policy_of_a_schema_holds_for_its_revisions_and_ends_with_it(harness: Harness) -> None:
    schema = "projects/a/schemas/four"
    made = stored.Schema(schema, 7, pubsub.Schema.AVRO, (), 0).with_revision("0000000a", 1)
    harness.apply(CatalogChange.put(made.setting()))
    harness.grant(schema, "roles/pubsub.viewer", f"user:{BOB}")
    get, validate = methods.SCHEMAS.GetSchema, methods.SCHEMAS.ValidateSchema
    commit, create = methods.SCHEMAS.CommitSchema, methods.PUBLISHER.CreateTopic
    bob = harness.token(email=BOB)
    assert harness.call(get, pubsub.GetSchemaRequest(name=f"{schema}@0000000a"), bob) is None
    for path, request in (
        (commit, pubsub.CommitSchemaRequest(name=schema)),
        (validate, pubsub.ValidateSchemaRequest(parent="projects/a")),
        (get, pubsub.GetSchemaRequest(name="projects/a/schemas/five")),
    ):
        assert isinstance(harness.call(path, request, bob), PermissionDenied)
    harness.grant("projects/b", "roles/pubsub.editor", f"user:{BOB}")
    topic = pubsub.Topic(name="projects/b/topics/mine", schema_settings={"schema": schema})
    assert isinstance(harness.call(create, topic, bob), PermissionDenied), "to read it is not to attach it"
    harness.grant(schema, "roles/pubsub.editor", f"user:{BOB}")
    assert harness.call(create, topic, bob) is None
    gone = [CatalogChange.delete(made.setting())]
    harness.apply(*orphaned_policies(harness.catalog, gone), *gone)
    assert not harness.catalog.settings_named(f"{PREFIX}schemas/")
    harness.apply(CatalogChange.put(replace(made, uid=8).setting()))
    assert isinstance(harness.call(get, pubsub.GetSchemaRequest(name=schema), bob), PermissionDenied)


def test_what_waits_behind_answers_waits_behind_the_gate_too(harness: Harness) -> None:
    waits = Streaming(lambda stream: None, b"/google.pubsub.v1.Publisher/Publish")
    (guarded,) = harness.gate.guarded({methods.SUBSCRIBER.StreamingPull.encode(): waits}).values()
    assert isinstance(guarded, Streaming)
    assert guarded.behind == waits.behind


def test_a_call_is_judged_again_by_what_the_catalog_has_learned_since(harness: Harness) -> None:
    pushed = pubsub.Subscription(push_config={"oidc_token": {"service_account_email": "app@a.example"}})
    request = pubsub.UpdateSubscriptionRequest(subscription={"name": SUBSCRIPTION})
    request.subscription.push_config.push_endpoint = "https://other.example"
    request.update_mask.paths[:] = ["push_config.push_endpoint"]
    harness.grant(SUBSCRIPTION, "roles/pubsub.editor", ANN)
    changed: list[bool] = []

    def handler(call: Any, request: bytes) -> None:
        judge_caller()  # nothing is known that was not before
        config = pushed.SerializeToString()
        harness.apply(CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC, config=config)))
        judge_caller()
        changed.append(True)

    path = methods.SUBSCRIBER.UpdateSubscription.encode()
    harness.table = harness.gate.guarded({path: Unary(handler)})
    assert isinstance(harness.call(path.decode(), request, harness.token()), PermissionDenied)
    harness.grant("projects/a", "roles/iam.serviceAccountUser", ANN)
    assert harness.call(path.decode(), request, harness.token()) is None
    assert changed == [True]


class Together:
    """What a gate asks of calls that came together."""

    def __init__(self, token: bytes, *requests: bytes) -> None:
        self.metadata = {b"authorization": token}
        self.requests = list(requests)


def test_calls_that_come_together_pass_where_each_would_at_once(harness: Harness) -> None:
    taken: list[int] = []

    def handler(batch: Any, at: int) -> int:
        taken.append(at)
        return 1

    methods_ = {
        path.encode(): Unary(lambda call, request: None, batch_handler=handler)
        for path in (PUBLISH, methods.PUBLISHER.CreateTopic)
    }
    table: Any = harness.gate.guarded(methods_)
    assert table[methods.PUBLISHER.CreateTopic.encode()].batch_handler is None
    together = table[PUBLISH.encode()].batch_handler
    request = pubsub.PublishRequest(topic=TOPIC)
    raw, token = request.SerializeToString(), harness.token()
    other = pubsub.PublishRequest(topic="projects/b/topics/one").SerializeToString()
    batch = Together(token, raw, other, raw + other, b"\xff")
    assert together(batch, 0) == 0  # nobody has judged it yet
    assert isinstance(harness.call(PUBLISH, request, token), PermissionDenied)
    assert together(batch, 0) == 0
    harness.grant(TOPIC, "roles/pubsub.publisher", ANN)
    assert together(batch, 0) == 0
    assert harness.call(PUBLISH, request, token) is None
    assert [together(batch, at) for at in range(3)] == [1, 0, 0]
    with pytest.raises(SyncpointError):
        together(batch, 3)
    assert together(Together(harness.token(sub="eve@example.com"), raw), 0) == 0
    assert together(Together(b"", raw), 0) == 0
    harness.gate.quotas = Quotas(lambda project: (), harness.catalog, harness.clock.monotonic)
    assert together(batch, 0) == 0  # each counts
    harness.gate.quotas = None
    assert together(batch, 0) == 1
    harness.grant(TOPIC, "roles/pubsub.viewer", ANN)
    assert together(batch, 0) == 0
    assert taken == [0, 0]


def test_a_batch_stops_at_another_name(harness: Harness) -> None:
    """A gate judges the first call of a batch: what takes batches takes no call that names something else."""
    raw, other = (
        pubsub.PublishRequest(topic=name, messages=[pubsub.PubsubMessage(data=b"x")]).SerializeToString()
        for name in (TOPIC, "projects/b/topics/one")
    )
    for requests in ([raw, raw, other], [raw, raw, other + raw], [raw, raw, raw + other], [raw, raw, b""]):
        assert count_plain(requests, 0, TOPIC.encode()) == [1, 1]
        assert scan_plain(requests, 0, TOPIC.encode(), b"p", 0, 1, 0)[0] == 2
