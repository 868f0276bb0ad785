"""Every checker passes a good history, and catches the violation it is named after, planted by hand."""

from __future__ import annotations

import pytest

from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal


class Run:
    """Writes a history in single steps."""

    def __init__(self, *, exactly_once=False, ordered=False):
        self.history = History()
        self.create("sub", exactly_once=exactly_once, ordered=ordered)

    def create(self, name, outcome=Outcome.OK, **options):
        self.history.end(self.history.creating(name, "topic", **options), outcome)

    def publish(self, number, outcome=Outcome.OK, key="", message_id=None):
        operation = self.history.publishing("topic", MessageIdentity("p", number), key)
        if outcome is Outcome.OK:
            self.history.published(operation, message_id or f"id-{number}")
        else:
            self.history.end(operation, outcome)

    def deliver(self, number, message_id=None, key="", sub="sub", body=None, receiver="r", arrived=0.0):
        body = seal(MessageIdentity("p", number)) if body is None else body
        self.history.delivered(sub, receiver, message_id or f"id-{number}", body, key, arrived)

    def ack(self, number, outcome=Outcome.OK, sub="sub"):
        self.history.end(self.history.acking(sub, f"id-{number}"), outcome)

    def violations(self, checker):
        return checker(self.history).violations


def test_a_good_run_passes_all_and_each_has_work():
    run = Run(exactly_once=True, ordered=True)
    run.publish(0, key="k")
    run.create("late", exactly_once=True, ordered=True)
    run.publish(1, key="k")
    run.publish(2, Outcome.UNKNOWN, key="k")
    run.publish(3, Outcome.FAILED, key="k")
    for number in (0, 1):
        run.deliver(number, key="k")
        run.ack(number)
    run.deliver(1, key="k", sub="late")
    verdicts = checkers.check(run.history, *checkers.CHECKERS)
    assert len(verdicts) == len(checkers.CHECKERS)
    assert all("all good" in str(verdict) for verdict in verdicts)


def test_a_lost_message_is_caught():
    run = Run()
    run.publish(0)
    run.publish(1)
    run.deliver(1)
    assert len(run.violations(checkers.acknowledged_is_never_lost)) == 1
    assert "number=0" in run.violations(checkers.acknowledged_is_never_lost)[0]
    with pytest.raises(checkers.HistoryViolated, match="never lost: 1 violations"):
        checkers.check(run.history)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED, Outcome.PENDING])
def test_only_confirmed_publishes_are_owed(outcome):
    run = Run()
    if outcome is Outcome.PENDING:
        run.history.publishing("topic", MessageIdentity("p", 0))
    else:
        run.publish(0, outcome)
    assert not run.violations(checkers.acknowledged_is_never_lost)


def test_a_lost_message_on_one_of_two_subscriptions_is_caught():
    run = Run()
    run.create("other")
    run.publish(0)
    run.deliver(0)
    assert run.violations(checkers.acknowledged_is_never_lost) == (
        "other never got MessageIdentity(client='p', number=0) (id id-0)",
    )


def test_a_missed_sync_point_is_caught_and_earlier_publishes_are_not_owed():
    run = Run()
    run.publish(0)
    run.create("late")
    run.publish(1)
    run.deliver(0)
    run.deliver(1)
    assert len(run.violations(checkers.sync_point)) == 1
    assert not run.violations(checkers.acknowledged_is_never_lost)
    run.deliver(1, sub="late")
    assert checkers.sync_point(run.history).checked == 1
    assert not run.violations(checkers.sync_point)


def test_a_publish_under_way_while_a_subscription_is_created_is_not_owed():
    run = Run()
    run.publish(0)
    racing = run.history.publishing("topic", MessageIdentity("p", 1))
    run.create("late")
    run.history.published(racing, "id-1")
    assert not run.violations(checkers.sync_point)


