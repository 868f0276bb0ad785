from ._bytes cimport i64, u32, u64

cdef class LeaseBlock:
    cdef u64 source
    cdef i64 number
    cdef i64 earliest
    cdef bint exact
    cdef int outstanding
    cdef u32 serial_low
    cdef u32 serial_high
    cdef i64 deadline[1024]
    cdef u32 serial[1024]
    cdef u32 consumer[1024]
    cdef u32 size[1024]

    cdef void begin(self, u64 source, i64 number)
    cdef void refresh(self)

cdef class Holder:
    cdef i64 messages
    cdef i64 bytes
