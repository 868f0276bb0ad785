"""Bugs planted into how subscriptions are consumed (`consumer_runs`), and into ids that count for a time. See
`planted_bugs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from syncpoint.base.model.lanes import place_in
from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.broker.forward import forward_driver
from syncpoint.broker.forward.forwarded_message import publish_request
from syncpoint.broker.inner import feed
from syncpoint.broker.inner.inner_consumer import Effect, HeldBatch, InnerConsumer
from syncpoint.broker.inner.inner_driver import InnerDriver, InnerSubscription
from syncpoint.broker.inner.lent import Lent, lent_by
from syncpoint.broker.publish.chain.source_peek import acknowledge_seen
from syncpoint.broker.publish.facts.message_ids import PUBLISHED, IdRow, Judgement, MessageIds
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, MessagePlace
from syncpoint.broker.publish.intake import judged_publishes
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.subscribe import dead_letter
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.ordering import Identity, KeyOrder
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription, Topic
from syncpoint.front.api import letter_admin, node_admin
from syncpoint.front.api.letter_edits import Found, LetterEdit
from syncpoint.testing.simulation.consumed import EXPORTED, FORWARDED, PULLED, PUSHED
from syncpoint.testing.simulation.consumer_runs import run_consumers
from syncpoint.testing.simulation.planted import planted, together
from syncpoint.testing.simulation.planted_ids import MOVING
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.scheduled_runs import run_scheduled
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.wire.protobuf.messages import internal, pubsub

LETTERS, IDS, REDIRECTED = "letters", "ids", "redirected"


def _run(consumed: str, seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    return run_consumers(seed, kinds=kinds, consumed=(consumed,))


def of(consumed: str) -> partial[RunResult]:
    """Seeds in which this is consumed, and nothing else, as `planted_bugs` runs them."""
    return partial(_run, consumed)


def forwarded_in_a_cluster(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """Seeds of clusters in which something is forwarded from a subscription that is moved back."""
    return run_cluster(12 * seed + 7, kinds=kinds, consumed=True)


@planted(None, seed=0, run=of(FORWARDED))
def forwards_are_named_by_the_catalog() -> AbstractContextManager[None]:
    """The generation in the name of what is forwarded is the one of a record that is up to a tick old."""
    right = InnerDriver._changed

    def at_the_next_tick(self: InnerDriver, change: CatalogChange) -> None:  # type: ignore[type-arg]
        if isinstance(change.record, Subscription) and change.op is not ChangeOp.DELETE:
            self._note(change.record)
            self._reviewed = float("-inf")
        else:
            right(self, change)

    def named(target: str, source: Subscription, lent: Iterable[Lent], among: int) -> bytes:
        lent = list(lent)
        request = pubsub.PublishRequest.FromString(publish_request(target, source, lent, among))
        for message, one in zip(request.messages, lent, strict=True):
            copy = one.copy._replace(generation=source.generation)
            message.attributes[FORWARDED_FROM] = copy.named(source.incarnation)
        return bytes(request.SerializeToString())

    return together(patched(InnerDriver, _changed=at_the_next_tick), patched(forward_driver, publish_request=named))


@planted(None, seed=0, run=of(REDIRECTED))
def forwards_go_where_they_went_until_the_next_tick() -> AbstractContextManager[None]:
    """A new target counts from when the driver looks at its subscriptions again, not from when it is answered."""
    changed = InnerDriver._changed

    def later(self: InnerDriver, change: CatalogChange) -> None:  # type: ignore[type-arg]
        with patched(InnerSubscription, reconfigure=lambda self, record, config: None):
            changed(self, change)

    return patched(InnerDriver, _changed=later)


@planted(None, "crash", seed=1, run=forwarded_in_a_cluster)
def forwards_of_a_cluster_have_no_generation() -> AbstractContextManager[None]:
    """What a seek brings back in a cluster is taken for what was forwarded before."""

    def named(target: str, source: Subscription, lent: Iterable[Lent], among: int) -> bytes:
        lent = list(lent)
        request = pubsub.PublishRequest.FromString(publish_request(target, source, lent, among))
        for message, one in zip(request.messages, lent, strict=True):
            message.attributes[FORWARDED_FROM] = one.copy._replace(generation=0).named(source.incarnation)
        return bytes(request.SerializeToString())

    return patched(forward_driver, publish_request=named)


def _by_message_id() -> AbstractContextManager[None]:
    """Copies that rules make of one message are taken for each other."""

    def alike(response: pubsub.StreamingPullResponse) -> list[Lent]:
        return [
            Lent(one.ack_id, CopyId(one.copy.source, place_in(one.copy.place)[1], one.copy.generation), one.message)
            for one in lent_by(response)
        ]

    return patched(feed, lent_by=alike)


@planted(None, seed=9, run=of(EXPORTED))
def exports_hold_one_copy_of_each_message() -> AbstractContextManager[None]:
    """What is held is known by its message id."""
    return _by_message_id()


@planted(None, seed=2, run=of(PUSHED))
def pushes_hold_one_copy_of_each_message() -> AbstractContextManager[None]:
    """What is held is known by its message id."""
    return _by_message_id()


@planted(None, seed=95, run=of(FORWARDED))
def what_waits_behind_a_failed_request_goes_on() -> AbstractContextManager[None]:
    """Plant a bug: if a key's request fails during another pause, waiting messages are sent before the failed ones."""
    right = InnerConsumer._failed

    def failed(self: InnerConsumer, batch: HeldBatch, now: float) -> list[Effect]:
        waiting = self._waiting.pop(batch.lane, None)
        effects = right(self, batch, now)
        if waiting:
            self._waiting[batch.lane] = waiting
            self._ready[batch.lane] = None
        return effects

    return patched(InnerConsumer, _failed=failed)