def test_a_subscription_whose_creation_is_unknown_is_owed_nothing():
    run = Run()
    run.publish(0)
    run.create("late", Outcome.UNKNOWN)
    run.publish(1)
    assert not run.violations(checkers.sync_point)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda run: run.deliver(0, body=b"never sealed by anybody"), "changed or never sent"),
        (lambda run: run.deliver(0, body=seal(MessageIdentity("p", 0))[:-1] + b"?"), "changed or never sent"),
        (lambda run: run.deliver(7, message_id="id-x"), "nobody published"),
        (lambda run: run.deliver(3, message_id="id-x"), "was refused"),
        (lambda run: run.deliver(0, key="other"), "with key 'other'"),
        (lambda run: run.deliver(1, message_id="id-0"), "that id was given to"),
    ],
)
def test_invented_and_changed_messages_are_caught(plant, words):
    run = Run()
    run.publish(0)
    run.publish(1)
    run.publish(2, Outcome.UNKNOWN)
    run.publish(3, Outcome.FAILED)
    run.deliver(0)
    run.deliver(1, message_id="a second id, of a repeated publish")
    run.deliver(2, message_id="id-of-the-unknown")
    assert not run.violations(checkers.nothing_invented_or_changed)
    plant(run)
    (violation,) = run.violations(checkers.nothing_invented_or_changed)
    assert words in violation


def test_an_id_given_twice_is_caught():
    run = Run()
    run.publish(0, message_id="same")
    run.publish(1, message_id="same")
    assert len(run.violations(checkers.unique_ids)) == 1


def test_an_id_that_carries_two_bodies_is_caught():
    run = Run()
    run.deliver(0, message_id="same")
    run.deliver(0, message_id="same")
    assert not run.violations(checkers.unique_ids)
    run.deliver(1, message_id="same", sub="other")
    assert len(run.violations(checkers.unique_ids)) == 1


def ordered_run(deliveries, acked=(), unknown=(), count=5):
    """Publish 0..count-1 with one key, then deliver (and ack, where a number is in `acked`) in the given order."""
    run = Run(ordered=True)
    for number in range(count):
        run.publish(number, Outcome.UNKNOWN if number in unknown else Outcome.OK, key="k")
    for number in deliveries:
        run.deliver(number, key="k")
        if number in acked:
            run.ack(number, Outcome.UNKNOWN)
    return run.violations(checkers.order_per_key)


@pytest.mark.parametrize(
    "deliveries",
    [[0, 1, 2, 3, 4], [0, 0, 1, 2], [0, 1, 2, 1, 2, 3], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], [0], []],
)
def test_good_orders_pass(deliveries):
    assert not ordered_run(deliveries)


@pytest.mark.parametrize("deliveries", [[1], [0, 2], [1, 0], [0, 1, 2, 0, 2], [0, 1, 2, 3, 4, 1, 3]])
def test_gaps_and_swaps_are_caught(deliveries):
    assert len(ordered_run(deliveries)) == 1


def test_acked_and_unknown_messages_may_be_left_out():
    assert not ordered_run([0, 1, 2, 0, 2, 3], acked=[1])
    assert not ordered_run([0, 2, 3], unknown=[1])
    assert len(ordered_run([0, 1, 2, 0, 2], acked=[0])) == 1


def test_an_ack_after_the_skip_is_no_excuse():
    run = Run(ordered=True)
    for number in range(3):
        run.publish(number, key="k")
    run.deliver(0, key="k")
    run.deliver(2, key="k")
    run.deliver(1, key="k")
    run.ack(1)
    assert len(run.violations(checkers.order_per_key)) == 1


def a_gap(*, buried):
    """Message 0 is left out by a subscription with dead letters."""
    run = Run()
    run.create("strict", ordered=True, letters="letters")
    run.publish(0, key="k")
    run.publish(1, key="k")
    run.deliver(1, key="k", sub="strict")
    if buried:
        run.deliver(0, key="k", sub="letters", message_id="letter-0")
    return run.violations(checkers.order_per_key)


def test_what_became_a_dead_letter_does_not_hold_up_its_key():
    assert not a_gap(buried=True)
    assert len(a_gap(buried=False)) == 1


def two_receivers(*steps, acked=()):
    run = Run(ordered=True)
    for number in range(4):
        run.publish(number, key="k")
    for number in acked:
        run.ack(number)
    for receiver, number in steps:
        run.deliver(number, key="k", receiver=receiver)
    return run.violations(checkers.order_per_key)


