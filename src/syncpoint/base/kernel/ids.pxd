from ._bytes cimport ReadPtr, WritePtr, array_ptr, get32, get64, i64, put32, put64, read_ptr, u32, u64

cdef class IdTable:
    cdef list _chunks
    cdef i64 _first
    cdef i64 _end
    cdef i64 _dropped
    cdef i64 _slots
    cdef bytearray _index

    cdef WritePtr _entry(self, i64 number)
    cdef Py_ssize_t _at(self, i64 number)
    cdef i64 _number(self, u32 held)
    cdef i64 _slot_of(self, u64 high, u64 low)
    cdef void _grow(self)
    cdef void _leave(self, i64 number, u64 high, u64 low)
