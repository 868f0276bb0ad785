"""The history: one order over all threads, outcomes, and bodies that prove themselves."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal, unseal

identities = st.builds(MessageIdentity, st.text(max_size=30), st.integers(0, 2**64 - 1))


@given(identities, st.binary(max_size=200))
def test_a_sealed_body_names_its_publish(identity, filler):
    assert unseal(seal(identity, filler)) == identity


@given(identities, st.binary(max_size=50), st.data())
def test_any_changed_bit_is_noticed(identity, filler, data):
    body = bytearray(seal(identity, filler))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << (bit % 8)
    assert unseal(bytes(body)) is None


@given(identities, st.binary(max_size=50), st.data())
def test_any_lost_byte_is_noticed(identity, filler, data):
    body = seal(identity, filler)
    cut = data.draw(st.integers(0, len(body) - 1))
    assert unseal(body[:cut]) is None


@given(st.binary(max_size=100))
def test_a_foreign_body_is_not_ours(body):
    assert unseal(body) is None or len(body) >= 14


def test_stamps_order_what_follows_each_other_in_any_thread():
    history = History()
    first = history.publishing("t", MessageIdentity("a", 0))
    history.published(first, "1")
    second = []
    thread = threading.Thread(target=lambda: second.append(history.publishing("t", MessageIdentity("b", 0))))
    thread.start()
    thread.join()
    assert first.begun < first.ended < second[0].begun
    assert second[0].outcome is Outcome.PENDING


def test_missing_is_what_was_confirmed_and_not_seen():
    history = History()
    for number, outcome in enumerate([Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED]):
        history.end(history.publishing("t", MessageIdentity("a", number)), outcome)
    history.published(history.publishing("elsewhere", MessageIdentity("b", 0)), "9")
    history.delivered("s", "r", "1", seal(MessageIdentity("a", 0)))
    assert history.missing("s", "t") == {MessageIdentity("a", 1)}
    assert history.counts() == {
        "deliveries": 1,
        "publish ok": 3,
        "publish unknown": 1,
        "publish failed": 1,
    }
