"""What two sites acknowledged on their own, exactly; and asking for all of it in portions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.kernel.acks import AckSet, encode_runs
from syncpoint.base.model.identity import format_message_id
from syncpoint.programs.federation.owned_keys.acked_sets import (
    Acked,
    ask_all,
    both,
    decoded,
    encoded,
    message_ids,
)
from syncpoint.wire.protobuf.messages import pipeline

places = st.sets(st.tuples(st.integers(1, 2), st.integers(0, 20)), max_size=20)


def sets(found: set[tuple[int, int]]) -> Acked:
    made: Acked = {}
    for source, offset in found:
        made.setdefault(source, AckSet()).add(offset, offset + 1)
    return made


def places_of(acked: Acked) -> set[tuple[int, int]]:
    return {(source, begin + i) for source, held in acked.items() for begin, count in held.runs() for i in range(count)}


@given(places, places, places)
def test_both_is_what_is_in_two_and_not_in_the_third(
    one: set[tuple[int, int]], other: set[tuple[int, int]], without: set[tuple[int, int]]
) -> None:
    found = both(sets(one), sets(other), sets(without))
    assert places_of(found) == (one & other) - without
    assert places_of(decoded(encoded(found))) == places_of(found)
    ids = message_ids("e8d4a51000/7", found, 5)
    assert ids == [format_message_id(10**12, *place) for place in sorted(places_of(found))][:5]


def test_a_long_answer_is_asked_for_in_portions_and_anew_after_a_seek() -> None:
    asked: list[Any] = []

    def answer(generation: int, first: int, *, more: bool) -> Any:
        part = pipeline.AckedSource(source=3, count=first + 2, prefix=first + 2, runs=encode_runs([(first, 2)]))
        return pipeline.AckChangesResponse(generation=generation, sources=[part], more=more, source_topic="1/2")

    answers = [answer(0, 0, more=True), answer(1, 4, more=True), answer(1, 6, more=False)]

    def call(request: Any) -> Any:
        asked.append(request)
        return answers[len(asked) - 1]

    found = ask_all(call, "s", "flow")
    assert (found.topic, found.generation, places_of(found.acked)) == ("1/2", 1, {(3, n) for n in range(4, 8)})
    assert [one.generation for one in asked] == [0, 0, 1]
    assert [[known.count for known in one.known] for one in asked] == [[], [2], [6]]
    assert {(one.subscription, one.link) for one in asked} == {("s", "flow")}
