"""The column `json_fields`: what a quick look into the data of a batch finds, before Spark has made rows of it.

Place: in the tasks that read, between the server's batches and Spark. The work is done by the compiled kernel; where
that is not installed, nothing is known, and the column is null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from syncpoint import kernel
from syncpoint.kernel.json_fields import FieldFinder


class JsonColumn:
    """Makes the column for batches. `paths`: names with dots, of the fields that are wanted; `without`: names that the
    data must not have. `kind`: the type of the column, a map from text to text.
    """

    def __init__(self, paths: Sequence[str], without: Sequence[str], kind: pa.MapType) -> None:
        self._kind = kind
        names = [[name.encode() for name in path.split(".")] for path in paths]
        self._finder = FieldFinder(names, [name.encode() for name in without]) if kernel.COMPILED else None

    def of(self, data: pa.Array) -> pa.Array:
        """The column for a column of data."""
        rows = len(data)
        if self._finder is None:
            return pa.nulls(rows, self._kind)
        _, ends, values = data.buffers()
        found = self._finder.find(values or b"", ends, data.offset, rows)
        valid, row_ends, *parts = (pa.py_buffer(one) for one in found)
        keys, items = (pa.StringArray.from_buffers(parts[i].size // 4 - 1, parts[i], parts[i + 1]) for i in (0, 2))
        entries = pa.StructArray.from_arrays([keys, items], fields=[self._kind.key_field, self._kind.item_field])
        return pa.Array.from_buffers(self._kind, rows, [valid, row_ends], children=[entries])
