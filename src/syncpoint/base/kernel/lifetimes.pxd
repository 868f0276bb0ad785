from ._bytes cimport Field, ReadPtr, as_bytes, i64, read_field, read_ptr, same
from .frames cimport next_message

cdef bint is_name(ReadPtr p, Py_ssize_t start, Py_ssize_t size) noexcept
cdef i64 span_ms(ReadPtr p, Py_ssize_t start, Py_ssize_t stop) noexcept
