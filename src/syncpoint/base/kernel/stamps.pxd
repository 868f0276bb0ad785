from ._bytes cimport Field, ReadPtr, WritePtr, array_ptr, as_bytes, copy, finished, new_buffer, put32, put_varint, read_field, read_ptr, u64, write_ptr
from .frames cimport next_message
