"""What a sample of payloads shows of their fields."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.analytics.json_drift import FIELDS_MAX, WITNESSES, JsonField, json_drift


def drift(payloads: list[Any]) -> dict[str, JsonField]:
    sample = [(number + 1, json.dumps(one).encode()) for number, one in enumerate(payloads)]
    return {one.path: one for one in json_drift(sample).fields}


def test_fields_are_counted_by_path_and_type() -> None:
    found = drift([{"a": 1, "b": {"c": "x"}}, {"a": None, "b": {"c": "y"}, "d": [{"e": True}, {"e": 2}]}])
    assert {path: (one.messages, one.types) for path, one in found.items()} == {
        "a": (2, {"number": 1, "null": 1}),
        "b": (2, {"object": 2}),
        "b.c": (2, {"string": 2}),
        "d": (1, {"array": 1}),
        "d[]": (1, {"object": 1}),
        "d[].e": (1, {"boolean": 1, "number": 1}),
    }
    assert not found["a"].changes
    assert found["d[].e"].changes == ("is boolean and number",)


def test_a_field_that_came_and_one_that_went() -> None:
    early, late = {"old": 1, "kept": 1}, {"new": 1, "kept": "1"}
    found = drift([early] * WITNESSES + [late] * WITNESSES)
    assert found["new"].changes == ("appeared",)
    assert found["old"].changes == ("went",)
    assert found["kept"].changes == ("is number and string",)


def test_too_few_messages_show_nothing() -> None:
    found = drift([{"a": 1}] * (WITNESSES - 1) + [{"a": 1, "b": 1}] + [{"a": 1}] * (WITNESSES - 1))
    assert not found["b"].changes


def test_what_is_no_json_object_is_only_counted() -> None:
    found = json_drift([(1, b"text"), (2, b"[1]"), (3, b"{broken"), (4, b""), (5, b"{" * 100_000), (6, b' {"a":1}')])
    assert (found.sampled, found.objects) == (6, 1)
    assert [one.path for one in found.fields] == ["a"]


def test_keys_that_are_data_do_not_grow_without_bound() -> None:
    found = json_drift([(number, json.dumps({f"id-{number}": 1}).encode()) for number in range(2 * FIELDS_MAX)])
    assert len(found.fields) == FIELDS_MAX
    assert found.left_out == FIELDS_MAX


scalars = st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=2)
objects = st.dictionaries(st.text("ab", max_size=2), scalars | st.lists(scalars, max_size=2), max_size=3)


@given(st.lists(objects, max_size=8), st.randoms())
def test_the_order_of_the_sample_does_not_matter(payloads: list[Any], random: Any) -> None:
    sample = [(number, json.dumps(one).encode()) for number, one in enumerate(payloads)]
    shuffled = list(sample)
    random.shuffle(shuffled)
    found, again = json_drift(sample), json_drift(shuffled)
    assert found.objects == again.objects == len(payloads)
    assert [(one.path, one.types, one.changes) for one in found.fields] == [
        (one.path, one.types, one.changes) for one in again.fields
    ]
