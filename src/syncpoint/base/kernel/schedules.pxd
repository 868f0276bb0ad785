from ._bytes cimport Field, ReadPtr, WritePtr, as_bytes, copy, cut, finished, i64, new_buffer, put32, read_field, \
    read_ptr, same, write_ptr
from .frames cimport next_message

cdef bint is_schedule(ReadPtr p, Py_ssize_t start, Py_ssize_t size) noexcept
cdef i64 due_ns(ReadPtr p, Py_ssize_t at, Py_ssize_t stop) noexcept
