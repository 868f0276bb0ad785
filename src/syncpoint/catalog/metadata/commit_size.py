"""How large a change of the catalog may be: what the strictest of all who read it can take.

Place: asked by every commit of the catalog, of one node and of a cluster, before anything is written anywhere.
Promise: what passes fits into one transaction of every store, in which a record stands twice (by itself, and in the
change that watches report), and so into the replica of one node and the messages in which processes send it on. What
does not is refused whole. A deletion passes, so that what is too large can go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Record, Setting, encode_record

CHANGE_BYTES_MAX: Final = 480 * 1024
"""Bytes of the records that one change puts, as stored: twice as much is less than `contract.TXN_BYTES_MAX`."""
TOGETHER_MAX: Final = 20
"""Records that are changed together; policies of those that are deleted go along."""


def check_commit(changes: Iterable[CatalogChange]) -> None:
    """Raise `InvalidArgument`, which names the largest record, where the changes are more than readers can take."""
    sizes = [(len(encode_record(one.record)), one.record) for one in changes if one.op is ChangeOp.PUT]
    total = sum(size for size, _ in sizes)
    if total > CHANGE_BYTES_MAX:
        size, record = max(sizes, key=lambda one: one[0])
        raise InvalidArgument(
            _kind(record),
            f"takes {size} bytes when stored, {total} with the records changed in the same request; the maximum is"
            f" {CHANGE_BYTES_MAX}. Make it smaller, or split the change",
        )


def fits(record: Record) -> bool:
    """Whether a record that is changed alone is not too large."""
    return len(encode_record(record)) <= CHANGE_BYTES_MAX


def in_parts(changes: Sequence[CatalogChange]) -> Iterator[list[CatalogChange]]:
    """The changes, in parts that fit into a transaction each."""
    part: list[CatalogChange] = []
    size = 0
    for change in changes:
        more = len(encode_record(change.record))
        if part and (len(part) >= TOGETHER_MAX or size + more > CHANGE_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(change)
        size += more
    if part:
        yield part


def _kind(record: Record) -> str:
    """The name that callers know a kind of record by: iam-policy, topic, subscription, ..."""
    return record.name.partition(":")[0] if isinstance(record, Setting) else type(record).__name__.lower()
