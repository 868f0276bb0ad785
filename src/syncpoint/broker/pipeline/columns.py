"""The columns of messages in a batch: their numbers, and how Arrow lays each of them out.

Place: the one table for both directions: `reading` sends columns, the writing side takes them. Where their values
stand in a stored message is known to the kernel (`kernel.columns`, `kernel.rows`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from syncpoint.base.model.errors import InvalidArgument


class Column(NamedTuple):
    """One column. `nodes`: it and the columns inside it; `buffers`: what each buffer holds, in Arrow's order. Buffers
    called valid are bitmaps of what is not null; offsets have one entry more than there are values.
    """

    number: int
    name: str
    nodes: int
    buffers: tuple[str, ...]


MESSAGE_ID, OFFSET, PUBLISH_TIME, DATA, ATTRIBUTES, ORDERING_KEY, ORIGIN, VISITED, SIZE = range(1, 10)
_VALUES = ("valid", "values")
_BYTES = ("valid", "offsets", "bytes")

COLUMNS = {
    column.number: column
    for column in (
        Column(MESSAGE_ID, "message_id", 1, _BYTES),
        Column(OFFSET, "offset", 1, _VALUES),
        Column(PUBLISH_TIME, "publish_time", 1, _VALUES),
        Column(DATA, "data", 1, _BYTES),
        # The map, its entries, their keys, their values.
        Column(ATTRIBUTES, "attributes", 4, ("valid", "offsets", "valid", *_BYTES, *_BYTES)),
        Column(ORDERING_KEY, "ordering_key", 1, _BYTES),
        Column(ORIGIN, "origin", 1, _BYTES),
        Column(VISITED, "visited", 2, ("valid", "offsets", *_BYTES)),
        Column(SIZE, "size", 1, _VALUES),
    )
}


def place_of(number: int, chosen: Sequence[Column]) -> tuple[int, int] | None:
    """Which node and which buffer of a batch of these columns is the first one of a column; None: it is not there."""
    nodes = buffers = 0
    for column in chosen:
        if column.number == number:
            return nodes, buffers
        nodes, buffers = nodes + column.nodes, buffers + len(column.buffers)
    return None


def named(numbers: Sequence[int], field: str = "columns") -> list[Column]:
    """The columns of a request, in its order. Raises InvalidArgument, naming `field`, for one that does not exist or
    is named twice.
    """
    found = []
    for index, number in enumerate(numbers):
        column = COLUMNS.get(number)
        if column is None:
            raise InvalidArgument(f"{field}[{index}]", f"{number} is not a column; use 1 to {len(COLUMNS)}")
        if column in found:
            raise InvalidArgument(f"{field}[{index}]", f"{column.name} is given twice")
        found.append(column)
    return found
