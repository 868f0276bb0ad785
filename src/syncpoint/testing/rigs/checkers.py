"""Named judges of a history: each states one promise of the service and lists every place where it was broken.

Place on the message's path: outside of it, after the fact. A checker takes a `History` and returns a `CheckResult`; it
never stops at the first violation, and it says how many things it checked, so that a run in which nothing happened
cannot pass for a good one.
Promises: *failed* operations count as not happened, *unknown* ones as perhaps happened: neither is ever blamed on the
service, and nothing that was confirmed is ever excused.
Leaves to its user: to drain all subscriptions before judging, and to enter everything that was done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from syncpoint.testing.rigs.history import Ack, Creation, History, MessageIdentity, Outcome, Publish, Receipt

VIOLATIONS_SHOWN = 20
"""Violations a verdict's text lists; the rest are counted."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one checker found: how many things it judged, and every violation as a sentence."""

    name: str
    checked: int
    violations: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if self.good:
            return f"{self.name}: {self.checked} checked, all good"
        shown = "\n  ".join(self.violations[:VIOLATIONS_SHOWN])
        more = len(self.violations) - VIOLATIONS_SHOWN
        tail = f"\n  ... and {more} more" if more > 0 else ""
        return f"{self.name}: {len(self.violations)} violations in {self.checked} checked\n  {shown}{tail}"


class HistoryViolated(AssertionError):
    """Raised by `check` with the text of every bad verdict."""


def _seen(history: History) -> dict[str, set[MessageIdentity | None]]:
    seen: dict[str, set[MessageIdentity | None]] = defaultdict(set)
    for delivery in history.deliveries:
        seen[delivery.subscription].add(delivery.identity)
    return seen


def _owed(history: History, creations: Iterable[Creation], name: str) -> CheckResult:
    """Every confirmed publish that began after a creation returned must have been seen on that subscription."""
    seen = _seen(history)
    by_topic: dict[str, list[Publish]] = defaultdict(list)
    for publish in history.publishes:
        if publish.outcome is Outcome.OK:
            by_topic[publish.topic].append(publish)
    checked, violations = 0, []
    for creation in creations:
        if creation.outcome is not Outcome.OK or creation.until:
            continue
        for publish in by_topic[creation.topic]:
            if publish.begun < creation.ended:
                continue
            checked += 1
            if publish.identity not in seen[creation.subscription]:
                violations.append(f"{creation.subscription} never got {publish.identity} (id {publish.message_id})")
    return CheckResult(name, checked, tuple(violations))


def _first_publish(history: History, topic: str) -> int:
    return min((one.begun for one in history.publishes if one.topic == topic), default=0)


def acknowledged_is_never_lost(history: History) -> CheckResult:
    """A publish that was confirmed reaches every subscription that was there before publishing began."""
    early = [one for one in history.creations if one.ended < _first_publish(history, one.topic)]
    return _owed(history, early, "acknowledged is never lost")


def sync_point(history: History) -> CheckResult:
    """A subscription created while publishing goes on gets every publish that began after its creation returned."""
    late = [one for one in history.creations if one.ended > _first_publish(history, one.topic)]
    return _owed(history, late, "sync point")


def nothing_invented_or_changed(history: History) -> CheckResult:
    """Every delivered body is one that was sent, whole, with its ordering key, under the id its publisher received.

    A confirmed publish may still be seen under further ids: a client repeats a publish whose answer was lost. A publish
    that certainly failed must never be seen.
    """
    published = {one.identity: one for one in history.publishes}
    by_id = {one.message_id: one.identity for one in history.publishes if one.outcome is Outcome.OK}
    violations = []
    for one in history.deliveries:
        where = f"{one.subscription} got {one.message_id}"
        publish = published.get(one.identity) if one.identity else None
        if one.identity is None:
            violations.append(f"{where}, whose bytes were changed or never sent")
        elif publish is None:
            violations.append(f"{where} as {one.identity}, which nobody published")
        elif publish.outcome is Outcome.FAILED:
            violations.append(f"{where} as {one.identity}, whose publish was refused")
        elif publish.key != one.key:
            violations.append(f"{where} with key {one.key!r} instead of {publish.key!r}")
        elif by_id.get(one.message_id, one.identity) != one.identity:
            violations.append(f"{where} as {one.identity}, but that id was given to {by_id[one.message_id]}")
    return CheckResult("nothing invented or changed", len(history.deliveries), tuple(violations))


def unique_ids(history: History) -> CheckResult:
    """No message id is given twice, neither to two publishers nor to two different bodies."""
    violations, checked = [], 0
    owners: dict[str, MessageIdentity] = {}
    for publish in history.publishes:
        if publish.outcome is not Outcome.OK:
            continue
        checked += 1
        before = owners.setdefault(publish.message_id, publish.identity)
        if before != publish.identity:
            violations.append(f"id {publish.message_id} was given to {before} and to {publish.identity}")
    carried: dict[str, MessageIdentity | None] = {}
    for delivery in history.deliveries:
        checked += 1
        before_seen = carried.setdefault(delivery.message_id, delivery.identity)
        if before_seen != delivery.identity:
            violations.append(f"id {delivery.message_id} carried {before_seen} and {delivery.identity}")
    return CheckResult("unique ids", checked, tuple(violations))


