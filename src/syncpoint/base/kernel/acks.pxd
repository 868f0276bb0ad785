from ._bytes cimport ReadPtr, Varint, WritePtr, array_ptr, as_bytes, count_bits, cut, fill_bits, \
    find_bit, i64, or_bits, put_varint, read_ptr, read_varint, u64, varint_size

cdef class Chunk:
    cdef bytearray bits
    cdef Py_ssize_t held

    cdef void make_room(self, Py_ssize_t bits)
    cdef Py_ssize_t size(self)

cdef class RunWriter:
    cdef bytearray data
    cdef i64 previous_end

    cdef void add(self, i64 begin, i64 length)
    cdef void varint(self, u64 value)

cdef class AckSet:
    cdef list _starts
    cdef list _ends
    cdef dict _chunks
    cdef i64 _total

    cdef Py_ssize_t _full_at(self, i64 number)
    cdef i64 _add(self, i64 begin, i64 end)
    cdef i64 _add_in_chunk(self, i64 number, Py_ssize_t begin, Py_ssize_t end)
    cdef i64 _add_whole(self, i64 first, i64 last)
    cdef void _mark_full(self, i64 first, i64 last)
    cdef i64 _remove_in_chunk(self, i64 number, Py_ssize_t begin, Py_ssize_t end)
    cdef i64 _remove_whole(self, i64 first, i64 last)
    cdef void _cut_full(self, i64 first, i64 last)
    cdef list _numbers(self, i64 first, i64 last)
    cdef i64 _count(self, i64 begin, i64 end)
    cdef i64 _first_gap(self, i64 offset)
    cdef list _pieces(self)
