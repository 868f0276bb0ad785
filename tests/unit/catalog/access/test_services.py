"""What the server does by itself: by its own grants, and by those of whoever said where messages go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.names import DEAD_LETTERS_REFUSED, FORWARDING_REFUSED, READING_REFUSED
from syncpoint.catalog.access.accounts import Account
from syncpoint.catalog.access.authors import author_of, called_by, caller
from syncpoint.catalog.access.services import FRESH_S, ServiceIdentity
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.access.tokens import ANONYMOUS, Identity
from syncpoint.catalog.metadata.entity_options import NO_SUBSCRIPTION_OPTIONS, TopicOptions
from syncpoint.catalog.metadata.records import Author, CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.wire.protobuf.messages import iam, pubsub
from tests.unit.catalog.access.conftest import Harness

pytestmark = pytest.mark.shows("authors")

ME = "serviceAccount:pubsub@syncpoint.internal"
NAME, TARGET, DEAD = "projects/a/subscriptions/two", "projects/b/topics/target", "projects/b/topics/dead"
ANN = Author("user:ann@example.com")
OWNER = Author("user:root@example.com")


class Rights:
    """The service over the catalog of a gate, and a subscription of projects/a."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.catalog = harness, harness.catalog
        self.service = ServiceIdentity(
            lambda: harness.authenticator.settings, harness.policies, harness.authenticator.accounts, harness.catalog,
            harness.clock, harness.gate.cpu,
        )  # fmt: skip
        topics = [Topic(1, "projects/a/topics/one"), Topic(3, TARGET), Topic(4, DEAD)]
        harness.apply(*map(CatalogChange.put, topics), CatalogChange.put(Subscription(2, NAME, 1, topics[0].name)))

    def grant(self, resource: str, **members: str) -> None:
        """Replace the policy: role of Pub/Sub -> who has it."""
        bindings = [iam.Binding(role=f"roles/{role}", members=who.split()) for role, who in members.items()]
        for one in bindings:
            one.role = one.role.replace("_", ".")
        setting, _ = self.harness.policies.changed(resource, iam.Policy(bindings=bindings))
        self.harness.apply(CatalogChange.put(setting))

    def delivery(self, record: Subscription, author: Author | None = ANN) -> str:
        self.harness.clock.advance(FRESH_S)
        return self.service.delivery_refusal(replace(record, delivery_author=author))

    def letters(self, record: Subscription, author: Author | None = ANN) -> str:
        self.harness.clock.advance(FRESH_S)
        return self.service.letter_refusal(replace(record, letter_author=author))


@pytest.fixture
def rights(harness: Harness) -> Rights:
    return Rights(harness)


def subscription(**fields: Any) -> Subscription:
    return Subscription(2, NAME, 1, "projects/a/topics/one", **fields)


FORWARDS = subscription(options=NO_SUBSCRIPTION_OPTIONS._replace(forward_to=TARGET))
GIVES_UP = subscription(dead_letter=DeadLetter(DEAD, 5))


def pushes(account: str = "") -> Subscription:
    config = pubsub.PushConfig(push_endpoint="https://example.com/x")
    if account:
        config.oidc_token.service_account_email = account
    return subscription(config=pubsub.Subscription(push_config=config).SerializeToString())


def test_what_a_server_does_by_itself_needs_grants_too(rights: Rights) -> None:
    assert rights.letters(GIVES_UP, None) == DEAD_LETTERS_REFUSED
    rights.grant(DEAD, pubsub_publisher=ME)
    assert rights.letters(GIVES_UP, None) == DEAD_LETTERS_REFUSED, "it acknowledges in the subscription's project"
    rights.grant(NAME, pubsub_subscriber=ME)
    assert not rights.letters(GIVES_UP, None)
    assert "no dead-letter policy" in rights.letters(subscription(), None)
    assert not rights.delivery(pushes(), None)
    assert rights.delivery(FORWARDS, None) == FORWARDING_REFUSED
    rights.grant(TARGET, pubsub_publisher=ME)
    assert not rights.delivery(FORWARDS, None)
    rights.grant(NAME)
    assert rights.delivery(FORWARDS, None) == READING_REFUSED


@pytest.fixture
def served(rights: Rights) -> Rights:
    """The server itself may do all of it."""
    rights.grant("server", pubsub_editor=ME)
    return rights


