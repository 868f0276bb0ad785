from .rule_conditions cimport condition_at
from ._bytes cimport Field, ReadPtr, as_bytes, low64, read_field, read_ptr, same, u64

cdef int match_at(
    ReadPtr program, Py_ssize_t program_end, ReadPtr message, Py_ssize_t start, Py_ssize_t stop
) noexcept
