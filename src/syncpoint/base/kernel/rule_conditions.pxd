from ._bytes cimport (
    Field, Number, ReadPtr, field_of, get_double, get_signed64, i64, order_of, read_field, read_number, same,
    u32
)

cdef int condition_at(
    ReadPtr program, int op, Py_ssize_t at, Py_ssize_t end, ReadPtr message, Py_ssize_t start, Py_ssize_t stop
) noexcept
