from ._bytes cimport ReadPtr, WritePtr, as_bytes, copy, cut, finished, get32, get64, low64, new_buffer, put32, put64, \
    read_ptr, u32, u64, write_ptr

cdef ReadPtr _pairs
cdef ReadPtr _values

cdef u64 siphash(ReadPtr p, Py_ssize_t start, Py_ssize_t size, u64 k0, u64 k1) noexcept
cdef void write_ack_id(WritePtr out, Py_ssize_t at, WritePtr raw, u64 k0, u64 k1) noexcept
cdef bint read_ack_id(ReadPtr p, Py_ssize_t start, WritePtr raw, Py_ssize_t at, u64 k0, u64 k1) noexcept
cdef void spell(ReadPtr raw, Py_ssize_t start, WritePtr out, Py_ssize_t at) noexcept
