"""What the proxy must know of a request or a response to send it the right way, read without decoding messages.

Place: called once per request or response that passes the proxy.
Promise: what is given back is cut from the bytes that came; a request that is taken apart can be put together again by
joining the pieces.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import Field, ReadPtr, as_bytes, cut, read_field, read_ptr, read_varint

_IDS_MAX = cython.declare(cython.Py_ssize_t, 400 << 10)  # below limits.ACK_REQUEST_BYTES_MAX, with room for a name


def route_of(request: object) -> tuple:
    """(topic, ordering key of the first message) of a PublishRequest; b"" for what is absent. Raises Malformed."""
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    topic_start: cython.Py_ssize_t = 0
    topic_stop: cython.Py_ssize_t = 0
    first_start: cython.Py_ssize_t = 0
    first_stop: cython.Py_ssize_t = 0
    seen: cython.bint = False
    field: Field
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a PublishRequest")
        if field.wire == 2:
            if field.number == 1:
                topic_start = field.start
                topic_stop = field.stop
            elif field.number == 2 and not seen:
                seen = True
                first_start = field.start
                first_stop = field.stop
        at = field.stop
    return cut(p, topic_start, topic_stop), _string(p, first_start, first_stop, 5)


def varint_of(request: object, number: cython.uint) -> int:
    """The last value of a number field; -1 if it is absent. Raises Malformed."""
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    field: Field
    found: object = -1
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a protobuf message")
        if field.number == number and field.wire == 0:
            found = read_varint(p, field.start, field.stop).value
        at = field.stop
    return found


def by_lender(request: object, number: cython.uint) -> tuple:
    """(the other fields, fields of that number by lender) of a request with ack ids.

    The lender is the upper half of the epoch in an ack id, see `ackids`; -1 for what cannot be an ack id. Raises
    Malformed.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    run: cython.Py_ssize_t = -1
    lender: cython.int = -1
    last: cython.int = -1
    field: Field
    others: list = []
    groups: dict = {}
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a protobuf message")
        if field.number == number and field.wire == 2:
            lender = _lender(p, field.start, field.stop)
            if run >= 0 and lender != last:
                groups.setdefault(last, []).append(cut(p, run, at))
                run = -1
            if run < 0:
                if begin < at:
                    others.append(cut(p, begin, at))
                run = at
                last = lender
            begin = field.stop
        elif run >= 0:
            groups.setdefault(last, []).append(cut(p, run, at))
            run = -1
        at = field.stop
    if run >= 0:
        groups.setdefault(last, []).append(cut(p, run, end))
    if begin < end:
        others.append(cut(p, begin, end))
    return b"".join(others), {lender: b"".join(pieces) for lender, pieces in groups.items()}


def responses_of(response: object, counts: list) -> list:
    """Cut the response to joined requests into a response to each; `counts` has the messages of each request.

    Raises Malformed where the response has another number of ids.
    """
    data: bytes = as_bytes(response)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    wanted: cython.Py_ssize_t
    field: Field
    out: list = []
    for count in counts:
        wanted = count
        begin = at
        while wanted > 0:
            field = read_field(p, at, end)
            if field.number != 1 or field.wire != 2:
                raise Malformed("the response has not one id for each message")
            at = field.stop
            wanted -= 1
        out.append(cut(p, begin, at))
    if at != end:
        raise Malformed("the response has not one id for each message")
    return out


def modify_fields(response: object) -> list:
    """The ack ids of a response's messages as they stand in a ModifyAckDeadlineRequest (field 4), in pieces of about
    400 KiB. Raises Malformed.
    """
    data: bytes = as_bytes(response)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    field: Field
    ids: list = []
    out: list = []
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the response is not a PullResponse")
        if field.number == 1 and field.wire == 2:
            ack_id = _string(p, field.start, field.stop, 1)
            if 0 < len(ack_id) < 128:
                ids.append(bytes((0x22, len(ack_id))) + ack_id)
                size += len(ack_id) + 2
                if size >= _IDS_MAX:
                    out.append(b"".join(ids))
                    ids = []
                    size = 0
        at = field.stop
    if ids:
        out.append(b"".join(ids))
    return out