@planted(None, seed=7, run=of(LETTERS))
def a_redrive_undoes_a_seek() -> AbstractContextManager[None]:
    """What was seen is acknowledged in whatever generation the subscription is by then."""

    async def now(forwarder: PublishForwarder, asked: internal.AcknowledgeSeenRequest) -> None:
        ledger = forwarder.ledgers.get(asked.subscription)
        if ledger is not None:
            asked.generation = ledger.generation
        await acknowledge_seen(forwarder, asked)

    return patched(node_admin, acknowledge_seen=now)


@planted(None, seed=0, run=of(LETTERS))
def letters_brought_back_have_the_name_they_had() -> AbstractContextManager[None]:
    """What is redriven after a seek is taken for what was redriven before it, and acknowledged."""
    right = letter_admin._request

    def unnumbered(record: Subscription, target: Topic, part: Sequence[Found], edit: LetterEdit) -> bytes:
        request = pubsub.PublishRequest.FromString(right(record, target, part, edit))
        for message, (copy, _) in zip(request.messages, part, strict=True):
            name = copy.copy._replace(generation=0).named(record.incarnation)
            message.attributes[FORWARDED_FROM] = f"letter/{name}"
        return bytes(request.SerializeToString())

    return patched(letter_admin, _request=unnumbered)


@planted(None, seed=0, run=of(LETTERS))
def what_is_redriven_is_judged_by_its_publishers_ids() -> AbstractContextManager[None]:
    """A letter whose message has the id of another one is dropped as a duplicate, and acknowledged."""
    right = MessageIds.kinds

    def kinds(self: MessageIds, topic: Topic, request: bytes | memoryview, origin: PublishOrigin) -> Sequence[str]:
        if origin is PublishOrigin.SERVICE and topic.options.duplicate_window_s:
            return (PUBLISHED,)
        return right(self, topic, request, origin)

    return patched(MessageIds, kinds=kinds)


@planted(None, "crash at a refusal", seed=1, run=of(LETTERS))
def letters_have_another_name_each_time() -> AbstractContextManager[None]:
    """A letter that is made again after a break is another one."""
    times, right = itertools.count(), dead_letter.letter

    def renamed(message: bytes, record: Subscription, copy: CopyId, *rest: Any, left: int | None) -> bytes:
        request = pubsub.PublishRequest.FromString(right(message, record, copy, *rest, left=left))
        request.messages[0].attributes[FORWARDED_FROM] += f"/{next(times)}"
        return bytes(request.SerializeToString())

    return patched(dead_letter, letter=renamed)


@planted(None, seed=14, run=of(PULLED))
def what_was_taken_back_is_acknowledged_by_its_earlier_lease() -> AbstractContextManager[None]:
    """Plant a bug: messages leased after a refused message of their key are acknowledged by a late acknowledgement."""
    right = KeyOrder.take_back

    def taken(self: KeyOrder, identity: Identity, *, block: bool, last_serial: int | None = None) -> list[Identity]:
        return right(self, identity, block=block)

    return patched(KeyOrder, take_back=taken)


@planted(None, seed=0, run=of(IDS))
def ids_count_from_when_they_are_scheduled() -> AbstractContextManager[None]:
    """What is scheduled takes its id at once, and keeps it when it is cancelled."""
    return together(
        patched(judged_publishes, _later=lambda messages, request, origin: b""),
        patched(MessageIds, _waits=lambda self, place: False, judge_due=lambda self, topic, framed, second: None),
    )


@planted(None, seed=1, run=of(IDS))
def what_is_due_is_published_whatever_its_id() -> AbstractContextManager[None]:
    """Duplicates are dropped when they are published, and not when they are due."""
    return patched(MessageIds, judge_due=lambda self, topic, framed, second: None)


@planted(None, seed=32, run=of(FORWARDED))
def a_forward_that_waits_is_not_known_again() -> AbstractContextManager[None]:
    """Plant a bug: forwards for a later time are not noted before they are due."""
    right = MessageIds.note_judged

    def note(self: MessageIds, judged: Judgement, places: Sequence[MessagePlace]) -> None:
        by_number = self._sources.by_number
        kept = [
            (number, place)
            for number, place in zip(judged.fresh, places, strict=True)
            if not (judged.key[1] and place.source in by_number and by_number[place.source].topic == WAITING_TOPIC)
        ]
        right(self, judged._replace(fresh=[number for number, _ in kept]), [place for _, place in kept])

    return patched(MessageIds, note_judged=note)


@planted(MOVING, seed=9, run=partial(run_scheduled, repeating=True))
def an_id_that_was_known_once_hides_newer_ones() -> AbstractContextManager[None]:
    """What other chains of a topic know is not taken where an id was known before, however long ago."""
    right = MessageIds._renew

    def renew(self: MessageIds, key: tuple[int, bool], row: IdRow) -> bool:
        ids = self._of.get(key)
        return (ids is None or ids.find(row.hashed) is None) and right(self, key, row)

    return patched(MessageIds, _renew=renew)
