"""Conditions of SQL rules: what one of them comes to for a message's attributes: false, true or unknown.

Place: `filters` runs programs, which `rules` makes; a condition is one operation of a program, its code and size left
out: `8 COMPARE place relation operand`, `9 IN place operand...`, `10 LIKE place pattern`, `11 EXISTS place`,
`12 CONSTANT truth`.
Format: place: kind u8, `u16 length, name`; kind 0 is the attribute of this name, 1 too, and without one the message's
id, 2 the ordering key. relation: a bit each for less, equal, greater. operand: kind u8; 0 unknown, 1 `u16 length,
text`, 2 i64, 3 double, 4 u8 boolean, 5 place. pattern: UTF-8, in which FE is any character and FF any text. truth: 0
false, 1 true, 2 unknown.
Names are ASCII and equal whatever their case. Of several attributes with such names the one that is written as the
program has it counts, else the least name; of equal names the last, as in protobuf. A text beside a number or a boolean
is read as one, as a whole, and is unknown if it is none.
Promise: whatever the bytes, the answer is 0, 1, 2, or -1 for malformed ones.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from ._bytes import (
        Field,
        Number,
        ReadPtr,
        field_of,
        get_double,
        get_signed64,
        i64,
        order_of,
        read_field,
        read_number,
        same,
        u32,
    )


def condition_at(
    program: ReadPtr,
    op: cython.int,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    message: ReadPtr,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
):
    """0, 1, 2: the condition program[at:end] is false, true or unknown for message[start:stop]; -1: malformed."""
    found: Field
    name: cython.Py_ssize_t = at
    result: cython.int
    verdict: cython.int = 0
    if op == 12:
        return program[at] if end - at == 1 and program[at] <= 2 else -1
    at = _behind_place(program, at, end)
    if at < 0 or op < 8 or op > 12:
        return -1
    found = _value(program, name, at, message, start, stop)
    if found.number == 0:
        return -1
    if op == 11:
        return -1 if at != end else 1 if found.number == 2 else 0
    if op == 10:
        return 2 if found.number == 1 else _like(message, found.start, found.stop, program, at, end)
    if op == 8:
        if end - at < 2 or _behind_operand(program, at + 1, end) != end:
            return -1
        return 2 if found.number == 1 else _compare(program, program[at], at + 1, message, found, start, stop)
    while at < end:
        name = at
        at = _behind_operand(program, at, end)
        if at < 0:
            return -1
        result = 2 if found.number == 1 else _compare(program, 2, name, message, found, start, stop)
        if result < 0:
            return -1
        if result == 1:
            verdict = 1
        elif result == 2 and verdict == 0:
            verdict = 2
    return verdict


@cython.cfunc
@cython.exceptval(check=False)
def _behind_place(program: ReadPtr, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the place ends that begins here; -1 if it does not."""
    if end - at < 3 or program[at] > 2:
        return -1
    at += 3 + (program[at + 1] | (program[at + 2] << 8))
    return at if at <= end else -1


