"""What a seek would change in one chain, counted beforehand. Nothing is moved or read.

Place: serves `internal.v1.Chains/Describe`; `api.seek_preview_admin` adds up all chains.
Promise: the sets are those that `seek` would put in place, and they are compared with what is acknowledged in one turn
of the loop. Counted is what `backlog` counts: what is persisted, from the first message that is stored on, whether a
filter selects it or not, each copy by rules. Where something in between was deleted, it is counted until it is missed.
"""

from __future__ import annotations

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.source_ends import stored_run
from syncpoint.broker.publish.intake.deliverable import expired_at, known_expired, pass_over_expired
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.seek import acks_at_snapshot, acks_at_time
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import internal


def seek_change(forwarder: PublishForwarder, asked: internal.ForeseenSeek) -> internal.SeekChange:
    """What a seek would change here; the reason why that is not known is in `unknown`."""
    answer = internal.SeekChange()
    try:
        _count(forwarder, asked, answer)
    except SyncpointError as error:
        return internal.SeekChange(unknown=error.message)
    except Exception as error:  # any storage error: what was counted so far must not look complete
        return internal.SeekChange(unknown=str(error) or type(error).__name__)
    return answer


def _count(forwarder: PublishForwarder, asked: internal.ForeseenSeek, answer: internal.SeekChange) -> None:
    record = forwarder.catalog.subscription_by_incarnation(asked.subscription)
    ledger = forwarder.ledgers.get(asked.subscription)
    if record is None or (ledger is None and forwarder.sources.of_topic(record.topic_incarnation)):
        raise Unavailable("This process does not know the subscription yet. Try again.")
    if ledger is None:
        return  # nothing of its topic is here
    after = _ledger_after(forwarder, record, ledger, asked)
    expired = expired_at(forwarder.catalog, ledger, forwarder.clock.sure_ns())
    for source in forwarder.sources.of_topic(record.topic_incarnation):
        number, (first, last) = source.number, stored_run(forwarder.store, source)
        if first >= last:
            continue
        pass_over_expired(
            forwarder.ledgers, ledger, source, expired, forwarder.expiry, forwarder.store, forwarder.commit.recorder
        )
        then = after.of(number)
        for begin, end in known_expired(after, source, expired, forwarder.expiry, forwarder.store):
            then.add(begin, end)
        now = ledger.known(number) or AckSet()
        either = now.copy()
        either.union(then)
        for lane in ledger.lane_numbers:
            begin, end = in_lane(lane, first), in_lane(lane, last)
            acknowledged, both = now.count(begin, end), either.count(begin, end)
            answer.unacknowledged += end - begin - acknowledged
            answer.returning += both - then.count(begin, end)
            answer.acknowledged += both - acknowledged


def _ledger_after(
    forwarder: PublishForwarder, record: Subscription, ledger: Ledger, asked: internal.ForeseenSeek
) -> Ledger:
    """The ledger as the seek would leave it."""
    renewed_ns = ledger.renewed_ns
    acks: dict[int, AckSet] = {}
    if asked.WhichOneof("target") == "time_ns":
        acks = acks_at_time(forwarder, record, asked.time_ns)
    else:
        renewed_ns = forwarder.clock.time_ns()
        if asked.snapshot in forwarder.snapshots:
            acks = acks_at_snapshot(forwarder, record, asked.snapshot)
        elif forwarder.catalog.snapshot_by_incarnation(asked.snapshot) is None:
            raise Unavailable("This process does not know the snapshot yet, or it was deleted. Try again.")
        # Otherwise it was taken when nothing of the topic was here: all that is here came later.
    after = Ledger(ledger.subscription, ledger.generation, start=dict(ledger.start), lanes=dict(ledger.lanes))
    after.merge(Ledger(ledger.subscription, ledger.generation + 1, acks, dict(ledger.start), renewed_ns))
    return after
