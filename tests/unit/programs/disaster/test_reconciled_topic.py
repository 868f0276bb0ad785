"""Records of one topic against its log: planted faults are found, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.disaster.reconciled_topic import Amiss, ReconciledTopic, Window, common, minus

pytestmark = pytest.mark.shows("disaster-classes")

S, T0, OLD = "projects/p/subscriptions/s", 1_000_000_000, 5_000_000
WINDOW = Window(T0, T0 + 3_600_000_000)


def record(kind, runs, at=T0, subscription=S, **more):
    found = {"kind": kind, "at": at, "source": 7, "runs": runs, **more}
    if kind == "published":
        found["published"] = at
    elif kind != "found":
        found["subscription"] = subscription
    return found


def judged(*records, log=(0, 10), ordered=(), exchanged=False, numbers=None, kept_since_us=None):
    machine = ReconciledTopic(WINDOW, exchanged=exchanged, kept_since_us=kept_since_us)
    for index, one in enumerate(records):
        number = index + 1 if numbers is None else numbers[index]
        machine.add({"writer": "n/1", "number": number, "lost": 0, "records": [one]})
    return machine.judge({} if log is None else {7: log}, [S], ordered)


WELL = (
    record("published", [[0, 10]]),
    record("delivered", [[0, 10]], T0 + OLD),
    record("acknowledged", [[0, 10]], T0 + OLD),
)


def test_what_adds_up_has_no_findings() -> None:
    assert judged(*WELL) == ([], 0)
    parts = (record("delivered", [[0, 5]]), record("filtered", [[5, 2]]), record("delivered", [[7, 3]]))
    assert judged(record("published", [[0, 10]]), *parts) == ([], 0)


def test_a_message_beyond_the_end_of_the_log_is_lost() -> None:
    assert judged(*WELL, log=(0, 8))[0] == [Amiss("lost", 7, 8, 10)]


def test_what_no_retention_keeps_may_be_gone_with_its_source_and_what_one_keeps_is_lost() -> None:
    """A log that ended goes once everything in it is acknowledged."""
    assert judged(*WELL, log=None) == ([], 0)
    assert judged(*WELL, log=(4, 10)) == ([], 0)
    assert judged(*WELL, log=None, kept_since_us=T0)[0] == [Amiss("lost", 7, 0, 10)]
    assert judged(*WELL, log=(4, 8), kept_since_us=T0)[0] == [Amiss("lost", 7, 0, 4), Amiss("lost", 7, 8, 10)]
    assert judged(*WELL, log=None, kept_since_us=T0 + 1) == ([], 0), "published before what the retention keeps"


def test_what_nobody_recorded_between_others_is_named() -> None:
    found = judged(record("published", [[0, 3]]), record("published", [[5, 5]]), *WELL[1:])
    assert found[0] == [Amiss("unrecorded", 7, 3, 5)]


def test_what_was_passed_over_was_never_delivered_unless_a_key_may_hold_it() -> None:
    records = record("published", [[0, 10]]), record("delivered", [[0, 4], [6, 4]]), record("acknowledged", [[0, 4]])
    assert judged(*records)[0] == [Amiss("never delivered", 7, 4, 6, S)]
    assert judged(*records, ordered=[S]) == ([], 0)
    assert judged(record("published", [[0, 10]]), record("delivered", [[0, 4]])) == ([], 0), "the rest still waits"


def test_an_acknowledgement_of_what_was_not_delivered_is_amiss_unless_another_site_did() -> None:
    records = record("published", [[0, 2]]), record("acknowledged", [[0, 2]])
    assert judged(*records)[0] == [Amiss("acknowledged without delivery", 7, 0, 2, S)]
    assert judged(*records, exchanged=True) == ([], 0)


def test_a_delivery_after_the_acknowledgement_is_amiss_unless_a_seek_was_between() -> None:
    again = record("delivered", [[2, 3]], T0 + OLD + 2_000_000)
    assert judged(*WELL, again)[0] == [Amiss("delivered after acknowledgement", 7, 2, 5, S)]
    soon = record("delivered", [[2, 3]], T0 + OLD + 900_000)
    assert judged(*WELL, soon) == ([], 0), "by another clock it was before"
    placed = record("placed", [[0, 2]], T0 + OLD, generation=1)
    assert judged(*WELL, placed, {**again, "generation": 1}) == ([], 0)


def test_only_what_was_published_in_the_window_is_judged() -> None:
    before = record("published", [[0, 10]], T0 - 1)
    assert judged(before, record("acknowledged", [[0, 10]])) == ([], 0)


def test_what_missing_records_may_explain_is_unknown_and_what_they_cannot_is_not() -> None:
    records = (*WELL[:1], record("acknowledged", [[0, 10]]))
    assert judged(*records, numbers=[1, 3]) == ([], 10)
    again = record("delivered", [[2, 3]], T0 + OLD + 2_000_000)
    found, unknown = judged(*WELL, again, numbers=[1, 2, 3, 5])
    assert (found, unknown) == ([Amiss("delivered after acknowledgement", 7, 2, 5, S)], 0)


def test_a_subscription_with_copies_by_rules_is_not_judged() -> None:
    lane = {**record("delivered", [[0, 1]]), "lane": 2}
    assert judged(record("published", [[0, 2]]), lane, record("acknowledged", [[0, 2]])) == ([], 0)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=6)


@given(SPANS, SPANS)
def test_spans_are_subtracted_and_met_as_sets_are(one, other) -> None:
    from syncpoint.base.model.spans import joined

    def numbers(spans):
        return {number for begin, end in spans for number in range(begin, end)}

    a, b = (joined((begin, begin + length) for begin, length in spans) for spans in (one, other))
    assert numbers(minus(a, b)) == numbers(a) - numbers(b)
    assert numbers(common(a, b)) == numbers(a) & numbers(b)
