from ._bytes cimport ReadPtr, WritePtr, array_ptr, as_bytes, bit_at, copy, finished, get32, get64, new_buffer, put32, \
    put_varint, read_ptr, same, u64, utf8_ok, varint_size, write_ptr

cdef class Texts:
    cdef Py_ssize_t count
    cdef Py_ssize_t valid
    cdef Py_ssize_t offsets
    cdef Py_ssize_t values

cdef class ListColumn:
    cdef Py_ssize_t valid
    cdef Py_ssize_t offsets

cdef class RowBatch:
    cdef Texts data
    cdef Texts keys
    cdef Texts ids
    cdef Texts origins
    cdef Texts servers
    cdef Texts names
    cdef Texts values
    cdef ListColumn attributes
    cdef ListColumn visited
    cdef Py_ssize_t times
    cdef Py_ssize_t times_valid
    cdef Py_ssize_t offsets
    cdef bint has_attributes
    cdef bint has_key
    cdef bint has_id
    cdef bint has_time
    cdef bint has_origin
    cdef bint has_visited
    cdef bint has_offset