def test_a_forward_goes_on_while_who_set_it_may_publish_there(served: Rights) -> None:
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    refused = served.delivery(FORWARDS)
    assert refused.startswith("PERMISSION_DENIED: user:ann@example.com set the destination")
    assert f"no longer has pubsub.topics.publish on {TARGET}" in refused
    served.grant(TARGET, pubsub_publisher="user:ann@example.com")
    assert not served.delivery(FORWARDS)
    served.grant(TARGET)
    assert served.delivery(FORWARDS) == refused
    assert not served.delivery(FORWARDS, None), "nobody is asked for what was set before callers were identified"
    assert not served.delivery(FORWARDS, OWNER)


def test_dead_letters_go_on_while_who_set_them_may_publish_there(served: Rights) -> None:
    served.grant(TARGET, pubsub_publisher="user:ann@example.com")
    served.grant(DEAD, pubsub_publisher="user:ann@example.com")
    assert f"no longer has pubsub.subscriptions.update on {NAME}" in served.letters(GIVES_UP)
    served.grant("projects/a", pubsub_editor="domain:example.com")
    assert not served.letters(GIVES_UP)
    served.grant(DEAD)
    assert f"no longer has pubsub.topics.publish on {DEAD}" in served.letters(GIVES_UP)


def test_pushes_go_on_while_who_set_them_may_act_as_the_account(served: Rights) -> None:
    account = "pusher@a.iam.syncpoint.internal"
    served.harness.apply(CatalogChange.put(Account(account, "projects/a", drawn_uid="1" * 21).setting()))
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    assert not served.delivery(pushes())
    assert f"iam.serviceAccounts.actAs on projects/-/serviceAccounts/{account}" in served.delivery(pushes(account))
    served.grant("projects/a", owner="user:ann@example.com")
    assert not served.delivery(pushes(account))
    served.grant("projects/a")
    assert f"pubsub.subscriptions.update on {NAME}" in served.delivery(pushes())


ACCOUNT = "asker@a.iam.syncpoint.internal"
ONE = "projects/a/topics/one"


def asking(account: str = ACCOUNT) -> list[pubsub.MessageTransform]:
    return [pubsub.MessageTransform(ai_inference=pubsub.AIInference(service_account_email=account))]


def test_records_go_on_while_who_said_where_may_publish_there(served: Rights) -> None:
    recorded = Topic(1, ONE, options=TopicOptions(records_topic=TARGET), records_author=ANN)
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    refused = served.service.records_refusal(recorded)
    assert refused.startswith("PERMISSION_DENIED: user:ann@example.com set the records topic of this topic")
    assert f"no longer has pubsub.topics.publish on {TARGET}" in refused
    assert served.service.ask_records(recorded) == refused
    served.grant(TARGET, pubsub_publisher="user:ann@example.com")
    assert served.service.records_refusal(recorded) == refused, "an answer stands for a moment"
    served.harness.clock.advance(FRESH_S)
    assert not served.service.records_refusal(recorded)
    served.grant("projects/a")
    served.harness.clock.advance(FRESH_S)
    assert f"no longer has pubsub.topics.update on {ONE}" in served.service.records_refusal(recorded)
    for free in (replace(recorded, records_author=None), replace(recorded, records_author=OWNER), Topic(1, ONE)):
        assert not served.service.ask_records(free)


@pytest.mark.parametrize("kind", ["topics", "subscriptions"])
def test_models_are_asked_as_an_account_while_who_said_so_may_act_as_it(served: Rights, kind: str) -> None:
    served.harness.apply(CatalogChange.put(Account(ACCOUNT, "projects/a", drawn_uid="1" * 21).setting()))
    record: Topic | Subscription
    if kind == "topics":
        config = pubsub.Topic(message_transforms=asking()).SerializeToString()
        record = Topic(1, ONE, config=config, transform_author=ANN)
    else:
        config = pubsub.Subscription(message_transforms=asking()).SerializeToString()
        record = subscription(config=config, transform_author=ANN)
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    refused = served.service.acting_refusal(record)
    assert f"set the service account of the transforms of this {kind[:-1]}" in refused
    assert f"no longer has iam.serviceAccounts.actAs on projects/-/serviceAccounts/{ACCOUNT}" in refused
    served.grant("projects/a", owner="user:ann@example.com")
    served.harness.clock.advance(FRESH_S)
    assert not served.service.acting_refusal(record)
    served.grant("projects/a")
    served.harness.clock.advance(FRESH_S)
    assert f"no longer has pubsub.{kind}.update on {record.name}" in served.service.acting_refusal(record)
    assert not served.service.ask_acting(replace(record, transform_author=None))
    assert not served.service.ask_acting(replace(record, config=b"")), "no account is named"


