"""Fields of data that are an object in JSON, found without making objects of them.

Place: where the data source of Spark reads a batch. It has to be quick, and never wrong; it need not know all of JSON.
What it does not know for certain it leaves to a parser: data with escapes or other letters than ASCII in a name or in
a value that is asked for, `\\u` anywhere, a fraction that is asked for, more than 17 levels, 256 names of the objects
around a value, 1 KiB of a name, 64 digits of a number or a MiB of data.
Promise: of data that are found to be plain, RFC 8259 makes one object with at least one name, no name twice in any
object, none of the names in `without` at the top, and the values given. Bytes within other strings are not checked to
be UTF-8.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        ReadPtr,
        array_ptr,
        as_bytes,
        copy,
        find_byte,
        get32,
        kinds_in,
        make_longer,
        put32,
        read_ptr,
        same,
        u64,
    )

PATHS_MAX = 32
_DEPTH_MAX = cython.declare(cython.int, 16)
_NAMES_MAX = cython.declare(cython.int, 256)
_NAME_SIZE_MAX = cython.declare(cython.Py_ssize_t, 1024)  # parsers have limits, too
_SIZE_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)
_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)  # of an integer, which parsers agree on


@cython.final
@cython.cclass
class FieldFinder:
    """Looks for the fields at `paths`, each a list of names from the outside in, at most PATHS_MAX of them."""

    def __init__(self, paths: object, without: object = ()):
        self._paths = [[as_bytes(name) for name in path] for path in paths]
        self._keys = [b".".join(path) for path in self._paths]
        self._without = [as_bytes(name) for name in without]
        if len(self._paths) > PATHS_MAX or [] in self._paths:
            raise ValueError(f"must have at most {PATHS_MAX} paths ({len(self._paths)} given), none of them empty")
        if not cython.compiled:
            self._name_start, self._name_size = [0] * 256, [0] * 256
            self._found_start, self._found_size = [0] * 32, [0] * 32
        self._open = self._bracket = 0
        self._plain = False

    def find(self, data: object, ends: object, first: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> tuple:
        """Look into `rows` values of a binary column of Arrow, from the value `first` on. `data` and `ends`: its
        buffers. Returns the buffers of a column of maps from paths (names with dots) to text, which is null for data
        that are not plain: valid, ends of rows, ends of keys, keys, ends of values, values; and behind these, for a
        column of 32 bits that is null for the same data, how many bytes are before the bracket that closes the object.
        Raises Malformed.
        """
        whole: bytes = as_bytes(data)
        places: bytes = as_bytes(ends)
        p: ReadPtr = read_ptr(whole)
        e: ReadPtr = read_ptr(places)
        key: bytes
        row: cython.Py_ssize_t
        at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        path: cython.Py_ssize_t
        size: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(self._paths)
        entries: cython.Py_ssize_t = 0
        key_end: cython.Py_ssize_t = 0
        value_end: cython.Py_ssize_t = 0
        if first < 0 or rows < 0 or len(places) < 4 * (first + rows + 1):
            raise Malformed("the column has fewer values than it declares")
        valid = bytearray((rows + 7) // 8)
        row_ends = bytearray(4 * (rows + 1))
        key_ends = bytearray(4 * (rows * count + 1))
        value_ends = bytearray(4 * (rows * count + 1))
        keys = bytearray(rows * sum([len(one) for one in self._keys]))
        values = bytearray(64)
        brackets = bytearray(4 * rows)
        for row in range(rows):
            at = get32(e, 4 * (first + row))
            stop = get32(e, 4 * (first + row + 1))
            if at > stop or stop > len(whole):
                raise Malformed("a value of the column lies outside its bytes")
            if self._is_plain(p, at, stop):
                valid[row >> 3] |= 1 << (row & 7)
                put32(array_ptr(brackets), 4 * row, self._bracket - at)
                for path in range(count):
                    size = self._found_size[path]
                    if size < 0:
                        continue
                    key = self._keys[path]
                    copy(array_ptr(keys), key_end, read_ptr(key), 0, len(key))
                    key_end += len(key)
                    if value_end + size > len(values):
                        make_longer(values, 2 * (value_end + size))
                    copy(array_ptr(values), value_end, p, self._found_start[path], size)
                    value_end += size
                    entries += 1
                    put32(array_ptr(key_ends), 4 * entries, key_end)
                    put32(array_ptr(value_ends), 4 * entries, value_end)
            put32(array_ptr(row_ends), 4 * (row + 1), entries)
        return (
            valid,
            row_ends,
            key_ends[: 4 * (entries + 1)],
            keys[:key_end],
            value_ends[: 4 * (entries + 1)],
            values[:value_end],
            brackets,
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_plain(self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        path: cython.Py_ssize_t
        live: u64 = 0
        one: u64 = 1
        for path in range(len(self._paths)):
            self._found_size[path] = -1
            live |= one << path
        self._open = 0
        if stop - at > _SIZE_MAX:
            return False
        at = _behind_blanks(p, at, stop)
        if at >= stop or p[at] != 0x7B:
            return False
        at = _behind_blanks(p, at + 1, stop)
        if at >= stop or p[at] == 0x7D:
            return False  # no name is there
        at = self._object(p, at, stop, 0, live)
        self._bracket = at - 1
        return at >= 0 and _behind_blanks(p, at, stop) == stop

    @cython.cfunc
    @cython.exceptval(check=False)
    def _object(
        self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, depth: cython.int, live: u64
    ) -> cython.Py_ssize_t:
        """Where the object ends whose bracket was read; -1: it is not plain. `live`: the paths that lead here."""
        opened: cython.Py_ssize_t = self._open
        start: cython.Py_ssize_t
        size: cython.Py_ssize_t
        exact: u64
        deeper: u64
        at = _behind_blanks(p, at, stop)
        if at < stop and p[at] == 0x7D:
            return at + 1
        while True:
            if at >= stop or p[at] != 0x22:
                return -1
            start = at + 1
            at = self._string(p, start, stop)
            if at < 0 or not self._plain:
                return -1
            size = at - 1 - start
            if not self._is_new(p, start, size, opened, depth):
                return -1
            exact = deeper = 0
            if live != 0:
                exact = self._along(p, start, size, depth, live, True)
                deeper = self._along(p, start, size, depth, live, False)
            at = _behind_blanks(p, at, stop)
            if at >= stop or p[at] != 0x3A:
                return -1
            start = _behind_blanks(p, at + 1, stop)
            at = self._value(p, start, stop, depth + 1, deeper)
            if at < 0 or (exact != 0 and not self._note(p, start, at, exact)):
                return -1
            at = _behind_blanks(p, at, stop)
            if at >= stop:
                return -1
            if p[at] == 0x7D:
                self._open = opened
                return at + 1
            if p[at] != 0x2C:
                return -1
            at = _behind_blanks(p, at + 1, stop)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_new(
        self,
        p: ReadPtr,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        opened: cython.Py_ssize_t,
        depth: cython.int,
    ) -> cython.bint:
        """Note a name of an object. False: it is there already, may not be there, is too long, or one too many."""
        i: cython.Py_ssize_t
        name: bytes
        for i in range(opened, self._open):
            if self._name_size[i] == size and same(p, self._name_start[i], p, start, size):
                return False
        if depth == 0:
            for i in range(len(self._without)):
                name = self._without[i]
                if len(name) == size and same(read_ptr(name), 0, p, start, size):
                    return False
        if self._open >= _NAMES_MAX or size > _NAME_SIZE_MAX:
            return False
        self._name_start[self._open] = start
        self._name_size[self._open] = size
        self._open += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _along(
        self,
        p: ReadPtr,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        depth: cython.int,
        live: u64,
        last: cython.bint,
    ) -> u64:
        """The live paths that have this name at this depth: those that end with it, or those that go on."""
        found: u64 = 0
        one: u64 = 1
        i: cython.Py_ssize_t
        names: list
        name: bytes
        for i in range(len(self._paths)):
            if (live >> i) & 1:
                names = self._paths[i]
                if (len(names) == depth + 1) == last:
                    name = names[depth]
                    if len(name) == size and same(read_ptr(name), 0, p, start, size):
                        found |= one << i
        return found

    @cython.cfunc
    @cython.exceptval(check=False)
    def _note(self, p: ReadPtr, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, paths: u64) -> cython.bint:
        """Note the value of paths; false where its text is left to a parser. `null` is no value."""
        i: cython.Py_ssize_t
        if p[start] == 0x22:
            if not self._plain:
                return False
            start += 1
            stop -= 1
        elif p[start] == 0x6E:
            return True
        elif p[start] == 0x7B or p[start] == 0x5B:
            return False
        elif p[start] != 0x74 and p[start] != 0x66:
            if stop - start > _DIGITS_MAX or (p[start] == 0x2D and p[start + 1] == 0x30):
                return False
            for i in range(start + 1, stop):
                if not 0x30 <= p[i] <= 0x39:
                    return False
        for i in range(len(self._paths)):
            if (paths >> i) & 1:
                self._found_start[i] = start
                self._found_size[i] = stop - start
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _value(
        self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, depth: cython.int, live: u64
    ) -> cython.Py_ssize_t:
        """Where the value ends that begins here; -1: it is not plain. Sets `_plain` for a string."""
        if at >= stop:
            return -1
        if p[at] == 0x22:
            return self._string(p, at + 1, stop)
        if p[at] == 0x7B:
            return -1 if depth > _DEPTH_MAX else self._object(p, at + 1, stop, depth, live)
        if p[at] == 0x5B:
            return -1 if depth > _DEPTH_MAX else self._array(p, at + 1, stop, depth)
        if p[at] == 0x74:
            return _behind_word(p, at, stop, b"true")
        if p[at] == 0x66:
            return _behind_word(p, at, stop, b"false")
        if p[at] == 0x6E:
            return _behind_word(p, at, stop, b"null")
        return _behind_number(p, at, stop)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _array(
        self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, depth: cython.int
    ) -> cython.Py_ssize_t:
        at = _behind_blanks(p, at, stop)
        if at < stop and p[at] == 0x5D:
            return at + 1
        while True:
            at = self._value(p, at, stop, depth + 1, 0)
            if at < 0:
                return -1
            at = _behind_blanks(p, at, stop)
            if at >= stop:
                return -1
            if p[at] == 0x5D:
                return at + 1
            if p[at] != 0x2C:
                return -1
            at = _behind_blanks(p, at + 1, stop)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _string(self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Behind the quote that ends the string; -1: it is not plain. Sets `_plain`: all of it is ASCII as it is."""
        end: cython.Py_ssize_t = find_byte(p, at, stop, 0x22)
        kinds: cython.int = kinds_in(p, at, end)
        self._plain = kinds == 0
        if end == stop or kinds & 1:
            return -1
        if kinds & 4 == 0:
            return end + 1
        while at < stop:
            if p[at] == 0x22:
                return at + 1
            if p[at] < 0x20:
                return -1
            if p[at] == 0x5C:
                at += 1
                if at >= stop or p[at] not in b'"\\/bfnrt':
                    return -1
            at += 1
        return -1


