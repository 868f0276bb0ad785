"""Named checkers beside those of `testing.checkers`: what only a simulation can see.

Each states one promise and lists every place where it was broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from syncpoint.testing.rigs.checkers import CHECKERS, CheckResult
from syncpoint.testing.rigs.history import History, Outcome, Publish
from syncpoint.testing.simulation.base import Moments
from syncpoint.testing.simulation.sets import Seek, Sets, named
from syncpoint.testing.simulation.topology import BURIED, DROPPED, LETTERS

EARLY_S, LATE_S = 0.3, 0.9  # clocks of two hosts differ by less; what is read is lent, and what ran out found, sooner


def one_writer_per_log(intruders: Sequence[str], commands: int) -> CheckResult:
    """Once a disk has answered for an epoch, it executes nothing under a lower one. What it executed before it may
    confirm once more to whoever asks again: that is true, and the new owner has seen it (see
    `simulated_disks.SimDiskServer.run`).
    """
    return CheckResult("one writer per log", commands, tuple(intruders))


def resets_deliver_again(history: History, topic: str, seeks: Sequence[Seek], times: Mapping[str, int]) -> CheckResult:
    """After the last seek of a subscription everything comes once more that was published before it and is
    unacknowledged by it, also what is older than the subscription: all that the topic keeps after a seek to the
    beginning, what is not older than its time after one to a time, and after one to a snapshot what was not
    acknowledged when that was taken.
    """
    checked, violations = 0, []
    sets = Sets(history, topic, seeks, times)
    last = {one.subscription: one for one in seeks}
    living = {one.subscription for one in history.creations if not one.until}
    for seek in last.values():
        if named(seek.subscription, seek.generation) not in living:
            continue  # deleted since
        mine = (one for one in history.deliveries if one.subscription == named(seek.subscription, seek.generation))
        seen = {one.message_id for one in mine}
        # A publish that was sent again may be stored, and delivered, under another id, too; the one it received counts.
        owed = sets.owed(seek)
        checked += len(owed)
        violations += [f"{seek.subscription} did not get {one} again after its seek" for one in sorted(owed - seen)]
    return CheckResult("resets are delivered again", checked, tuple(violations))


def snapshots_keep_acknowledgements(
    history: History, topic: str, seeks: Sequence[Seek], times: Mapping[str, int]
) -> CheckResult:
    """A seek to a snapshot, when all is quiet, brings nothing back that was acknowledged when it was taken."""
    checked, violations = 0, []
    sets = Sets(history, topic, seeks, times)
    for seek in seeks:
        if seek.taken is None or not seek.quiet:
            continue
        acknowledged, name = sets.certain(seek.taken), named(seek.subscription, seek.generation)
        checked += len(acknowledged)
        for one in history.deliveries:
            if one.subscription == name and one.message_id in acknowledged:
                violations.append(f"{name} got {one.message_id} again, acknowledged before its snapshot")
    return CheckResult("snapshots keep acknowledgements", checked, tuple(violations))


def confirmed_once(history: History) -> CheckResult:
    """Check that at most one acknowledgement of a message is confirmed in an exactly-once subscription."""
    once = {one.subscription for one in history.creations if one.exactly_once}
    confirmed = Counter(
        (one.subscription, one.message_id)
        for one in history.acks
        if one.subscription in once and one.outcome is Outcome.OK
    )
    twice = [
        f"{name}: {number} acknowledgements of {one} confirmed"
        for (name, one), number in confirmed.items()
        if number > 1
    ]
    return CheckResult("confirmed once", len(confirmed), tuple(twice))


def nothing_comes_while_it_is_acknowledged(history: History) -> CheckResult:
    """What an exactly-once subscription confirms in the end was not delivered since it was asked to. Only where clients
    and subscribe forwarders are one process: elsewhere such a message may have been under way.
    """
    once = {one.subscription for one in history.creations if one.exactly_once}
    asked = defaultdict(list)
    for ack in history.acks:
        if ack.subscription in once and ack.outcome is Outcome.OK:
            asked[ack.subscription, ack.message_id].append(ack)
    bad = [
        f"{one.subscription} got {one.message_id} ({one.identity}) while its acknowledgement was under way"
        for one in history.deliveries
        if any(ack.begun < one.at < ack.ended for ack in asked.get((one.subscription, one.message_id), ()))
    ]
    return CheckResult("nothing comes while it is acknowledged", len(asked), tuple(bad))


def nobody_else_acknowledges(history: History, dead: Collection[str] = ()) -> CheckResult:
    """What was delivered counts as acknowledged in the end: then some client has tried to. Not judged for `dead`:
    subscriptions with dead letters, and what was reset or deleted since, whose messages need nobody any more.
    """
    living = {one.subscription for one in history.creations if not one.until} - set(dead)
    tried = {(one.subscription, one.message_id) for one in history.acks}
    seen = {(one.subscription, one.message_id) for one in history.deliveries if one.subscription in living}
    bad = [f"{name} {one} was delivered, and acknowledged by no client" for name, one in sorted(seen - tried)]
    return CheckResult("nobody else acknowledges", len(seen), tuple(bad))


def failed_means_failed(history: History) -> CheckResult:
    """An acknowledgement of which an exactly-once client was notified that it failed for good does not count: the
    message comes again, and somebody acknowledges it otherwise.
    """
    once = {one.subscription for one in history.creations if one.exactly_once and not one.until}
    failed = {(one.subscription, one.message_id) for one in history.acks if one.outcome is Outcome.FAILED}
    failed = {one for one in failed if one[0] in once}
    others = {(one.subscription, one.message_id) for one in history.acks if one.outcome is not Outcome.FAILED}
    bad = [
        f"{name} {one} was acknowledged, and its only sender was notified that it failed"
        for name, one in sorted(failed - others)
    ]
    return CheckResult("failed means failed", len(failed), tuple(bad))


def letters_arrive(history: History, doomed: str, letters: str) -> CheckResult:
    """What a subscription with dead letters got is acknowledged by a client there, or delivered as a letter."""
    tried = {one.message_id for one in history.acks if one.subscription == doomed}
    arrived = {one.identity for one in history.deliveries if one.subscription == letters}
    mine = [one for one in history.deliveries if one.subscription == doomed]
    bad = {
        f"{one.identity} was delivered as {one.message_id}, and neither acknowledged nor sent to the dead letters"
        for one in mine
        if one.message_id not in tried and one.identity not in arrived
    }
    return CheckResult("dead letters arrive", len(mine), tuple(sorted(bad)))


def messages_run_out(history: History, moments: Moments, *, prompt: bool) -> CheckResult:
    """What lives for some seconds becomes a letter not before they are over, and only if nobody was confirmed to have
    acknowledged it; who neither acknowledged it has its letter. `prompt`: nothing delays, then it does not come later
    than LATE_S behind its end.
    """
    lives, bad = moments.fleeting, []
    letters = {one.identity for one in history.deliveries if one.subscription == LETTERS}
    of = {one.message_id: one.identity for one in history.deliveries if one.subscription == BURIED}
    tried = {of.get(one.message_id) for one in history.acks if one.subscription == BURIED}
    done = {of[one.message_id] for one in history.acks if one.subscription == BURIED and one.outcome is Outcome.OK}
    begun = next((one.ended for one in history.creations if one.subscription == BURIED), 0)
    for publish in history.publishes:
        one = publish.identity
        if one not in lives:
            continue
        sent, live_s = lives[one]
        arrived = moments.delivered.get((LETTERS, one))
        if arrived is not None and arrived < sent + live_s - EARLY_S:
            bad.append(f"the letter of {one} came {arrived - sent:.1f} s after it was sent, which lives {live_s} s")
        if one in letters and one in done:
            bad.append(f"{one} was acknowledged, which was confirmed, and has a letter")
        if (
            publish.outcome is Outcome.OK
            and begun
            and publish.begun > begun
            and one not in tried
            and one not in letters
        ):
            bad.append(f"{one} was not acknowledged, and has no letter")
        for name in (BURIED, DROPPED) if prompt and publish.outcome is Outcome.OK else ():
            at = moments.last_delivered.get((name, one), 0.0)
            if at > moments.published[one] + live_s + LATE_S:
                bad.append(f"{name} got {one} {at - sent:.1f} s after it was sent, which lives {live_s} s")
    return CheckResult("messages run out", len(lives), tuple(bad))


def first_comes_first(history: History) -> CheckResult:
    """What was published earlier under a key is delivered to an ordered subscription, for the first time and to
    whomever, before what was published later. Not judged where nobody knows whether it was published.
    """
    published = {one.identity: one for one in history.publishes if one.key and one.outcome is Outcome.OK}
    checked, bad = 0, []
    for name in sorted({one.subscription for one in history.creations if one.ordered}):
        last: dict[tuple[str, str], Publish] = {}
        seen = set()
        for delivery in history.deliveries:
            publish = published.get(delivery.identity) if delivery.identity is not None else None
            if delivery.subscription != name or publish is None or delivery.identity in seen:
                continue
            seen.add(delivery.identity)
            checked += 1
            before = last.setdefault((publish.topic, publish.key), publish)
            if before.begun > publish.ended:
                bad.append(f"{name} got {publish.identity} for the first time after {before.identity}")
            elif publish.begun > before.begun:
                last[publish.topic, publish.key] = publish
    return CheckResult("first comes first", checked, tuple(bad))


def sealed_for_its_topic(history: History, letters: str) -> CheckResult:
    """Where messages are sealed, one comes to subscriptions of the very topic that it was sealed for, or, sealed anew,
    to the one of dead letters.
    """
    topics = {one.subscription: one.topic for one in history.creations if one.subscription != letters}
    published = {one.identity: one for one in history.publishes}
    found = [(one, published.get(one.identity)) for one in history.deliveries if one.identity is not None]
    bad = [
        f"{one.subscription} got {one.identity}, sealed for {publish.topic}"
        for one, publish in found
        if publish is not None and publish.topic != topics.get(one.subscription, publish.topic)
    ]
    return CheckResult("sealed for its topic", len(found), tuple(bad))


def progress(history: History, moments: Moments, prompt_s: float) -> CheckResult:
    """Once all is healed, and it is published, a message is delivered for the first time within so many seconds."""
    checked, violations = 0, []
    for creation in history.creations:
        for publish in history.publishes:
            if publish.outcome is not Outcome.OK or publish.begun < creation.ended:
                continue
            if publish.topic != creation.topic or creation.until:
                continue
            came = moments.delivered.get((creation.subscription, publish.identity))
            if came is None:
                continue  # what never comes is for others to judge
            checked += 1
            took = came - max(moments.healed, moments.published[publish.identity])
            if took > prompt_s:
                violations.append(f"{creation.subscription} got {publish.identity} only {took:.1f} s after the healing")
    return CheckResult("progress", checked, tuple(violations))


def converged(complaints: Sequence[str], checked: int) -> CheckResult:
    """Once all faults are healed, everything is delivered, acknowledged, and on all disks again."""
    return CheckResult("convergence after heal", checked, tuple(complaints))


def judge(history: History, further: Iterable[CheckResult]) -> tuple[list[str], dict[str, int]]:
    """All violations, as sentences, and how much every checker checked."""
    found: list[str] = []
    looked: dict[str, int] = defaultdict(int)
    for verdict in (*(checker(history) for checker in CHECKERS), *further):
        looked[verdict.name] += verdict.checked
        found += [f"{verdict.name}: {one}" for one in verdict.violations[:5]]
        if len(verdict.violations) > 5:
            found.append(f"{verdict.name}: and {len(verdict.violations) - 5} more")
    return found, dict(looked)
