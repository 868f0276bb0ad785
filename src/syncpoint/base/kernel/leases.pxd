from ._bytes cimport Field, ReadPtr, Varint, WritePtr, array_ptr, as_bytes, bit_at, copy, cut, fill_bits, finished, \
    get32, get64, i64, new_buffer, put32, put64, put_varint, read_field, read_ptr, read_varint, u32, u64, varint_size, \
    write_ptr
from .acks cimport RunWriter
from .ackids cimport read_ack_id, spell, write_ack_id
from .blocks cimport LeaseBlock, Holder
from .filters cimport match_at
from .frames cimport next_message

cdef class LeaseTable:
    cdef u64 _k0
    cdef u64 _k1
    cdef readonly u32 epoch
    cdef readonly u32 generation
    cdef readonly u32 last_serial
    cdef i64 _messages
    cdef i64 _bytes
    cdef i64 _earliest
    cdef dict _sources
    cdef dict _holders
    cdef bytearray _raw
    cdef LeaseBlock _spare
    cdef LeaseBlock _recent
    cdef Holder _recent_holder
    cdef u32 _recent_consumer

    cdef void _count_in(self, u32 consumer, i64 messages, i64 size, i64 deadline)
    cdef void _give(
        self, ReadPtr p, Py_ssize_t at, Py_ssize_t size, u64 source, i64 offset, WritePtr choice, i64 given,
        WritePtr out, u32 consumer, i64 deadline, u32 tries
    )
    cdef LeaseBlock _find(self, u64 source, i64 offset)
    cdef LeaseBlock _make(self, u64 source, i64 offset)
    cdef Holder _holder(self, u32 consumer)
    cdef void _drop(self, LeaseBlock block, Py_ssize_t slot)
    cdef void _postpone(self, LeaseBlock block, Py_ssize_t slot, i64 deadline)
    cdef bytes _read_ids(self, bytes request, u32 wanted)
    cdef bint _is_current(self, LeaseBlock block, ReadPtr ids, Py_ssize_t at)
    cdef bint _is_void(self, dict void, ReadPtr ids, Py_ssize_t at)
    cdef list _failures(self, ReadPtr ids, Py_ssize_t size, list failed)
    cdef list _all_blocks(self)
