"""The columns `value` and `decode_error`: data by their schema, before they are rows.

Place: in the tasks that read, between the server's batches and Spark.
Promise: a message is read by the revision that it was checked by, and shown as the reader's own revision has it. What
is no value of its schema fails the task, is null beside its error, or is left out and counted in the log, by the option
`decodeErrors`; never silently.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_pubsub.chosen_schemas import revision_of
from pyspark_pubsub.errors import SchemaError
from pyspark_pubsub.schema import DECODE_ERROR, VALUE
from pyspark_pubsub.typed_values import DataMismatch, TypedSchema, schema_of
from syncpoint.catalog.schemas.validators import Encoding

if TYPE_CHECKING:
    from pyspark_pubsub.slices import Slice

log = logging.getLogger("pyspark_pubsub")
NAME, REVISION, ENCODING = "googclient_schemaname", "googclient_schemarevisionid", "googclient_schemaencoding"
NEEDS = ("data", "attributes", "offset")
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)


class ValueColumns:
    """Makes the columns for one range."""

    def __init__(self, part: Slice, schema: pa.Schema) -> None:
        assert part.typed is not None
        self._part, self._typed = part, part.typed
        self._schema = schema_of(self._typed.revision)
        self._kinds = {name: schema.field(name).type for name in (VALUE, DECODE_ERROR) if name in schema.names}
        self._type = self._kinds[VALUE] if VALUE in self._kinds else _arrow_type(self._schema)
        self.left_out = 0

    def of(self, columns: dict[str, pa.Array]) -> tuple[dict[str, pa.Array], int]:
        """The batch with its new columns, and how many rows it has now. Raises SchemaError, CallError."""
        values, errors = self._decoded(columns["data"].to_pylist(), columns["attributes"].to_pylist())
        array = self._array(values, errors)
        bad = [i for i, error in enumerate(errors) if error is not None]
        if bad and self._typed.errors == "fail":
            raise SchemaError(
                f"{self._where(columns, bad[0])} does not fit {self._typed.revision.full_name}: {errors[bad[0]]}."
                " decodeErrors=null shows it with the error in decode_error, decodeErrors=drop leaves it out."
            )
        made = {**columns, VALUE: array, DECODE_ERROR: pa.array(errors, pa.string())}
        if not bad or self._typed.errors == "null":
            return made, len(values)
        if not self.left_out:
            log.warning("%s is left out, as not fitting its schema: %s", self._where(columns, bad[0]), errors[bad[0]])
        self.left_out += len(bad)
        good = pa.array([error is None for error in errors])
        return {name: column.filter(good) for name, column in made.items()}, len(values) - len(bad)

    def close(self) -> None:
        """The range is over: report what was left out."""
        if self.left_out:
            part = self._part
            log.warning(
                "%d of the messages of source %d of %s, from offset %d to %d, left out: they do not fit their schema.",
                self.left_out, part.source, part.topic, part.begin, part.end - 1,
            )  # fmt: skip

    def _decoded(self, data: list[bytes | None], attributes: list[Any]) -> tuple[list[Any], list[str | None]]:
        values: list[Any] = []
        errors: list[str | None] = []
        for one, marks in zip(data, attributes, strict=True):
            try:
                values.append(self._value(one or b"", dict(marks or ())))
                errors.append(None)
            except DataMismatch as error:
                values.append(None)
                errors.append(str(error).rstrip("."))
        return values, errors

    def _value(self, data: bytes, marks: dict[str, str]) -> Any:
        """By its own revision, if it was checked by this schema; else as if it had been by the reader's."""
        encoding = self._typed.encoding
        writer: TypedSchema = self._schema
        if marks.get(NAME) == self._typed.revision.name:
            encoding = Encoding.__members__.get(marks.get(ENCODING, ""), encoding)
            written = marks.get(REVISION, "")
            if written and written != self._typed.revision.id:
                writer = self._writer(written)
        return self._schema.decoded(data, encoding, writer)

    def _writer(self, revision: str) -> TypedSchema:
        found = revision_of(self._part.access, f"{self._typed.revision.name}@{revision}")
        if found is None:
            raise DataMismatch(f"it was written by revision {revision}, which is deleted")
        return schema_of(found)

    def _array(self, values: list[Any], errors: list[str | None]) -> pa.Array:
        """The values as Arrow has them; one that does not fit its type becomes an error."""
        try:
            return pa.array(values, self._type)
        except _UNFIT:
            for i, value in enumerate(values):
                try:
                    pa.array([value], self._type)
                except _UNFIT as error:
                    values[i], errors[i] = None, str(error)
            return pa.array(values, self._type)

    def _where(self, columns: dict[str, pa.Array], row: int) -> str:
        return f"The message at offset {columns['offset'][row]} of source {self._part.source} of {self._part.topic}"


def _arrow_type(schema: TypedSchema) -> pa.DataType:
    from pyspark.sql.types import StructField, StructType

    from pyspark_pubsub.schema import arrow_schema
    from pyspark_pubsub.typed_values import readable

    return arrow_schema(StructType([StructField(VALUE, readable(schema.kind.type))])).field(VALUE).type
