from ._bytes cimport Field, ReadPtr, Varint, WritePtr, array_ptr, as_bytes, bit_at, copy, get32, i64, low64, \
    make_longer, put32, put64, read_field, read_ptr, read_varint, same, u32, u64, utf8_ok
from .filters cimport match_at
from .frames cimport next_message

cdef class Gathering:
    cdef tuple _columns
    cdef list _buffers
    cdef WritePtr _out[19]
    cdef Py_ssize_t _used[19]
    cdef Py_ssize_t _room[19]
    cdef bytes _program
    cdef list _origins
    cdef bytes _here
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size

    cdef bytearray _padded(self, int index)
    cdef int _take(self, ReadPtr p, Py_ssize_t start, Py_ssize_t stop, i64 offset) except -2
    cdef bint _is_wanted(self, ReadPtr p, Py_ssize_t start, Py_ssize_t size) except -1
    cdef bint _take_entries(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop) except -1
    cdef int _take_visited(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop) except -1
    cdef int _put(self, int index, ReadPtr p, Py_ssize_t start, Py_ssize_t size) except -1
    cdef int _put_size(self, int index, Py_ssize_t value) except -1
    cdef int _put_number(self, int index, u64 value) except -1
    cdef int _make_room(self, int index, Py_ssize_t wanted) except -1
