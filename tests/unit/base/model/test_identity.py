"""Message ids can be taken apart again, and never collide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model import identity
from syncpoint.base.model.errors import InvalidArgument

universes = st.integers(identity.UNIVERSE_MIN, identity.UNIVERSE_END - 1)
sources = st.integers(0, 2**64 - 1)
offsets = st.integers(0, identity.OFFSET_END - 1)


@given(universes, sources, offsets)
def test_round_trip(universe: int, source: int, offset: int) -> None:
    text = identity.format_message_id(universe, source, offset)
    assert identity.parse_message_id(text) == (universe, source, offset)
    assert text.encode() == identity.id_prefix(universe, source) + b"%012d" % offset


@given(st.integers(0, identity.LOG_COUNTER_END - 1), st.integers(0, identity.SOURCE_INDEX_END - 1))
def test_source_numbers(log: int, index: int) -> None:
    source = identity.make_source(log, index)
    assert (identity.log_of(source), source - identity.make_source(log, 0)) == (log, index)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "a" * 30,
        "0" * 40,
        "1" * 25,
        "1" * 46,
        "1" * 13 + "01" + "0" * 12,
        "-" + "1" * 30,
        "\u0661" * 30,
        "1" * 13 + str(2**64) + "0" * 12,
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        identity.parse_message_id(text)


def test_ranges() -> None:
    with pytest.raises(ValueError, match="universe"):
        identity.id_prefix(1, 0)
    with pytest.raises(ValueError, match="universe"):
        identity.id_prefix(identity.UNIVERSE_MIN, 2**64)
    with pytest.raises(ValueError, match="offset"):
        identity.format_message_id(identity.UNIVERSE_MIN, 0, identity.OFFSET_END)
    with pytest.raises(ValueError, match="log"):
        identity.make_source(identity.LOG_COUNTER_END, 0)
