"""Header blocks: reading them against the peer's HPACK table, writing them without one (RFC 7541).

Place: between the bytes of HEADERS frames and the heads of calls.
Promise: reading costs one pass and no copy of the rest of the block; its work is bounded by the block's length and its
result by `list_bytes_hard`. `steady` tracks whether the table stayed as it was, so that the same block will mean the
same again: this is what lets a connection remember whole blocks. Writers never touch the peer's table, so our blocks
are steady by themselves.
Leaves to `hpack`: the table with its evictions, and Huffman codes.
"""

from __future__ import annotations

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from syncpoint.base.model import varint
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode

Field = tuple[bytes, bytes]

_STATIC = tuple(HeaderTable.STATIC_TABLE)
_STATIC_COUNT = len(_STATIC)
_TABLE_BYTES = 4096
_ENTRY_BYTES = 32  # what every entry counts in addition to its text (RFC 7541, 4.1)


def _broken(reason: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.COMPRESSION_ERROR, reason)


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """An integer whose first bits are block[at] & mask: (value, index after it). Raises IndexError at the end."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21, 28):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _broken("integer too long")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    packed = block[at] & 0x80
    size, at = _integer(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise _broken("text longer than its block")
    raw = block[at:end]
    return (decode_huffman(raw) if packed else raw), end


class FieldReader:
    """The receiving half of HPACK for one connection."""

    __slots__ = ("_hard", "_table", "steady")

    def __init__(self, list_bytes_hard: int) -> None:
        self._table = HeaderTable()
        self._hard = list_bytes_hard
        self.steady = True
        """Whether the last block left the table unchanged."""

    def read(self, block: bytes) -> tuple[list[Field], int]:
        """The fields of `block` in order and their size as RFC 9113 counts it.

        Raises ConnectionFault: COMPRESSION_ERROR for a malformed block, ENHANCE_YOUR_CALM above the hard limit.
        """
        try:
            return self._read(block)
        except IndexError:
            raise _broken("block ends within a field") from None
        except HPACKError as error:
            raise _broken(str(error)[:100]) from None

    def _read(self, block: bytes) -> tuple[list[Field], int]:
        table = self._table
        fields: list[Field] = []
        size = 0
        at = 0
        end = len(block)
        self.steady = True
        while at < end:
            first = block[at]
            if first & 0x80:
                if first == 0xFF:
                    index, at = _integer(block, at, 0x7F)
                else:
                    index = first & 0x7F
                    at += 1
                field = self._entry(index)
            elif first & 0x60 == 0x20:
                if fields:
                    raise _broken("table size changed after a field")
                value, at = _integer(block, at, 0x1F)
                if value > _TABLE_BYTES:
                    raise _broken("table larger than allowed")
                table.maxsize = value
                self.steady = False
                continue
            else:
                index, at = _integer(block, at, 0x3F if first & 0x40 else 0x0F)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _text(block, at)
                value_text, at = _text(block, at)
                field = (name, value_text)
                if first & 0x40:
                    table.add(name, value_text)
                    self.steady = False
            size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
            if size > self._hard:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {self._hard} bytes")
            fields.append(field)
        return fields, size

    def _entry(self, index: int) -> Field:
        if 0 < index <= _STATIC_COUNT:
            return _STATIC[index - 1]
        if index == 0:
            raise _broken("index 0")
        return self._table.dynamic_entries[index - _STATIC_COUNT - 1]


def _length(size: int) -> bytes:
    return bytes((size,)) if size < 0x7F else b"\x7f" + varint.encode(size - 0x7F)


def literal(name: bytes, value: bytes) -> bytes:
    """One field as a literal that changes no table."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def write(fields: list[Field]) -> bytes:
    """A header block of literals. Names must be lower case."""
    return b"".join(literal(name, value) for name, value in fields)
