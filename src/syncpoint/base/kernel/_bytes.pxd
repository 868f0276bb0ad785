# The primitives of the kernel as compiled: inline C. The same names, uncompiled, stand in _bytes.py; what they promise
# is documented there, and tests/unit/base/kernel/test_twins.py holds the two against each other.
# Nothing here checks that an output is large enough; every reader of foreign bytes is given their end and keeps to it.
# Words are little-endian, as is every machine this is compiled on (build.py refuses others).

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memcpy, memset

ctypedef const unsigned char* ReadPtr
ctypedef unsigned char* WritePtr
ctypedef unsigned long long u64
ctypedef unsigned int u32
ctypedef long long i64

ctypedef struct Field:
    u32 number
    u32 wire
    Py_ssize_t start
    Py_ssize_t stop

ctypedef struct Varint:
    u64 value
    Py_ssize_t next

ctypedef struct Number:
    int kind
    i64 whole
    double real

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* overflow) except? -1.0

cdef extern from *:
    """
    #define kernel_ones(word) __builtin_popcountll(word)
    #define kernel_lowest(word) __builtin_ctzll(word)
    """
    int kernel_ones(u64 word) noexcept nogil
    int kernel_lowest(u64 word) noexcept nogil


# -- buffers ----------------------------------------------------------------------------------------------------------

cdef inline bytes as_bytes(object data):
    if type(data) is bytes:
        return <bytes>data
    return memoryview(data).tobytes()

cdef inline ReadPtr read_ptr(bytes data) noexcept:
    return <ReadPtr>PyBytes_AS_STRING(data)

cdef inline bytes new_buffer(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)

cdef inline WritePtr write_ptr(bytes buffer) noexcept:
    return <WritePtr>PyBytes_AS_STRING(buffer)

cdef inline WritePtr array_ptr(bytearray array) noexcept:
    return <WritePtr>PyByteArray_AS_STRING(array)

cdef inline int make_longer(bytearray array, Py_ssize_t size) except -1:
    return PyByteArray_Resize(array, size)

cdef inline bytes finished(bytes buffer):
    return buffer

