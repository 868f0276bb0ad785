"""The rows of files as the columns of messages.

Place: on Spark, right after its source of files; expressions, which the JVM compiles.
Promise: a line, a row or a whole file becomes one message, with the file's name and time in the attributes `file.name`
and `file.modified`. A row that does not fit the schema stops the flow, unless the options say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.programs.federation.streams.stream_ends import BINARY, CSV, JSON, FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_EACH = "1000"  # in one batch, unless the options say otherwise
_FORMATS = {BINARY: "binaryFile", CSV: "csv"}


def rows(spark: SparkSession, stream: FileStream) -> DataFrame:
    """What Spark reads of the folder, file by file."""
    reader = spark.readStream.format(_FORMATS.get(stream.format, "text"))
    if stream.format == CSV:
        reader = reader.schema(stream.schema)
    elif stream.format != BINARY:
        reader = reader.schema("value STRING")
    else:
        reader = reader.schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")
    defaults = {"maxFilesPerTrigger": FILES_EACH, **({"mode": "FAILFAST"} if stream.format == CSV else {})}
    return reader.options(**{**defaults, **stream.options}).load(stream.path)


def messages(frame: DataFrame, kind: str) -> DataFrame:
    """Rows of `rows` as messages of a link; they are numbered where they are staged (`pyspark_pubsub.stream_plans`)."""
    if kind == JSON:
        frame = frame.where("trim(value) <> ''")
    data = {BINARY: "content", CSV: f"CAST(to_json(struct({_columns(frame)})) AS BINARY)"}.get(
        kind, "CAST(value AS BINARY)"
    )
    modified = "date_format(_metadata.file_modification_time, \"yyyy-MM-dd'T'HH:mm:ss.SSSXXX\")"
    return frame.selectExpr(
        "CAST(NULL AS STRING) AS message_id",
        "CAST(1 AS BIGINT) AS source",
        "CAST(0 AS BIGINT) AS offset",
        "CAST(NULL AS TIMESTAMP) AS publish_time",
        f"{data} AS data",
        f"map('file.name', _metadata.file_name, 'file.modified', {modified}) AS attributes",
        "'' AS ordering_key",
        "CAST(NULL AS STRING) AS origin",
        "CAST(NULL AS ARRAY<STRING>) AS visited",
    )


def _columns(frame: DataFrame) -> str:
    return ", ".join(f"`{name}`" for name in frame.columns)
