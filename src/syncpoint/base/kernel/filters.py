"""Filter programs: does a message match, by its attributes.

Place: `rules` compiles the text of a subscription's filter to a program; `leases` runs it on every message it passes.
Format: postfix. `1 HAS`, `2 EQ`, `3 NE`, `4 PREFIX`, `5 NOT`, `6 AND`, `7 OR`, one byte each; HAS is followed by
`u16 length, key`, EQ, NE and PREFIX by `u16 length, key, u16 length, value`, little-endian. Operations from 8 on are
conditions of SQL rules, each followed by `u16 size` and so many bytes, which `rule_conditions` reads. b"" matches all.
NE is also true of a message without the attribute. Of attributes with equal keys the last one counts, as in protobuf.
A condition of a rule can be unknown; NOT, AND and OR go on with that as SQL does, and only what is true matches.
Promise: a program that runs out of bytes, of operands or of stack (64), or leaves more than one result, and a message
that is no protobuf, raise Malformed.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import Field, ReadPtr, as_bytes, low64, read_field, read_ptr, same, u64
    from .rule_conditions import condition_at


def matches(program: object, message: object) -> bool:
    """Whether the message (PubsubMessage bytes) matches. Raises Malformed."""
    code: bytes = as_bytes(program)
    data: bytes = as_bytes(message)
    verdict: cython.int = match_at(read_ptr(code), len(code), read_ptr(data), 0, len(data))
    if verdict < 0:
        raise Malformed("a filter program or its message is malformed")
    return verdict == 1


def match_at(
    program: ReadPtr,
    program_end: cython.Py_ssize_t,
    message: ReadPtr,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
):
    """1 if message[start:stop] matches program[:program_end], 0 if not, -1 if either is malformed."""
    at: cython.Py_ssize_t = 0
    key_start: cython.Py_ssize_t
    key_stop: cython.Py_ssize_t
    op: cython.int
    depth: cython.int = 0
    result: cython.int
    stack: u64 = 0  # what is true; the top is bit 0
    unknown: u64 = 0  # what is unknown; a bit is never set in both
    one: u64
    other: u64
    if program_end == 0:
        return 1
    while at < program_end:
        op = program[at]
        at += 1
        if 1 <= op <= 4:
            key_start = at + 2
            if key_start > program_end:
                return -1
            key_stop = at = key_start + (program[at] | (program[at + 1] << 8))
            if op != 1:
                at += 2
                if at > program_end:
                    return -1
                at += program[at - 2] | (program[at - 1] << 8)
            if at > program_end or depth == 64:
                return -1
            result = _holds(program, op, key_start, key_stop, at, message, start, stop)
            if result < 0:
                return -1
            stack = low64(stack << 1) | result
            unknown = low64(unknown << 1)
            depth += 1
        elif op == 5 and depth >= 1:
            stack ^= 1 ^ (unknown & 1)
        elif (op == 6 or op == 7) and depth >= 2:
            one = stack & 1
            other = (stack >> 1) & 1
            if unknown & 3 == 0:
                result = one & other if op == 6 else one | other
                unknown >>= 1
            elif op == 6:
                result = one & other
                one |= unknown & 1
                other |= (unknown >> 1) & 1
                unknown = ((unknown >> 2) << 1) | (one & other & (1 ^ result))
            else:
                result = one | other
                unknown = ((unknown >> 2) << 1) | ((unknown | (unknown >> 1)) & 1 & (1 ^ result))
            stack = ((stack >> 2) << 1) | result
            depth -= 1
        elif op >= 8:
            if program_end - at < 2 or depth == 64:
                return -1
            key_start = at + 2
            at = key_start + (program[at] | (program[at + 1] << 8))
            if at > program_end:
                return -1
            result = condition_at(program, op, key_start, at, message, start, stop)
            if result < 0:
                return -1
            stack = low64(stack << 1) | (result & 1)
            unknown = low64(unknown << 1) | (result >> 1)
            depth += 1
        else:
            return -1
    return stack & 1 if depth == 1 else -1


@cython.cfunc
@cython.exceptval(check=False)
def _holds(
    program: ReadPtr,
    op: cython.int,
    key_start: cython.Py_ssize_t,
    key_stop: cython.Py_ssize_t,
    value_stop: cython.Py_ssize_t,
    message: ReadPtr,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.int:
    """One comparison; the wanted value (not for HAS) is program[key_stop+2:value_stop]. -1: message malformed."""
    result: cython.int = 1 if op == 3 else 0
    key_size: cython.Py_ssize_t = key_stop - key_start
    wanted: cython.Py_ssize_t = value_stop - key_stop - 2
    found: cython.Py_ssize_t  # where the found value starts, and its size
    size: cython.Py_ssize_t
    inner: cython.Py_ssize_t
    own_start: cython.Py_ssize_t
    own_size: cython.Py_ssize_t
    field: Field
    part: Field
    while at < stop:
        field = read_field(message, at, stop)
        if field.number == 0:
            return -1
        at = field.stop
        if field.number != 2 or field.wire != 2:
            continue
        own_start = found = field.start
        own_size = size = 0
        inner = field.start
        while inner < field.stop:
            part = read_field(message, inner, field.stop)
            if part.number == 0:
                return -1
            inner = part.stop
            if part.wire != 2:
                continue
            if part.number == 1:
                own_start = part.start
                own_size = part.stop - part.start
            elif part.number == 2:
                found = part.start
                size = part.stop - part.start
        if own_size != key_size or not same(message, own_start, program, key_start, key_size):
            continue
        if op == 1:
            result = 1
        elif op == 4:
            result = 1 if size >= wanted and same(message, found, program, key_stop + 2, wanted) else 0
        else:
            result = 1 if size == wanted and same(message, found, program, key_stop + 2, wanted) else 0
            if op == 3:
                result = 1 - result
    return result