cdef inline void copy(WritePtr out, Py_ssize_t at, ReadPtr source, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    memcpy(out + at, source + start, size)

cdef inline bint same(ReadPtr a, Py_ssize_t start_a, ReadPtr b, Py_ssize_t start_b, Py_ssize_t size) noexcept nogil:
    return memcmp(a + start_a, b + start_b, size) == 0

cdef inline Py_ssize_t find_byte(ReadPtr p, Py_ssize_t start, Py_ssize_t stop, int byte) noexcept nogil:
    cdef const void* found = memchr(p + start, byte, stop - start)
    return stop if found == NULL else <ReadPtr>found - p

cdef inline int kinds_in(ReadPtr p, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    cdef unsigned char low = 0, high = 0, slash = 0
    cdef Py_ssize_t at
    for at in range(start, stop):  # sixteen bytes at once, as the C compiler has it
        low |= p[at] < 0x20
        high |= p[at]
        slash |= p[at] == 0x5C
    return low | ((high >> 7) << 1) | (slash << 2)

cdef inline int order_of(
    ReadPtr a, Py_ssize_t start_a, Py_ssize_t stop_a, ReadPtr b, Py_ssize_t start_b, Py_ssize_t stop_b
) noexcept nogil:
    cdef Py_ssize_t size_a = stop_a - start_a
    cdef Py_ssize_t size_b = stop_b - start_b
    cdef int order = memcmp(a + start_a, b + start_b, size_a if size_a < size_b else size_b)
    if order == 0:
        return (size_a > size_b) - (size_a < size_b)
    return 1 if order > 0 else -1

cdef inline bytes cut(ReadPtr p, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char*>p + start, stop - start)


# -- integers ---------------------------------------------------------------------------------------------------------

cdef inline u64 low64(u64 value) noexcept nogil:
    return value

cdef inline u32 get32(ReadPtr p, Py_ssize_t at) noexcept nogil:
    cdef u32 value
    memcpy(&value, p + at, 4)
    return value

cdef inline u64 get64(ReadPtr p, Py_ssize_t at) noexcept nogil:
    cdef u64 value
    memcpy(&value, p + at, 8)
    return value

cdef inline i64 get_signed64(ReadPtr p, Py_ssize_t at) noexcept nogil:
    return <i64>get64(p, at)

cdef inline double get_double(ReadPtr p, Py_ssize_t at) noexcept nogil:
    cdef double value
    memcpy(&value, p + at, 8)
    return value

cdef inline void put32(WritePtr out, Py_ssize_t at, u32 value) noexcept nogil:
    memcpy(out + at, &value, 4)

cdef inline void put64(WritePtr out, Py_ssize_t at, u64 value) noexcept nogil:
    memcpy(out + at, &value, 8)

cdef inline Py_ssize_t put_varint(WritePtr out, Py_ssize_t at, u64 value) noexcept nogil:
    while value > 127:
        out[at] = <unsigned char>(value & 127) | 128
        value >>= 7
        at += 1
    out[at] = <unsigned char>value
    return at + 1

cdef inline Py_ssize_t varint_size(u64 value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size

cdef inline Varint read_varint(ReadPtr p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Varint result
    cdef u64 value = 0
    cdef int shift = 0
    cdef unsigned char byte
    if at < end and p[at] < 128:
        result.value = p[at]
        result.next = at + 1
        return result
    while at < end:
        byte = p[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= <u64>(byte & 127) << shift
        if byte < 128:
            result.value = value
            result.next = at
            return result
        shift += 7
    result.value = 0
    result.next = -1
    return result


cdef inline Number read_number(ReadPtr p, Py_ssize_t at, Py_ssize_t end) noexcept:
    cdef Number number
    cdef Py_ssize_t start = at
    cdef Py_ssize_t digits = 0
    cdef u64 value = 0
    cdef bint fits = True
    cdef char text[65]
    number.kind = 0
    number.whole = 0
    number.real = 0.0
    if end - at > 64:
        return number
    if at < end and (p[at] == 43 or p[at] == 45):
        at += 1
    while at < end and 48 <= p[at] <= 57:
        if value > 922337203685477580ULL:
            fits = False
        value = value * 10 + (p[at] - 48)
        digits += 1
        at += 1
    if at == end:
        if digits and fits and value <= 9223372036854775807ULL + (1 if p[start] == 45 else 0):
            number.kind = 1
            number.whole = <i64>(0 - value) if p[start] == 45 else <i64>value
            number.real = <double>number.whole
        return number
    if p[at] == 46:
        at += 1
        while at < end and 48 <= p[at] <= 57:
            digits += 1
            at += 1
    if digits == 0:
        return number
    if at < end and (p[at] | 32) == 101:
        at += 1
        if at < end and (p[at] == 43 or p[at] == 45):
            at += 1
        digits = at
        while at < end and 48 <= p[at] <= 57:
            at += 1
        if digits == at:
            return number
    if at != end:
        return number
    memcpy(text, p + start, end - start)
    text[end - start] = 0
    number.real = PyOS_string_to_double(text, NULL, NULL)
    if number.real - number.real == 0:
        number.kind = 2
    return number


# -- protobuf ---------------------------------------------------------------------------------------------------------

cdef inline Field read_field(ReadPtr p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Field field
    cdef Varint tag = read_varint(p, at, end)
    cdef Varint value
    field.number = 0
    field.wire = 0
    field.start = end
    field.stop = end
    if tag.next < 0 or tag.next - at > 5 or tag.value > 0xFFFFFFFFU or tag.value < 8:
        return field
    at = tag.next
    field.wire = <u32>(tag.value & 7)
    if field.wire == 2:
        value = read_varint(p, at, end)
        if value.next < 0 or value.value > <u64>(end - value.next):
            return field
        field.start = value.next
        field.stop = value.next + <Py_ssize_t>value.value
    elif field.wire == 0:
        value = read_varint(p, at, end)
        if value.next < 0:
            return field
        field.start = at
        field.stop = value.next
    elif field.wire == 1:
        if end - at < 8:
            return field
        field.start = at
        field.stop = at + 8
    elif field.wire == 5:
        if end - at < 4:
            return field
        field.start = at
        field.stop = at + 4
    else:
        return field
    field.number = <u32>(tag.value >> 3)
    return field

cdef inline Field field_of(u32 number, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    cdef Field field
    field.number = number
    field.wire = 2
    field.start = start
    field.stop = stop
    return field

cdef inline bint utf8_ok(ReadPtr p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef unsigned char a, b
    while at < end:
        if end - at >= 8 and get64(p, at) & 0x8080808080808080ULL == 0:
            at += 8
            continue
        a = p[at]
        if a < 0x80:
            at += 1
            continue
        if end - at < 2 or p[at + 1] & 0xC0 != 0x80:
            return False
        b = p[at + 1]
        if a < 0xE0:
            if a < 0xC2:
                return False
            at += 2
        elif a < 0xF0:
            if (a == 0xE0 and b < 0xA0) or (a == 0xED and b > 0x9F):
                return False
            if end - at < 3 or p[at + 2] & 0xC0 != 0x80:
                return False
            at += 3
        else:
            if a > 0xF4 or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
                return False
            if end - at < 4 or p[at + 2] & 0xC0 != 0x80 or p[at + 3] & 0xC0 != 0x80:
                return False
            at += 4
    return True


# -- bits, least significant first ------------------------------------------------------------------------------------

cdef inline bint bit_at(ReadPtr p, Py_ssize_t bit) noexcept nogil:
    return (p[bit >> 3] >> (bit & 7)) & 1

cdef inline Py_ssize_t count_bits(ReadPtr p, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t total = 0
    while begin < end and begin & 7:
        total += bit_at(p, begin)
        begin += 1
    while end - begin >= 64:
        total += kernel_ones(get64(p, begin >> 3))
        begin += 64
    while end - begin >= 8:
        total += kernel_ones(p[begin >> 3])
        begin += 8
    while begin < end:
        total += bit_at(p, begin)
        begin += 1
    return total

cdef inline void fill_bits(WritePtr out, Py_ssize_t begin, Py_ssize_t end, bint value) noexcept nogil:
    cdef Py_ssize_t whole
    cdef unsigned char mask
    while begin < end and (begin & 7 or end - begin < 8):
        mask = <unsigned char>(1 << (begin & 7))
        if value:
            out[begin >> 3] |= mask
        else:
            out[begin >> 3] &= ~mask
        begin += 1
    whole = (end - begin) >> 3
    if whole > 0:
        memset(out + (begin >> 3), 255 if value else 0, whole)
        begin += whole << 3
        if begin < end:
            fill_bits(out, begin, end, value)

cdef inline Py_ssize_t find_bit(ReadPtr p, Py_ssize_t begin, Py_ssize_t end, bint value) noexcept nogil:
    cdef u64 word
    cdef u64 flip = 0 if value else ~(<u64>0)
    while begin < end:
        if begin & 7 == 0 and end - begin >= 64:
            word = get64(p, begin >> 3) ^ flip
            if word == 0:
                begin += 64
                continue
            return begin + kernel_lowest(word)
        if bit_at(p, begin) == value:
            return begin
        begin += 1
    return end

cdef inline void or_bits(WritePtr out, Py_ssize_t at, ReadPtr p, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    while begin < end:
        if begin & 7 == 0 and at & 7 == 0 and end - begin >= 8:
            out[at >> 3] |= p[begin >> 3]
            begin += 8
            at += 8
            continue
        if bit_at(p, begin):
            out[at >> 3] |= <unsigned char>(1 << (at & 7))
        begin += 1
        at += 1
