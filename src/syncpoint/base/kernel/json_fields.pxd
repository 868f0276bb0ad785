from ._bytes cimport ReadPtr, array_ptr, as_bytes, copy, find_byte, get32, kinds_in, make_longer, put32, read_ptr, \
    same, u64

cdef class FieldFinder:
    cdef list _paths
    cdef list _keys
    cdef list _without
    cdef Py_ssize_t _name_start[256]
    cdef Py_ssize_t _name_size[256]
    cdef Py_ssize_t _found_start[32]
    cdef Py_ssize_t _found_size[32]
    cdef Py_ssize_t _open
    cdef Py_ssize_t _bracket
    cdef bint _plain

    cdef bint _is_plain(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop) noexcept
    cdef Py_ssize_t _object(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop, int depth, u64 live) noexcept
    cdef bint _is_new(
        self, ReadPtr p, Py_ssize_t start, Py_ssize_t size, Py_ssize_t opened, int depth
    ) noexcept
    cdef u64 _along(
        self, ReadPtr p, Py_ssize_t start, Py_ssize_t size, int depth, u64 live, bint last
    ) noexcept
    cdef bint _note(self, ReadPtr p, Py_ssize_t start, Py_ssize_t stop, u64 paths) noexcept
    cdef Py_ssize_t _value(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop, int depth, u64 live) noexcept
    cdef Py_ssize_t _array(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop, int depth) noexcept
    cdef Py_ssize_t _string(self, ReadPtr p, Py_ssize_t at, Py_ssize_t stop) noexcept
