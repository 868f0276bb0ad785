from ._bytes cimport Field, ReadPtr, WritePtr, array_ptr, as_bytes, cut, get32, put32, put_varint, read_field, read_ptr, same
