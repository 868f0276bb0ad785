"""Who lent a message, read off its ack id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel import ackids
from syncpoint.broker.subscribe.lease_holder import by_lender, lender_in, lender_of, table_epoch
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness
from syncpoint.wire.protobuf.messages import pubsub


@given(
    st.integers(0, 2**16 - 1), st.integers(0, 2**20), st.integers(0, 2**64 - 1), st.integers(0, 2**62 - 1),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_an_ack_id_names_its_lender(lender: int, number: int, source: int, offset: int, serial: int) -> None:
    epoch = table_epoch(lender, number)
    assert lender_in(ackids.encode(bytes(16), source, offset, serial, epoch, 3)) == lender


def test_what_is_no_ack_id_names_nobody() -> None:
    assert lender_in(b"bogus") is None
    assert lender_in(b"!" * 48) is None


def test_a_restarted_forwarder_is_another_lender_and_tables_of_one_differ() -> None:
    assert lender_of("a", 1) != lender_of("a", 2)
    assert lender_of("a", 1) == lender_of("a", 1)
    assert len({table_epoch(9, number) for number in range(100)}) == 100


def test_a_request_is_parted_by_lender() -> None:
    ids = [ackids.encode(bytes(16), 1, n, 1, table_epoch(n % 2 + 5, n), 0) for n in range(4)]
    request = pubsub.AcknowledgeRequest(subscription="s", ack_ids=[one.decode() for one in ids]).SerializeToString()
    assert by_lender(request, 2) == {5: [ids[0], ids[2]], 6: [ids[1], ids[3]]}


def test_tables_are_numbered_for_each_subscription() -> None:
    """So that numbers come again only after 65,536 tables of one subscription, not of all together."""
    harness = ForwarderHarness()
    forwarder = SubscribeForwarder(
        harness.publish.server, harness.publish.catalog, harness.clock, key=bytes(32), random=harness.random,
        soon=harness.run_soon, lender=7,
    )  # fmt: skip
    epochs = {forwarder._next_epoch(subscription) for subscription in range(70_000)}
    assert epochs == {table_epoch(7, 1)}
    assert forwarder._next_epoch(5) == table_epoch(7, 2)


def test_of_deleted_subscriptions_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.broker.subscribe.subscribe_forwarder.KNOWN_MAX", 10)
    harness = ForwarderHarness()
    forwarder = SubscribeForwarder(
        harness.publish.server, harness.publish.catalog, harness.clock, key=bytes(32), random=harness.random,
        soon=harness.run_soon, lender=7,
    )  # fmt: skip
    for number in range(100, 200):
        record = Subscription(number, f"projects/p/subscriptions/s{number}", 1, TOPIC)
        harness.commit(CatalogChange.put(record))
        forwarder.delivery(record)
        harness.commit(CatalogChange.delete(record))
        forwarder.tick()
    forwarder.delivery(harness.record)
    forwarder.tick()
    assert len(forwarder.used) <= 12
    assert len(forwarder._tables) <= 12
    assert forwarder._tables[harness.record.incarnation] == 1
