"""Rows with a column `value` on their way into messages: data by a schema, and the attributes that name its revision.

Place: in the tasks of the sink, before `staging`. The driver has compared the columns with the schema already.
Promise: a row that the schema does not allow fails the task, and with it the epoch: nothing of that is visible.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyspark_pubsub.chosen_schemas import Typed
from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.schema import VALUE
from pyspark_pubsub.typed_reading import ENCODING, NAME, REVISION
from pyspark_pubsub.typed_values import DataMismatch, schema_of


def encoded(typed: Typed, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches with `data` in place of `value`. Raises SchemaError."""
    schema = schema_of(typed.revision)
    marks = [
        (NAME, typed.revision.name),
        (REVISION, typed.revision.id),
        (ENCODING, typed.encoding.name),
    ]
    for batch in batches:
        data = []
        for row, value in enumerate(batch.column(VALUE).to_pylist()):
            try:
                if value is None:
                    raise DataMismatch("value is null")
                data.append(schema.encoded(value, typed.encoding))
            except DataMismatch as error:
                raise SchemaError(
                    f"A row (number {row} of its batch) does not fit {typed.revision.full_name}: {error}. Nothing of"
                    " this batch is published; filter or correct such rows."
                ) from None
        given = batch.column("attributes").to_pylist() if "attributes" in batch.schema.names else [None] * len(data)
        attributes = [[one for one in own or () if one[0] not in (NAME, REVISION, ENCODING)] + marks for own in given]
        kept = [name for name in batch.schema.names if name not in (VALUE, "attributes")]
        columns = [*(batch.column(name) for name in kept), pa.array(data, pa.binary())]
        columns.append(pa.array(attributes, pa.map_(pa.string(), pa.string())))
        yield pa.RecordBatch.from_arrays(columns, names=[*kept, "data", "attributes"])