def tag_ack_ids(response: object, tag: bytes) -> tuple:
    """(the PullResponse or StreamingPullResponse with `tag` in front of the ack id of each message, how many there
    are). Raises Malformed.
    """
    data: bytes = as_bytes(response)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    inner: cython.Py_ssize_t
    more: cython.Py_ssize_t = len(tag)
    size: cython.Py_ssize_t
    field: Field
    part: Field
    count: cython.Py_ssize_t = 0
    out: list = []
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the response is not a PullResponse")
        if field.number == 1 and field.wire == 2:
            inner = field.start
            while inner < field.stop:
                part = read_field(p, inner, field.stop)
                if part.number == 0:
                    raise Malformed("the response is not a PullResponse")
                if part.number == 1 and part.wire == 2:
                    id_head = b"\x0a" + _varint(part.stop - part.start + more) + tag
                    size = field.stop - field.start - (part.start - inner) + len(id_head)
                    out.append(cut(p, begin, at))
                    out.append(b"\x0a" + _varint(size) + cut(p, field.start, inner) + id_head)
                    begin = part.start
                    count += 1
                    break
                inner = part.stop
        at = field.stop
    out.append(cut(p, begin, end))
    return b"".join(out), count


def by_tag(request: object, number: cython.uint, size: cython.Py_ssize_t) -> tuple:
    """(the other fields, fields of that number by tag) of a request with ack ids, each without its tag of `size` bytes;
    ids that are no longer than a tag are under b"". Raises Malformed.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    field: Field
    others: list = []
    groups: dict = {}
    head: bytes = _varint(number << 3 | 2)
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a protobuf message")
        if field.number == number and field.wire == 2:
            if begin < at:
                others.append(cut(p, begin, at))
            begin = field.stop
            tag = b""
            if field.stop - field.start > size:
                tag = cut(p, field.start, field.start + size)
            ack_id = cut(p, field.start + len(tag), field.stop)
            groups.setdefault(tag, []).append(head + _varint(len(ack_id)) + ack_id)
        at = field.stop
    if begin < end:
        others.append(cut(p, begin, end))
    return b"".join(others), {tag: b"".join(pieces) for tag, pieces in groups.items()}


@cython.cfunc
def _varint(value: cython.Py_ssize_t) -> bytes:
    if value < 128:
        return bytes((value,))
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@cython.cfunc
def _string(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, number: cython.uint) -> bytes:
    """The last field of that number; b"" if there is none. What is behind something malformed is not checked."""
    start: cython.Py_ssize_t = at
    end: cython.Py_ssize_t = at
    field: Field
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == number and field.wire == 2:
            start = field.start
            end = field.stop
        at = field.stop
    return cut(p, start, end)


@cython.cfunc
@cython.exceptval(check=False)
def _lender(p: ReadPtr, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """Bytes 22 and 23 of the ack id spelled here in base64url: letters 28 to 31 hold bytes 21 to 23."""
    if stop - start != 48:
        return -1
    b: cython.int = _letter(p[start + 29])
    c: cython.int = _letter(p[start + 30])
    d: cython.int = _letter(p[start + 31])
    if b < 0 or c < 0 or d < 0:
        return -1
    return ((b & 15) << 4 | c >> 2) | ((c & 3) << 6 | d) << 8


@cython.cfunc
@cython.exceptval(check=False)
def _letter(letter: cython.int) -> cython.int:
    if 65 <= letter <= 90:
        return letter - 65
    if 97 <= letter <= 122:
        return letter - 71
    if 48 <= letter <= 57:
        return letter + 4
    if letter == 45:
        return 62
    if letter == 95:
        return 63
    return -1
