from ._bytes cimport Field, ReadPtr, as_bytes, cut, read_field, read_ptr, read_varint