def test_what_was_on_its_way_to_one_receiver_may_be_received_after_the_redelivery_to_another():
    assert not two_receivers(("a", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3), acked=[0])


def test_a_key_that_goes_to_two_receivers_at_a_time_is_caught():
    assert len(two_receivers(("a", 0), ("b", 1))) == 1


def a_late_one_of_the_first(message_id: str) -> int:
    """The first of three comes again between the others; how often that is blamed."""
    run = Run(ordered=True)
    for number in range(3):
        run.publish(number, key="k")
    for number in (0, 1):
        run.deliver(number, key="k", message_id=f"id-{number}")
    run.deliver(0, key="k", message_id=message_id)
    run.deliver(2, key="k", message_id="id-2")
    return len(run.violations(checkers.order_per_key))


def test_a_copy_that_is_stored_late_comes_where_it_is_stored():
    assert a_late_one_of_the_first("id-copy") == 0
    assert a_late_one_of_the_first("id-0") == 1


def test_keys_do_not_bind_each_other_and_unkeyed_flow_freely():
    run = Run(ordered=True)
    for number, key in enumerate(["a", "b", "", "a", "b", ""]):
        run.publish(number, key=key)
    for number, key in [(5, ""), (1, "b"), (4, "b"), (0, "a"), (2, ""), (3, "a")]:
        run.deliver(number, key=key)
    verdict = checkers.order_per_key(run.history)
    assert verdict.good
    assert verdict.checked == 4


def test_a_late_ordered_subscription_may_begin_in_the_middle():
    run = Run()
    run.publish(0, key="k")
    run.create("late", ordered=True)
    run.publish(1, key="k")
    run.publish(2, key="k")
    run.deliver(1, key="k", sub="late")
    run.deliver(2, key="k", sub="late")
    assert not run.violations(checkers.order_per_key)


def test_order_is_not_judged_on_other_subscriptions():
    run = Run(ordered=False)
    run.publish(0, key="k")
    run.publish(1, key="k")
    run.deliver(1, key="k")
    assert checkers.order_per_key(run.history).checked == 0


def test_a_delivery_after_a_confirmed_ack_is_caught():
    run = Run(exactly_once=True)
    run.publish(0)
    run.deliver(0)
    run.deliver(0)
    run.ack(0)
    assert not run.violations(checkers.exactly_once)
    run.deliver(0)
    assert len(run.violations(checkers.exactly_once)) == 1


def test_a_copy_that_waited_in_the_client_counts_from_when_it_arrived():
    run = Run(exactly_once=True)
    run.publish(0)
    run.deliver(0)
    run.ack(0)
    known = run.history.acks[0].known
    run.deliver(0, arrived=known - 0.001)
    assert not run.violations(checkers.exactly_once)
    run.deliver(0, arrived=known + 0.001)
    assert len(run.violations(checkers.exactly_once)) == 1


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAILED])
def test_an_ack_that_was_not_confirmed_promises_nothing(outcome):
    run = Run(exactly_once=True)
    run.publish(0)
    run.deliver(0)
    run.ack(0, outcome)
    run.deliver(0)
    assert not run.violations(checkers.exactly_once)


def test_at_least_once_subscriptions_may_repeat():
    run = Run(exactly_once=False)
    run.publish(0)
    run.deliver(0)
    run.ack(0)
    run.deliver(0)
    assert not run.violations(checkers.exactly_once)


def test_a_checker_without_work_is_reported_where_work_is_due():
    run = Run()
    run.publish(0)
    run.deliver(0)
    checkers.check(run.history, checkers.acknowledged_is_never_lost)
    with pytest.raises(checkers.HistoryViolated, match="exactly once: nothing was checked"):
        checkers.check(run.history, checkers.exactly_once)


def test_a_long_list_of_violations_is_cut_and_counted():
    run = Run()
    for number in range(50):
        run.publish(number)
    text = str(checkers.acknowledged_is_never_lost(run.history))
    assert "50 violations" in text
    assert "and 30 more" in text
