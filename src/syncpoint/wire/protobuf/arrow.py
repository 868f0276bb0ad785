"""The metadata of Arrow record batches, written and read by hand.

Place: in front of the columns that `syncpoint.broker.pipeline` sends and takes; the server needs no Arrow library.
An *encapsulated message* is a continuation mark, the length of the metadata, the metadata (a flatbuffer, padded to 8
bytes), and the body: the columns' buffers, each padded to 8 bytes. A flatbuffer's *table* begins with the distance back
to its *vtable*, which says where in the table each field lies; a field that is not there has its default.
Promises: what `encode_batch` writes is what Arrow's own writers write, in one fixed layout. `decode_batch` takes every
layout that a writer may choose, follows no reference beyond the metadata, and names no buffer beyond the body.
What is left to the caller: which columns the batch has, and what lies inside its buffers.
"""

import struct
from collections.abc import Mapping, Sequence

CONTINUATION = 0xFFFFFFFF
VERSIONS = (3, 4)  # V4 and V5 of Arrow's metadata; they differ in nothing that is read here
RECORD_BATCH = 3  # of the kinds of messages
ALIGNMENT = 8

Pair = tuple[int, int]

# The one layout written, up to the nodes: mark and length; where the root lies; the vtable and the table of Message;
# the vtable and the table of RecordBatch; the number of nodes.
_HEAD = struct.Struct("<III 6H iIqhB5x 4x 5H2x iIqI I")
_BUFFERS = struct.Struct("<4xI")
_PAIR = struct.Struct("<qq")
_U8, _U16, _U32, _I32, _I64 = (struct.Struct("<" + code) for code in "BHIiq")


def padded(size: int) -> int:
    """The room that a buffer of `size` bytes takes in a body."""
    return size + -size % ALIGNMENT


def encode_batch(rows: int, nodes: Sequence[Pair], buffer_lengths: Sequence[int], body_length: int) -> bytes:
    """Everything before the body of a record batch; a multiple of 8 bytes.

    `nodes`: (length, nulls) of each column and of the columns inside it, outermost first. `buffer_lengths`: of the
    buffers in their order, each without its padding; in the body each begins at the next multiple of 8.
    `body_length`: of all of them with padding. Raises ValueError when the buffers do not fill the body.
    """
    buffers, at = [], 0
    for length in buffer_lengths:
        buffers.append(_PAIR.pack(at, length))
        at += padded(length)
    if at != body_length:
        raise ValueError(f"the buffers take {at} bytes, not {body_length}")
    head = _HEAD.pack(
        *(CONTINUATION, _HEAD.size + _BUFFERS.size + 16 * (len(nodes) + len(buffers)) - 8, 16),
        *(12, 24, 16, 18, 4, 8),  # Message: version, kind, header, body length
        *(12, 36, body_length, VERSIONS[-1], RECORD_BATCH),
        *(10, 20, 8, 4, 16),  # RecordBatch: rows, nodes, buffers
        *(12, 16, rows, 12 + 16 * len(nodes), len(nodes)),
    )
    return b"".join((head, *(_PAIR.pack(*node) for node in nodes), _BUFFERS.pack(len(buffers)), *buffers))


def with_buffers(message: bytes, changed: Mapping[int, bytes]) -> bytes:
    """An encapsulated record batch with other contents of some buffers, by number. Raises ValueError, as
    `decode_batch` does.
    """
    rows, nodes, buffers, body = decode_batch(message)
    view = memoryview(message)
    parts: list[bytes | memoryview] = []
    lengths = []
    for number, (offset, length) in enumerate(buffers):
        part = changed[number] if number in changed else view[body + offset : body + offset + length]
        parts += (part, bytes(-len(part) % ALIGNMENT))
        lengths.append(len(part))
    return b"".join((encode_batch(rows, nodes, lengths, sum(map(len, parts))), *parts))


def decode_batch(message: bytes | bytearray | memoryview) -> tuple[int, list[Pair], list[Pair], int]:
    """(rows, nodes, buffers, where the body begins) of an encapsulated record batch.

    Nodes are (length, nulls), buffers (offset in the body, length); all buffers lie inside the message. Raises
    ValueError for anything else: another kind of message, compression, truncation, references that lead outside.
    """
    view = memoryview(message).cast("B")
    if len(view) < 8 or _U32.unpack_from(view, 0)[0] != CONTINUATION:
        raise ValueError("not an encapsulated Arrow message")
    size = _U32.unpack_from(view, 4)[0]
    if size % ALIGNMENT or size > len(view) - 8:
        raise ValueError(f"the metadata of {size} bytes does not fit into the message")
    body = 8 + size
    try:
        rows, nodes, buffers, body_length = _metadata(view[8:body])
    except struct.error:
        raise ValueError("the metadata refers to bytes outside of it") from None
    if not 0 <= body_length <= len(view) - body:
        raise ValueError(f"the body of {body_length} bytes does not fit into the message")
    if rows < 0:
        raise ValueError("a negative number of rows")
    if any(not 0 <= nulls <= length for length, nulls in nodes):
        raise ValueError("a column has more nulls than rows, or a negative number of them")
    if any(offset < 0 or length < 0 or offset > body_length - length for offset, length in buffers):
        raise ValueError("a buffer lies outside of the body")
    return rows, nodes, buffers, body


def _metadata(data: memoryview) -> tuple[int, list[Pair], list[Pair], int]:
    """(rows, nodes, buffers, body length). Raises ValueError, and struct.error where data would be read beyond."""
    message = _Table(data, _follow(data, 0))
    if message.number(0, _U16) not in VERSIONS:
        raise ValueError("the message is of an unknown version of Arrow's metadata")
    if message.number(1, _U8) != RECORD_BATCH:
        raise ValueError("the message is no record batch")
    header = message.place(2)
    if header is None:
        raise ValueError("the message has no header")
    batch = _Table(data, _follow(data, header))
    if batch.place(3) is not None:
        raise ValueError("the record batch is compressed")
    views = batch.place(4)
    if views is not None and _U32.unpack_from(data, _follow(data, views))[0]:
        raise ValueError("the record batch has columns of views")
    return batch.number(0, _I64), batch.pairs(1), batch.pairs(2), message.number(3, _I64)


def _follow(data: memoryview, at: int) -> int:
    """Where the reference at `at` leads: always forward."""
    return at + int(_U32.unpack_from(data, at)[0])


class _Table:
    """A table of a flatbuffer. Its methods raise struct.error where they would read beyond the data."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - int(_I32.unpack_from(data, at)[0])
        if self._vtable < 0:
            raise ValueError("the metadata refers to bytes before it")
        self._size = int(_U16.unpack_from(data, self._vtable)[0])

    def place(self, field: int) -> int | None:
        """Where a field lies; None: it is not there."""
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return None
        inside = int(_U16.unpack_from(self._data, self._vtable + slot)[0])
        return self._at + inside if inside else None

    def number(self, field: int, shape: struct.Struct) -> int:
        """The value of a field; 0: it is not there."""
        at = self.place(field)
        return 0 if at is None else int(shape.unpack_from(self._data, at)[0])

    def pairs(self, field: int) -> list[Pair]:
        """The pairs of numbers of a list."""
        at = self.place(field)
        if at is None:
            return []
        begin = _follow(self._data, at) + 4
        count = int(_U32.unpack_from(self._data, begin - 4)[0])
        if count * _PAIR.size > len(self._data) - begin:
            raise ValueError("a list of the metadata ends outside it")
        return list(_PAIR.iter_unpack(self._data[begin : begin + count * _PAIR.size]))
