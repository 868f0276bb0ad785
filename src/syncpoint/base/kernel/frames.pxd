from ._bytes cimport Field, ReadPtr, as_bytes, cut, get32, read_field, read_ptr

cdef Py_ssize_t next_message(ReadPtr p, Py_ssize_t at, Py_ssize_t end) except -1