@cython.cfunc
@cython.exceptval(check=False)
def _behind_operand(program: ReadPtr, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the operand ends that begins here; -1 if it does not."""
    kind: cython.int = program[at]
    at += 1
    if kind == 0:
        return at
    if kind == 5:
        return _behind_place(program, at, end)
    if kind == 1:
        if end - at < 2:
            return -1
        at += 2 + (program[at] | (program[at + 1] << 8))
    elif kind == 2 or kind == 3:
        at += 8
    elif kind == 4:
        at += 1
    else:
        return -1
    return at if at <= end else -1


@cython.cfunc
@cython.exceptval(check=False)
def _value(
    program: ReadPtr,
    place: cython.Py_ssize_t,
    place_stop: cython.Py_ssize_t,
    message: ReadPtr,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> Field:
    """The text that a place names. Number 0: the message is malformed, 1: it has none, 2: it is [start, stop)."""
    kind: cython.int = program[place]
    name: cython.Py_ssize_t = place + 3
    size: cython.Py_ssize_t = place_stop - name
    wanted: u32 = 2 if kind != 2 else 5
    rank: cython.int = 0  # of what was found: 0 nothing, 1 the message's id, 2 a name of other case, 3 the name itself
    own: cython.int
    key: cython.Py_ssize_t
    key_stop: cython.Py_ssize_t
    held: cython.Py_ssize_t = 0  # the found name, of the same size
    inner: cython.Py_ssize_t
    text: cython.Py_ssize_t
    text_stop: cython.Py_ssize_t
    found: Field = read_field(message, at, at)  # number 0
    field: Field
    part: Field
    while at < stop:
        field = read_field(message, at, stop)
        if field.number == 0:
            return field
        at = field.stop
        if field.wire != 2 or (field.number != wanted and (kind != 1 or field.number != 3)):
            continue
        if field.number != 2:
            if rank <= 1:
                rank = 1
                found = field
            continue
        key = key_stop = text = text_stop = inner = field.start
        while inner < field.stop:
            part = read_field(message, inner, field.stop)
            if part.number == 0:
                return part
            inner = part.stop
            if part.wire != 2:
                continue
            if part.number == 1:
                key = part.start
                key_stop = part.stop
            elif part.number == 2:
                text = part.start
                text_stop = part.stop
        if key_stop - key != size:
            continue
        if same(message, key, program, name, size):
            own = 3
        elif rank < 3 and _same_but_case(message, key, program, name, size):
            own = 2
        else:
            continue
        if own < rank or (own == 2 and rank == 2 and order_of(message, key, key_stop, message, held, held + size) > 0):
            continue
        rank = own
        held = key
        found = field_of(2, text, text_stop)
    if rank == 0 or (rank == 1 and found.start == found.stop):
        return field_of(1, 0, 0)
    return field_of(2, found.start, found.stop)


@cython.cfunc
@cython.exceptval(check=False)
def _same_but_case(
    a: ReadPtr, start_a: cython.Py_ssize_t, b: ReadPtr, start_b: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.bint:
    """Whether two names are equal but for the case of letters of ASCII."""
    at: cython.Py_ssize_t
    one: cython.int
    other: cython.int
    for at in range(size):
        one = a[start_a + at]
        other = b[start_b + at]
        if one != other and (one ^ other != 32 or (one | 32) < 97 or (one | 32) > 122):
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _compare(
    program: ReadPtr,
    relation: cython.int,
    operand: cython.Py_ssize_t,
    message: ReadPtr,
    found: Field,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.int:
    """What was found beside an operand that is well formed."""
    kind: cython.int = program[operand]
    at: cython.Py_ssize_t = operand + 1
    size: cython.Py_ssize_t
    order: cython.int
    number: Number
    whole: i64
    real: cython.double
    own: cython.double
    other: Field
    if kind == 0:
        return 2
    if kind == 1:
        size = program[at] | (program[at + 1] << 8)
        order = order_of(message, found.start, found.stop, program, at + 2, at + 2 + size)
    elif kind == 5:
        size = 3 + (program[at + 1] | (program[at + 2] << 8))
        other = _value(program, at, at + size, message, start, stop)
        if other.number != 2:
            return 2 if other.number else -1
        order = order_of(message, found.start, found.stop, message, other.start, other.stop)
    elif kind == 4:
        order = _boolean(message, found.start, found.stop)
        if order < 0 or (relation != 2 and relation != 5):
            return 2
        order -= 1 if program[at] else 0
    else:
        number = read_number(message, found.start, found.stop)
        if number.kind == 0:
            return 2
        if kind == 2 and number.kind == 1:
            whole = get_signed64(program, at)
            order = (number.whole > whole) - (number.whole < whole)
        else:
            if kind == 2:
                whole = get_signed64(program, at)
                real = whole
            else:
                real = get_double(program, at)
            own = number.real
            order = (own > real) - (own < real)
    return (relation >> (order + 1)) & 1


@cython.cfunc
@cython.exceptval(check=False)
def _boolean(message: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """1 for true, 0 for false, in any case; -1 for anything else."""
    first: cython.int
    if stop - at < 4 or stop - at > 5 or message[stop - 1] | 32 != 101:
        return -1
    first = message[at] | 32
    if stop - at == 4 and first == 116 and message[at + 1] | 32 == 114 and message[at + 2] | 32 == 117:
        return 1
    if stop - at == 5 and first == 102 and message[at + 1] | 32 == 97:
        return 0 if message[at + 2] | 32 == 108 and message[at + 3] | 32 == 115 else -1
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def _like(
    message: ReadPtr,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    program: ReadPtr,
    pattern: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.int:
    """Whether a text fits a pattern: each part between two FF is found as early as possible."""
    again: cython.Py_ssize_t = -1  # the pattern behind the last FF
    tried: cython.Py_ssize_t = 0  # where that is being tried
    while at < stop:
        if pattern < end and program[pattern] == 0xFF:
            pattern += 1
            again = pattern
            tried = at
        elif pattern < end and program[pattern] == 0xFE:
            pattern += 1
            at = _next_character(message, at, stop)
        elif pattern < end and program[pattern] == message[at]:
            pattern += 1
            at += 1
        elif again < 0:
            return 0
        else:
            tried = _next_character(message, tried, stop)
            at = tried
            pattern = again
    while pattern < end and program[pattern] == 0xFF:
        pattern += 1
    return 1 if pattern == end else 0


@cython.cfunc
@cython.exceptval(check=False)
def _next_character(message: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    at += 1
    while at < stop and message[at] & 0xC0 == 0x80:
        at += 1
    return at
