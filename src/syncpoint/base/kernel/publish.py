"""PublishRequest bytes in, batch payload and PublishResponse bytes out, in one pass over the messages.

Place: called once per Publish by the publish forwarder, which then appends the payload to storage and answers with
the response.
Promises: a message is stored as the client sent it, byte by byte, with message_id and publish_time appended: in
protobuf a later field wins, and sub-messages merge field by field, so seconds and nanos are both always written. All
rules of the API that concern single messages are checked here (limits: `model.limits`). What passes can be parsed by
any client.
What is left to the caller: the topic's existence, schemas, flow control, and the clock.
"""

from __future__ import annotations

import cython

from syncpoint.base.model import limits, publish_rules

from .errors import Invalid, Malformed

if not cython.compiled:
    from ._bytes import (
        Field,
        ReadPtr,
        WritePtr,
        array_ptr,
        as_bytes,
        copy,
        cut,
        field_of,
        finished,
        new_buffer,
        put32,
        put_varint,
        read_field,
        read_ptr,
        same,
        u32,
        utf8_ok,
        write_ptr,
    )
    from .lifetimes import is_name, span_ms
    from .schedules import due_ns, is_schedule

_REQUEST_MAX = cython.declare(cython.Py_ssize_t, limits.PUBLISH_REQUEST_BYTES_MAX)
_MESSAGES_MAX = cython.declare(cython.Py_ssize_t, limits.PUBLISH_MESSAGES_MAX)
_ATTRIBUTES_MAX = cython.declare(cython.int, limits.MESSAGE_ATTRIBUTES_MAX)
_KEY_MAX = cython.declare(cython.Py_ssize_t, limits.ATTRIBUTE_KEY_BYTES_MAX)
_VALUE_MAX = cython.declare(cython.Py_ssize_t, limits.ATTRIBUTE_VALUE_BYTES_MAX)
_ORDERING_KEY_MAX = cython.declare(cython.Py_ssize_t, limits.ORDERING_KEY_BYTES_MAX)
_OFFSET_END = 10**12

# What can be wrong with a message: (field below messages[i], problem), by number; 0 is "nothing", 1 is Malformed.
_PROBLEMS: list = [
    ("", ""),
    ("", ""),
    ("", publish_rules.EMPTY),
    *publish_rules.FIELD_PROBLEMS,
    (".ordering_key", publish_rules.ORDERING_KEYS_DIFFER),
    (".message_id", publish_rules.NOT_UTF8),
    (".attributes", publish_rules.TTL_INVALID),
    (".attributes", publish_rules.SCHEDULE_INVALID),
]
MARK_TTL = 1  # what reserved attributes ask for: some message has a time to live,
MARK_SCHEDULED = 2  # or a time to be published at
_PROBLEM_MASK = cython.declare(cython.int, 255)  # in the answers below marks stand above the problem
_MARKS_SHIFT = cython.declare(cython.int, 8)
_TTL_FOUND = cython.declare(cython.int, 1 << 8)
_SCHEDULE_FOUND = cython.declare(cython.int, 2 << 8)
_TTL_SIZE = cython.declare(cython.Py_ssize_t, 14)  # of the names of reserved attributes: most keys are no call away
_SCHEDULE_SIZE = cython.declare(cython.Py_ssize_t, 27)
_GOOG: bytes = b"googclient_"


