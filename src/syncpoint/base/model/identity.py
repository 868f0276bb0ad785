"""One identity for a message: (universe, source, offset), and its decimal spelling, the `message_id`.

Place: minted when a forwarder appends a message; the same in every copy, cluster and region, for ever.
Promise: no two messages of one universe share an id. A *source* is one topic's share of one log; its number is the
log's counter and an index inside that log, so sources of different logs can never collide. Offsets are dense per
source.
Spelling: 13 digits of universe, the source in decimal, 12 digits of offset, nothing in between. The two ends have a
fixed width, so the text can be taken apart again.
"""

from __future__ import annotations

from typing import NamedTuple

from syncpoint.base.model.errors import InvalidArgument

UNIVERSE_MIN = 10**12  # 13 digits always, and more than 40 bits of chance
UNIVERSE_END = 10**13
UNIVERSE_DIGITS = 13
OFFSET_DIGITS = 12
OFFSET_END = 10**OFFSET_DIGITS
SOURCE_INDEX_BITS = 24  # topics one log can carry
SOURCE_INDEX_END = 1 << SOURCE_INDEX_BITS
LOG_COUNTER_END = 1 << (64 - SOURCE_INDEX_BITS)
_SOURCE_END = 1 << 64


class MessageId(NamedTuple):
    """A message id taken apart."""

    universe: int
    source: int
    offset: int


def make_source(log_counter: int, index: int) -> int:
    """Number of the `index`-th source (from 0) of a log (u64). Raises `ValueError` outside of the ranges."""
    if not 0 <= log_counter < LOG_COUNTER_END or not 0 <= index < SOURCE_INDEX_END:
        raise ValueError(f"no source for log {log_counter}, index {index}")
    return log_counter << SOURCE_INDEX_BITS | index


def log_of(source: int) -> int:
    """The counter of the log a source lives in."""
    return source >> SOURCE_INDEX_BITS


def id_prefix(universe: int, source: int) -> bytes:
    """All of a message id except for its last twelve digits, the offset. Raises `ValueError` outside of the ranges."""
    if not UNIVERSE_MIN <= universe < UNIVERSE_END or not 0 <= source < _SOURCE_END:
        raise ValueError(f"no message id for universe {universe}, source {source}")
    return b"%d%d" % (universe, source)


def format_message_id(universe: int, source: int, offset: int) -> str:
    """The text of a message id. Raises `ValueError` outside of the ranges."""
    if not 0 <= offset < OFFSET_END:
        raise ValueError(f"offset {offset} has no message id")
    return f"{id_prefix(universe, source).decode()}{offset:0{OFFSET_DIGITS}d}"


def parse_message_id(text: str) -> MessageId:
    """Take a message id apart. Raises `InvalidArgument` for a text that is not one."""
    source_text = text[UNIVERSE_DIGITS:-OFFSET_DIGITS]
    if (
        text.isascii()
        and text.isdigit()
        and text[0] != "0"
        and source_text
        and len(source_text) <= 20
        and (source_text[0] != "0" or source_text == "0")
    ):
        source = int(source_text)
        if source < _SOURCE_END:
            return MessageId(int(text[:UNIVERSE_DIGITS]), source, int(text[-OFFSET_DIGITS:]))
    raise InvalidArgument("message_id", "must be a message id of this service")
