"""The columns `json_fields` and `json_end`: what a quick look into the data of a batch finds, before they are rows.

Place: in the tasks that read, between the server's batches and Spark. The work is done by the compiled kernel; where
that is not installed, nothing is known, and the columns are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyspark_pubsub.schema import JSON_END, JSON_FIELDS
from syncpoint.base import kernel
from syncpoint.base.kernel.json_fields import FieldFinder


class JsonColumns:
    """Makes those columns that a schema has. `paths`: names with dots, of the fields that are wanted; `without`: names
    that the data must not have.
    """

    def __init__(self, paths: Sequence[str], without: Sequence[str], schema: pa.Schema) -> None:
        self._kinds = {name: schema.field(name).type for name in (JSON_FIELDS, JSON_END) if name in schema.names}
        wanted = dict.fromkeys(paths) if JSON_FIELDS in self._kinds else {}
        names = [[name.encode() for name in path.split(".")] for path in wanted]
        self._finder = FieldFinder(names, [name.encode() for name in without]) if kernel.COMPILED else None

    def of(self, data: pa.Array) -> dict[str, pa.Array]:
        """The columns for a column of data, by their names."""
        rows = len(data)
        if self._finder is None:
            return {name: pa.nulls(rows, kind) for name, kind in self._kinds.items()}
        _, ends, values = data.buffers()
        valid, row_ends, *parts, brackets = map(pa.py_buffer, self._finder.find(values or b"", ends, data.offset, rows))
        made = {}
        if (kind := self._kinds.get(JSON_FIELDS)) is not None:
            keys, items = (pa.StringArray.from_buffers(parts[i].size // 4 - 1, parts[i], parts[i + 1]) for i in (0, 2))
            entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            made[JSON_FIELDS] = pa.Array.from_buffers(kind, rows, [valid, row_ends], children=[entries])
        if (kind := self._kinds.get(JSON_END)) is not None:
            made[JSON_END] = pa.Array.from_buffers(kind, rows, [valid, brackets])
        return made