def topic_of(request: object) -> bytes:
    """Field 1 of a request, the topic (or the subscription, in requests that name one there); b"" if absent.

    Raises Malformed.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t = 0
    field: Field
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a protobuf message")
        if field.number == 1 and field.wire == 2:
            start = field.start
            stop = field.stop
            if not utf8_ok(p, start, stop):
                raise Malformed("the request's name is not valid UTF-8")
        at = field.stop
    return cut(p, start, stop)


def scan(
    request: object,
    prefix: bytes,
    first_offset: int,
    seconds: int,
    nanos: int,
    room: cython.Py_ssize_t = 0,
    added: cython.int = 0,
) -> tuple:
    """Check a PublishRequest, number its messages, and write what is stored and what is answered.

    Message ids are `prefix` and the offset in 12 digits, counted from `first_offset`; `seconds` and `nanos` since the
    epoch are the publish time of all. Returns (count, payload, response, data bytes, ordering key, marks): data bytes
    is the size of the messages as sent, the ordering key (b"" = none) is the one all of them carry, marks are the bits
    of what their reserved attributes ask for (`MARK_TTL`). `room`: bytes that the request may have beyond the limit,
    because they were added on the way; `added`: attributes that every message may have beyond it, for the same reason.
    Raises Malformed, or Invalid for a broken rule; ValueError for a prefix, offset or time out of range.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    field: Field
    if end > _REQUEST_MAX + room:
        raise Invalid("request", publish_rules.REQUEST_TOO_LARGE)
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a PublishRequest")
        if field.number == 2 and field.wire == 2:
            count += 1
            total += field.stop - field.start
        at = field.stop
    if count == 0:
        raise Invalid("messages", publish_rules.NO_MESSAGES)
    if count > _MESSAGES_MAX:
        raise Invalid("messages", publish_rules.TOO_MANY_MESSAGES)

    stamp: bytearray = _stamp(prefix, first_offset, count, seconds, nanos)
    s: WritePtr = array_ptr(stamp)
    stamp_size: cython.Py_ssize_t = len(stamp)
    id_size: cython.Py_ssize_t = s[1]
    payload = new_buffer(total + count * (4 + stamp_size))
    response = new_buffer(count * (2 + id_size))
    out: WritePtr = write_ptr(payload)
    answer: WritePtr = write_ptr(response)
    o: cython.Py_ssize_t = 0
    a: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = 0
    problem: cython.int
    found: cython.int
    marks: cython.int = 0
    key_start: cython.Py_ssize_t = 0
    key_stop: cython.Py_ssize_t = 0
    at = 0
    while at < end:
        field = read_field(p, at, end)
        at = field.stop
        if field.number != 2 or field.wire != 2:
            continue
        if index == 0:
            key_start = _ordering_key(p, field.start, field.stop)
            key_stop = key_start + _ordering_key_size(p, field.start, field.stop)
        found = _problem(p, field.start, field.stop, key_start, key_stop, _ATTRIBUTES_MAX + added)
        problem = found & _PROBLEM_MASK
        marks |= found >> _MARKS_SHIFT
        if problem != 0:
            raise _refusal(problem, index)
        o = _put_message(out, o, p, field.start, field.stop - field.start, s, stamp_size)
        a = _put_id(answer, a, s)
        index += 1
        if index < count:
            _count_up(s)
    return count, finished(payload), finished(response), total, cut(p, key_start, key_stop), marks


def scan_plain(
    requests: list,
    first: cython.Py_ssize_t,
    topic: bytes,
    prefix: bytes,
    first_offset: int,
    seconds: int,
    nanos: int,
    room: cython.Py_ssize_t = 0,
) -> tuple:
    """Scan the plain requests at the start of `requests[first:]`: to `topic`, no rule broken, no reserved attribute.
    Together they have no more messages than one request may have.

    Numbers, payload and responses are as those of `scan`. Returns (requests taken, messages, payload, responses). None
    are taken where the first one is not plain; `scan` knows the reason. Raises ValueError as `scan` does.
    """
    request: bytes
    p: ReadPtr
    name: ReadPtr = read_ptr(topic)
    name_size: cython.Py_ssize_t = len(topic)
    taken: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    plain: Field
    size: cython.Py_ssize_t
    for request in requests[first:]:
        size = len(request)
        plain = _plain(read_ptr(request), size, name, name_size, False)
        if plain.number == 0 or size > _REQUEST_MAX + room or count + plain.number > _MESSAGES_MAX:
            break
        taken += 1
        count += plain.number
        total += plain.stop
    if taken == 0:
        return 0, 0, b"", []

    stamp: bytearray = _stamp(prefix, first_offset, count, seconds, nanos)
    s: WritePtr = array_ptr(stamp)
    stamp_size: cython.Py_ssize_t = len(stamp)
    payload = new_buffer(total + count * (4 + stamp_size))
    out: WritePtr = write_ptr(payload)
    answer: WritePtr
    o: cython.Py_ssize_t = 0
    a: cython.Py_ssize_t
    at: cython.Py_ssize_t
    field: Field
    responses: list = []
    for request in requests[first : first + taken]:
        p = read_ptr(request)
        size = len(request)
        plain = _plain(p, size, name, name_size, False)
        response = new_buffer(plain.number * (2 + s[1]))
        answer = write_ptr(response)
        a = at = 0
        while at < size:
            field = read_field(p, at, size)
            at = field.stop
            if field.number == 2 and field.wire == 2:
                o = _put_message(out, o, p, field.start, field.stop - field.start, s, stamp_size)
                a = _put_id(answer, a, s)
                count -= 1
                if count > 0:
                    _count_up(s)
        responses.append(finished(response))
    return taken, (len(payload) - total) // (4 + stamp_size), finished(payload), responses