def test_an_account_that_is_deleted_has_nothing_also_when_its_address_is_taken_again(served: Rights) -> None:
    email = "bot@a.iam.syncpoint.internal"
    first = Account(email, "projects/a", drawn_uid="1" * 21)
    served.harness.apply(CatalogChange.put(first.setting()))
    served.grant("projects/a", pubsub_editor=f"serviceAccount:{email}")
    author = author_of(Identity(f"serviceAccount:{email}", frozenset(), uid=first.uid))
    assert author == Author(f"serviceAccount:{email}?uid={first.uid}")
    assert not served.delivery(pushes(), author)
    served.harness.apply(CatalogChange.delete(first.setting()))
    refused = served.delivery(pushes(), author)
    assert f"deleted:serviceAccount:{email}?uid={first.uid} set the destination" in refused
    served.harness.apply(CatalogChange.put(replace(first, drawn_uid="2" * 21).setting()))
    assert served.delivery(pushes(), author) == refused


def test_an_owner_of_the_file_is_one_while_the_file_says_so(served: Rights) -> None:
    assert not served.delivery(FORWARDS, OWNER)
    content = {**served.harness.content, "owners": ["user:other@example.com"]}
    served.harness.authenticator.take(parse(content))
    assert "user:root@example.com set the destination" in served.delivery(FORWARDS, OWNER)


def test_groups_are_those_that_the_token_named(served: Rights) -> None:
    served.grant("projects/a", pubsub_editor="group:ops@example.com")
    members = frozenset({"user:ann@example.com", "group:ops@example.com", "allUsers"})
    author = author_of(Identity("user:ann@example.com", members))
    assert author == Author("user:ann@example.com", ("group:ops@example.com",))
    assert not served.delivery(pushes(), author)
    assert served.delivery(pushes(), ANN)


def test_who_says_nothing_of_itself_is_everybody(served: Rights) -> None:
    assert author_of(ANONYMOUS) == Author("allUsers")
    assert served.delivery(pushes(), Author("allUsers"))
    served.grant("projects/a", pubsub_editor="allUsers")
    assert not served.delivery(pushes(), Author("allUsers"))


def test_an_answer_stands_for_a_moment_and_a_change_counts_after_it(served: Rights) -> None:
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    record = replace(pushes(), delivery_author=ANN)
    assert not served.service.delivery_refusal(record)
    served.grant("projects/a")
    assert not served.service.delivery_refusal(record)
    served.harness.clock.advance(FRESH_S)
    assert served.service.delivery_refusal(record)
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    served.harness.clock.advance(FRESH_S)
    assert not served.service.delivery_refusal(record)


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_a_wall_clock_that_jumps_neither_keeps_an_answer_nor_ends_it(served: Rights, jump_s: int) -> None:
    clock, service = served.harness.clock, served.service
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    served.grant(TARGET, pubsub_publisher="user:ann@example.com")
    recorded = Topic(1, ONE, options=TopicOptions(records_topic=TARGET), records_author=ANN)
    asked = [(service.delivery_refusal, replace(FORWARDS, delivery_author=ANN)), (service.records_refusal, recorded)]
    assert not any(ask(record) for ask, record in asked)
    served.grant("projects/a")
    clock.set_time_ns(clock.time_ns() + jump_s * 10**9)
    assert not any(ask(record) for ask, record in asked), "they stand for a moment"
    clock.advance(FRESH_S)
    assert all(ask(record) for ask, record in asked)
    served.grant("projects/a", pubsub_editor="user:ann@example.com")
    clock.set_time_ns(clock.time_ns() - jump_s * 10**9)
    clock.advance(FRESH_S)
    assert not any(ask(record) for ask, record in asked)


def test_a_condition_over_time_ends_a_forward(served: Rights) -> None:
    now_s = served.harness.clock.time_ns() // 10**9
    until = f'request.time < timestamp("{_when(now_s + 3600)}")'
    binding = iam.Binding(role="roles/pubsub.editor", members=["user:ann@example.com"])
    binding.condition.title, binding.condition.expression = "for an hour", until
    policy = iam.Policy(version=3, bindings=[binding])
    for resource in ("projects/a", TARGET):
        served.harness.apply(CatalogChange.put(served.harness.policies.changed(resource, policy)[0]))
    assert not served.delivery(FORWARDS)
    served.harness.clock.advance(3600)
    assert served.delivery(FORWARDS)


def _when(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_method_that_changes_something_knows_who_calls_it(harness: Harness) -> None:
    assert caller() is None
    with called_by(Identity("user:ann@example.com", frozenset())):
        assert caller() == ANN
    assert caller() is None
