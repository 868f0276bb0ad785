from ._bytes cimport ReadPtr, WritePtr, as_bytes, copy, cut, finished, new_buffer, read_ptr, same, write_ptr