def count_plain(requests: list, first: cython.Py_ssize_t, topic: bytes) -> list:
    """Count the messages of each plain request at the start of `requests[first:]`, see `scan_plain`, up to the first
    one with an ordering key. Joined, the bytes of these requests are one request.
    """
    request: bytes
    plain: Field
    counts: list = []
    for request in requests[first:]:
        plain = _plain(read_ptr(request), len(request), read_ptr(topic), len(topic), True)
        if plain.number == 0:
            break
        counts.append(plain.number)
    return counts


@cython.cfunc
@cython.exceptval(check=False)
def _plain(
    p: ReadPtr, end: cython.Py_ssize_t, name: ReadPtr, name_size: cython.Py_ssize_t, keyless: cython.bint
) -> Field:
    """How many messages a plain request to this topic has, as the number of a field, and their bytes, as its stop.
    Number 0: it is not plain, or has an ordering key and is to have none.
    """
    field: Field
    at: cython.Py_ssize_t = 0
    named: cython.int = 0
    key_start: cython.Py_ssize_t = 0
    key_stop: cython.Py_ssize_t = 0
    messages: u32 = 0
    total: cython.Py_ssize_t = 0
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            return field
        at = field.stop
        if field.wire != 2:
            continue
        if field.number == 1:
            named += 1
            if field.stop - field.start != name_size or not same(p, field.start, name, 0, name_size):
                return field_of(0, 0, 0)
        elif field.number == 2:
            if messages == 0:
                key_start = _ordering_key(p, field.start, field.stop)
                key_stop = key_start + _ordering_key_size(p, field.start, field.stop)
            if keyless and key_start != key_stop:
                return field_of(0, 0, 0)
            if _problem(p, field.start, field.stop, key_start, key_stop, _ATTRIBUTES_MAX) != 0:
                return field_of(0, 0, 0)
            messages += 1
            total += field.stop - field.start
    return field_of(0 if named != 1 or messages > _MESSAGES_MAX else messages, 0, total)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_message(
    out: WritePtr,
    at: cython.Py_ssize_t,
    p: ReadPtr,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    stamp: WritePtr,
    stamp_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a message with its length in front and its id and time after it; returns the place after that."""
    put32(out, at, size + stamp_size)
    copy(out, at + 4, p, start, size)
    at += 4 + size
    copy(out, at, stamp, 0, stamp_size)
    return at + stamp_size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_id(out: WritePtr, at: cython.Py_ssize_t, stamp: WritePtr) -> cython.Py_ssize_t:
    """Write the id in a stamp as the next of a response; returns the place after it."""
    out[at] = 0x0A
    copy(out, at + 1, stamp, 1, 1 + stamp[1])
    return at + 2 + stamp[1]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _count_up(stamp: WritePtr) -> cython.void:
    """Make the id in a stamp the next one, in decimal, where it stands."""
    digit: cython.Py_ssize_t = 1 + stamp[1]
    while stamp[digit] == 57:
        stamp[digit] = 48
        digit -= 1
    stamp[digit] += 1


def _stamp(prefix: bytes, first_offset: int, count: int, seconds: int, nanos: int) -> bytearray:
    """What is appended to each message: message_id (field 3) of the first, and publish_time (field 4)."""
    if not 0 <= first_offset <= _OFFSET_END - count or len(prefix) > 64:
        raise ValueError("prefix or offset out of range")
    if not 0 <= seconds < 1 << 62 or not 0 <= nanos < 1_000_000_000:
        raise ValueError("time out of range")
    time: bytearray = bytearray(20)
    size: cython.Py_ssize_t
    time[0] = 0x08
    size = put_varint(array_ptr(time), 1, seconds)
    time[size] = 0x10
    size = put_varint(array_ptr(time), size + 1, nanos)
    return bytearray(
        b"\x1a" + bytes((len(prefix) + 12,)) + prefix + b"%012d" % first_offset + bytes((0x22, size)) + time[:size]
    )


def _refusal(problem: int, index: int) -> Exception:
    if problem == 1:
        return Malformed(f"messages[{index}] is not a PubsubMessage")
    field, text = _PROBLEMS[problem]
    return Invalid(f"messages[{index}]{field}", text)


@cython.cfunc
@cython.exceptval(check=False)
def _ordering_key(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the ordering key of a message starts (anywhere if there is none, its size is 0 then)."""
    field: Field
    start: cython.Py_ssize_t = at
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 5 and field.wire == 2:
            start = field.start
        at = field.stop
    return start


@cython.cfunc
@cython.exceptval(check=False)
def _ordering_key_size(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    field: Field
    size: cython.Py_ssize_t = 0
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 5 and field.wire == 2:
            size = field.stop - field.start
        at = field.stop
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _problem(
    p: ReadPtr,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    key_start: cython.Py_ssize_t,
    key_stop: cython.Py_ssize_t,
    attributes_max: cython.int,
) -> cython.int:
    """What is wrong with a message whose ordering key must equal p[key_start:key_stop]; 0 if nothing. Above that, by
    `_MARKS_SHIFT`, the marks of its attributes.
    """
    field: Field
    data_size: cython.Py_ssize_t = 0
    attributes: cython.int = 0
    own_start: cython.Py_ssize_t = at
    own_size: cython.Py_ssize_t = 0
    problem: cython.int
    marks: cython.int = 0
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            return 1
        at = field.stop
        if field.wire != 2:
            continue
        if field.number == 1:
            data_size = field.stop - field.start
        elif field.number == 2:
            attributes += 1
            problem = _attribute_problem(p, field.start, field.stop)
            if problem != 0:
                if problem & _PROBLEM_MASK:
                    return problem
                marks |= problem
        elif field.number == 5:
            own_start = field.start
            own_size = field.stop - field.start
            if own_size > _ORDERING_KEY_MAX:
                return 9
            if not utf8_ok(p, field.start, field.stop):
                return 10
        elif field.number == 3:
            if not utf8_ok(p, field.start, field.stop):
                return 12
        elif field.number == 4 and not _is_message(p, field.start, field.stop):
            return 1
    if attributes > attributes_max:
        return 3
    if data_size == 0 and attributes == 0:
        return 2
    if own_size != key_stop - key_start or (own_size > 0 and not same(p, own_start, p, key_start, own_size)):
        return 11
    return marks


@cython.cfunc
@cython.exceptval(check=False)
def _attribute_problem(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """What is wrong with one entry of the attributes; 0 if nothing. A mark if it is a reserved one."""
    field: Field
    key_start: cython.Py_ssize_t = at
    key_size: cython.Py_ssize_t = 0
    value_start: cython.Py_ssize_t = at
    value_stop: cython.Py_ssize_t = at
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            return 1
        at = field.stop
        if field.wire != 2 or field.number > 2:
            continue
        if field.number == 1:
            key_start = field.start
            key_size = field.stop - field.start
            if key_size > _KEY_MAX:
                return 5
        else:
            value_start = field.start
            value_stop = field.stop
            if value_stop - value_start > _VALUE_MAX:
                return 6
        if not utf8_ok(p, field.start, field.stop):
            return 8
    if key_size == 0:
        return 4
    if key_size >= 4 and same(p, key_start, read_ptr(_GOOG), 0, 4):
        if key_size < 11 or not same(p, key_start, read_ptr(_GOOG), 0, 11):
            return 7
    if key_size == _TTL_SIZE and is_name(p, key_start, key_size):
        return _TTL_FOUND if span_ms(p, value_start, value_stop) > 0 else 13
    if key_size == _SCHEDULE_SIZE and is_schedule(p, key_start, key_size):
        return _SCHEDULE_FOUND if due_ns(p, value_start, value_stop) > 0 else 14
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_message(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Whether the bytes are fields from end to end."""
    field: Field
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            return False
        at = field.stop
    return True