def order_per_key(history: History) -> CheckResult:
    """On ordered subscriptions a key's messages come in the order they were published, without a gap.

    After a message the next one of its key at the same receiver is its successor, or an earlier one, from which
    everything comes again in order. A copy of one that was asked for again while an earlier attempt was under way comes
    where it is stored, after what was published since, and nothing comes again for it. What was acknowledged in
    between (by whomever), what perhaps was never published, and what became a dead letter may be left out. Receivers
    are judged one by one, since what two of them learn at once has no order; a key that goes to two receivers at a time
    still shows as a gap at one of them.
    """
    ordered = {one.subscription: one.topic for one in history.creations if one.ordered}
    letters = {one.subscription: one.letters for one in history.creations if one.letters}
    buried = {(one.subscription, one.identity) for one in history.deliveries if one.subscription in letters.values()}
    sequences: dict[tuple[str, str], list[Publish]] = defaultdict(list)
    for publish in history.publishes:
        if publish.key and publish.outcome is not Outcome.FAILED:
            sequences[publish.topic, publish.key].append(publish)
    for sequence in sequences.values():
        sequence.sort(key=lambda publish: publish.begun)
    place = {publish.identity: index for sequence in sequences.values() for index, publish in enumerate(sequence)}
    ids: dict[MessageIdentity | None, set[str]] = defaultdict(set)
    first_id: dict[MessageIdentity | None, str] = {}
    for delivery in history.deliveries:
        ids[delivery.identity].add(delivery.message_id)
        first_id.setdefault(delivery.identity, delivery.message_id)
    acked_at: dict[tuple[str, str], int] = {}
    for ack in history.acks:
        known = acked_at.get((ack.subscription, ack.message_id), ack.begun)
        acked_at[ack.subscription, ack.message_id] = min(known, ack.begun)
    streams: dict[tuple[str, str, str], list[Receipt]] = defaultdict(list)
    for delivery in history.deliveries:
        if delivery.key and delivery.subscription in ordered and delivery.identity in place:
            streams[delivery.subscription, delivery.key, delivery.receiver].append(delivery)

    created = {one.subscription: one.ended for one in history.creations if one.outcome is Outcome.OK}
    checked, violations = 0, []
    for (subscription, key, _), deliveries in streams.items():
        sequence = sequences[ordered[subscription], key]
        owed_from = created.get(subscription, 0)

        def may_be_left_out(
            publish: Publish,
            at: int,
            subscription: str = subscription,
            owed_from: int = owed_from,
        ) -> bool:
            if publish.outcome is not Outcome.OK or publish.begun < owed_from:
                return True
            if (letters.get(subscription), publish.identity) in buried:
                return True
            known = {publish.message_id, *ids[publish.identity]}
            return any(acked_at.get((subscription, one), at) < at for one in known)

        last = -1
        for delivery in deliveries:
            assert delivery.identity is not None
            now = place[delivery.identity]
            checked += 1
            if now <= last and delivery.message_id != first_id[delivery.identity]:
                continue
            skipped = [one for one in sequence[last + 1 : now] if not may_be_left_out(one, delivery.at)]
            if skipped:
                due = skipped[0].identity
                violations.append(f"{subscription} key {key!r}: {delivery.identity} came while {due} was to come first")
            last = now
    return CheckResult("order per key", checked, tuple(violations))


def exactly_once(history: History) -> CheckResult:
    """On exactly-once subscriptions no message comes again after its acknowledgement was confirmed.

    A copy that lay in the client's own queue in the meantime came before: what counts is when it arrived.
    """
    subscriptions = {one.subscription for one in history.creations if one.exactly_once}
    confirmed: dict[tuple[str, str], Ack] = {}
    for ack in history.acks:
        if ack.subscription in subscriptions and ack.outcome is Outcome.OK:
            known = confirmed.setdefault((ack.subscription, ack.message_id), ack)
            if ack.ended < known.ended:
                confirmed[ack.subscription, ack.message_id] = ack

    def is_behind(delivery: Receipt, ack: Ack | None) -> bool:
        if ack is None or delivery.at < ack.ended:
            return False
        return not delivery.arrived or ack.known < delivery.arrived

    violations = [
        f"{one.subscription} got {one.message_id} ({one.identity}) again after its ack was confirmed"
        f"{_copies(history, one, confirmed[one.subscription, one.message_id])}"
        for one in history.deliveries
        if is_behind(one, confirmed.get((one.subscription, one.message_id)))
    ]
    return CheckResult("exactly once", len(confirmed), tuple(violations))


def _copies(history: History, copy: Receipt, ack: Ack) -> str:
    """When each copy of a message came, in seconds since its acknowledgement was confirmed; "" without clocks."""
    if not ack.known:
        return ""
    same = [
        one for one in history.deliveries if (one.subscription, one.message_id) == (ack.subscription, ack.message_id)
    ]
    return ": " + ", ".join(f"{one.receiver} at {one.arrived - ack.known:+.3f} s" for one in same)


Checker = Callable[[History], CheckResult]

CHECKERS: tuple[Checker, ...] = (
    acknowledged_is_never_lost,
    nothing_invented_or_changed,
    unique_ids,
    order_per_key,
    exactly_once,
    sync_point,
)


def check(history: History, *must_have_work: Checker, checkers: Iterable[Checker] = CHECKERS) -> list[CheckResult]:
    """Run the checkers and return their verdicts.

    Raises HistoryViolated if one is bad, or if one of `must_have_work` had nothing to judge.
    """
    verdicts, complaints = [], []
    for checker in checkers:
        verdict = checker(history)
        verdicts.append(verdict)
        if not verdict.good:
            complaints.append(str(verdict))
        elif checker in must_have_work and not verdict.checked:
            complaints.append(f"{verdict.name}: nothing was checked ({history.counts()})")
    if complaints:
        raise HistoryViolated("\n".join(complaints))
    return verdicts
