from ._bytes cimport Field, ReadPtr, Varint, WritePtr, array_ptr, as_bytes, copy, cut, field_of, finished, new_buffer, put32, \
    put_varint, read_field, read_ptr, same, u32, u64, utf8_ok, write_ptr
from .lifetimes cimport is_name, span_ms
from .schedules cimport due_ns, is_schedule
