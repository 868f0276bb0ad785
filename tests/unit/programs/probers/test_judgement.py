"""From histories to verdicts: everything that may be wrong, seen once; what is not known is not judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.probers.judgement import JudgedMetric, ProbeVerdict, as_expected, judge, wrong
from syncpoint.programs.probers.probe_history import ArrivedMessage, ProbeHistory, ReadBack, SentMessage
from syncpoint.programs.probers.probe_run import payload
from syncpoint.programs.probers.prober_table import BY_NAME, METRICS, PROBERS, Measure, ProbedPlane, Wrong

RUN = "abcdef-1"


def sent(number: int, key: str = "", at: float = 0.0) -> SentMessage:
    return SentMessage(number, payload(RUN, number), key, at, True, f"id-{number}")


def came(number: int, key: str = "", at: float = 1.0, path: str = "", **other: object) -> ArrivedMessage:
    fields = {"run": RUN, "data": payload(RUN, number), "key": key, "id": f"id-{number}", **other}
    return ArrivedMessage(number, at=at, path=path, **fields)  # type: ignore[arg-type]


def history(count: int = 3, **fields: object) -> ProbeHistory:
    """A run that went well."""
    numbers = range(count)
    found = ProbeHistory(RUN, sent=[sent(one) for one in numbers], arrived=[came(one) for one in numbers])
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def lost(run: ProbeHistory) -> None:
    run.arrived.pop()


def lost_on_one_path(run: ProbeHistory) -> None:
    run.paths = ("", "b")
    run.arrived += [came(0, path="b"), came(1, path="b")]


def redelivered(run: ProbeHistory) -> None:
    run.acknowledged_at = dict.fromkeys(range(3), 2.0)
    run.arrived.append(came(1, at=2.5))


def disordered(run: ProbeHistory) -> None:
    run.arrived[1], run.arrived[2] = run.arrived[2], run.arrived[1]


def unreturned(run: ProbeHistory) -> None:
    run.again = {0: 2}


def early(run: ProbeHistory) -> None:
    run.again, run.not_before = {1: 2}, {1: 3.0}
    run.arrived.append(came(1, at=1.5))


CASES: list[tuple[str, Wrong, Callable[[ProbeHistory], object]]] = [
    ("P1", Wrong.LOST, lost),
    ("P10", Wrong.LOST, lost_on_one_path),
    ("P1", Wrong.DUPLICATED, lambda run: run.arrived.append(came(1))),
    ("P7", Wrong.ALTERED, lambda run: run.arrived.__setitem__(1, came(1, data=b"other"))),
    ("P7", Wrong.ALTERED, lambda run: run.arrived.__setitem__(1, came(1, key="k"))),
    ("P3", Wrong.RENAMED, lambda run: run.arrived.__setitem__(1, came(1, id="other"))),
    ("P3", Wrong.FOREIGN, lambda run: run.arrived.append(came(7))),
    ("P4", Wrong.REDELIVERED, redelivered),
    ("P6", Wrong.DISORDERED, disordered),
    ("P2", Wrong.UNNAMED, lambda run: setattr(run.sent[1], "id", "")),
    ("P2", Wrong.ID_REPEATED, lambda run: setattr(run.sent[1], "id", "id-0")),
    ("P2", Wrong.ID_REPEATED, lambda run: setattr(run, "earlier_ids", frozenset({"id-2"}))),
    ("P5", Wrong.UNRETURNED, unreturned),
    ("P5", Wrong.EARLY, early),
    ("P8", Wrong.UNLIKE, lambda run: run.read.append(ReadBack("labels", 1, 2))),
    ("P8", Wrong.UNLISTED, lambda run: run.unlisted.append("x")),
    ("P8", Wrong.UNDELETED, lambda run: run.undeleted.append("x")),
    ("P9", Wrong.UNLISTED, lambda run: run.forwarders.append(frozenset())),
    ("P9", Wrong.DISAGREEING, lambda run: run.forwarders.extend([frozenset("a"), frozenset("b")])),
]


def test_ten_probers_of_both_planes_have_thirty_metrics() -> None:
    assert [one.name for one in PROBERS] == [f"P{number}" for number in range(1, 11)]
    assert len(set(METRICS)) == 30
    for plane in ProbedPlane:
        assert [one for one in PROBERS if one.planes == (plane,)], plane
    assert BY_NAME["P1"].timed[0].limit_s == 5.0, "CreateSubscription"


@pytest.mark.parametrize("prober", BY_NAME)
def test_a_run_that_went_well_is_as_expected(prober: str) -> None:
    spec = BY_NAME[prober]
    run = history(steps={step.name: step.limit_s for step in spec.timed})
    assert as_expected(judge(spec, run))


@pytest.mark.parametrize(("prober", "kind", "spoil"), CASES)
def test_what_is_wrong_is_counted_once(prober: str, kind: Wrong, spoil: Callable[[ProbeHistory], object]) -> None:
    spec = BY_NAME[prober]
    run = history(steps={spec.timed[0].name: 0.1})
    spoil(run)
    assert wrong(spec, run) == {kind: 1}
    success, duration, correctness = judge(spec, run)
    assert (success.verdict, duration.verdict) == (ProbeVerdict.EXPECTED, ProbeVerdict.EXPECTED)
    assert correctness == JudgedMetric(Measure.CORRECTNESS, ProbeVerdict.UNEXPECTED, 1.0, 0.0, f"1 {kind}")


def test_every_kind_of_wrong_belongs_to_a_prober_and_is_tried_here() -> None:
    assert {kind for one in PROBERS for kind in one.wrong} == set(Wrong) == {kind for _, kind, _ in CASES}


def test_the_step_that_is_worst_for_its_limit_is_shown() -> None:
    run = history(steps={"create": 4.0, "receive": 3.0})
    duration = judge(BY_NAME["P1"], run)[1]
    assert duration.verdict is ProbeVerdict.UNEXPECTED
    assert (duration.value, duration.limit) == (3.0, 2.0)
    assert duration.text == "receive took 3.00 s, more than 2 s"
    assert judge(BY_NAME["P1"], run, patience=2.0)[1].verdict is ProbeVerdict.EXPECTED


def test_a_run_that_was_broken_off_is_judged_by_what_it_saw() -> None:
    run = history(failure="Publish: UNAVAILABLE: no connection", steps={"create": 0.1})
    run.arrived.pop()
    found = judge(BY_NAME["P1"], run)
    assert [one.verdict for one in found] == [ProbeVerdict.UNEXPECTED, ProbeVerdict.UNKNOWN, ProbeVerdict.UNKNOWN]
    assert found[0].text == "Publish: UNAVAILABLE: no connection"
    run.arrived[0] = came(0, data=b"other")
    run.steps["create"] = 6.0
    assert {one.verdict for one in judge(BY_NAME["P1"], run)} == {ProbeVerdict.UNEXPECTED}


def test_an_attempt_whose_outcome_is_unknown_may_have_given_the_message_its_id() -> None:
    run = history()
    run.sent.insert(0, SentMessage(0, payload(RUN, 0), "", 0.0))
    run.arrived[0] = came(0, id="of the first attempt")
    assert wrong(BY_NAME["P9"], run) == {}


def test_a_copy_has_an_id_of_its_own() -> None:
    run = history(copies=True)
    run.arrived[0] = came(0, id="another")
    assert wrong(BY_NAME["P10"], run) == {}


@given(
    order=st.permutations(range(12)),
    dropped=st.sets(st.integers(0, 11), max_size=3),
    doubled=st.sets(st.integers(0, 11), max_size=3),
)
def test_what_is_dropped_doubled_and_turned_is_counted(order: list[int], dropped: set[int], doubled: set[int]) -> None:
    keys = {number: "abc"[number // 4] for number in range(12)}
    run = ProbeHistory(RUN, sent=[sent(one, keys[one]) for one in range(12)])
    for number in order:
        if number not in dropped:
            run.arrived += [came(number, keys[number])] * (1 + (number in doubled))
    found = wrong(BY_NAME["P6"], run)
    arrivals = [one for one in order if one not in dropped]
    turned = sum(
        any(keys[one] == keys[other] and other > one for other in arrivals[:index])
        for index, one in enumerate(arrivals)
    )
    expected = {Wrong.LOST: len(dropped), Wrong.DUPLICATED: len(doubled - dropped), Wrong.DISORDERED: turned}
    assert found == {kind: count for kind, count in expected.items() if count}