@cython.cfunc
@cython.exceptval(check=False)
def _behind_blanks(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while at < stop and (p[at] == 0x20 or p[at] == 0x0A or p[at] == 0x0D or p[at] == 0x09):
        at += 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _behind_word(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, word: bytes) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = len(word)
    return at + size if stop - at >= size and same(p, at, read_ptr(word), 0, size) else -1


@cython.cfunc
@cython.exceptval(check=False)
def _behind_number(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Behind a number, of at most 64 bytes; -1: there is none."""
    start: cython.Py_ssize_t = at
    digits: cython.Py_ssize_t
    if p[at] == 0x2D:
        at += 1
    if at < stop and p[at] == 0x30:
        at += 1
    else:
        digits = _behind_digits(p, at, stop)
        if digits == at:
            return -1
        at = digits
    if at < stop and p[at] == 0x2E:
        digits = _behind_digits(p, at + 1, stop)
        if digits == at + 1:
            return -1
        at = digits
    if at < stop and (p[at] == 0x65 or p[at] == 0x45):
        at += 1
        if at < stop and (p[at] == 0x2B or p[at] == 0x2D):
            at += 1
        digits = _behind_digits(p, at, stop)
        if digits == at:
            return -1
        at = digits
    return at if at - start <= 64 else -1


@cython.cfunc
@cython.exceptval(check=False)
def _behind_digits(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while at < stop and 0x30 <= p[at] <= 0x39:
        at += 1
    return at
