"""The `pubsub` format of PySpark: topics of Syncpoint as tables and streams, written by epochs exactly once.

Spark finds `DefaultSource` here by the package's name, where the Python it looks with has this package. Importing it
makes that so: PYSPARK_PYTHON becomes the running Python where nothing is set, and an active session knows the format.

    spark.readStream.format("pubsub").option("endpoint", "localhost:8085").option("topic", "projects/p/topics/t").load()

The user's page is docs/spark.md.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_pubsub.errors import OptionError
from pyspark_pubsub.flows_sink import FlowsWriter
from pyspark_pubsub.flows_source import FlowsReader
from pyspark_pubsub.options import READ, WRITE, Options
from pyspark_pubsub.reporting import explaining
from pyspark_pubsub.rpc import BlockingChannel
from pyspark_pubsub.schema import DECODE_ERROR, VALUE, check_source_schema, source_schema
from pyspark_pubsub.sink import BatchWriter, StreamWriter
from pyspark_pubsub.source import BatchReader, FilteredBatchReader, StreamReader
from pyspark_pubsub.suggestions import subscription_of, topic_of
from syncpoint.base.kernel.json_fields import PATHS_MAX

__all__ = ["DefaultSource"]

_CONNECT = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "SPARK_REMOTE")


class DefaultSource(DataSource):
    """Reads and writes topics. Options are checked whenever a reader or a writer is made, before any call."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pubsub"

    @explaining
    def schema(self) -> StructType:
        """The columns chosen by the option `columns`. What is to be read must be there."""
        _no_connect()
        options = Options(self.options, READ)
        source_schema(tuple(name for name in options["columns"] if name not in (VALUE, DECODE_ERROR)) or ("topic",))
        channel = BlockingChannel(options.access)
        if options["topic"]:
            topic_of(channel, options["topic"])
        if options["subscription"]:
            subscription_of(channel, options["subscription"])
        value = None
        if options["decode"]:
            from pyspark_pubsub.chosen_schemas import decoded_type  # few readers want it

            value = decoded_type(options)
        return source_schema(options["columns"], value, errors=options["decodeErrors"].lower() == "null")

    @explaining
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch of what is stored."""
        options = self._reading(schema)
        if options["flows"]:
            raise OptionError("The option flows is for streams.")
        return FilteredBatchReader(options, schema) if options["pushFilters"] else BatchReader(options, schema)

    @explaining
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of what is stored and will come."""
        options = self._reading(schema)
        return FlowsReader(options, schema) if options["flows"] else StreamReader(options, schema)

    @explaining
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch to publish."""
        _no_connect()
        options = Options(self.options, WRITE)
        if options["flows"]:
            raise OptionError("The option flows is for streams.")
        return BatchWriter(options, schema, overwrite)

    @explaining
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A stream to publish."""
        _no_connect()
        options = Options(self.options, WRITE)
        return (FlowsWriter if options["flows"] else StreamWriter)(options, schema, overwrite)

    def _reading(self, schema: StructType) -> Options:
        _no_connect()
        options = Options(self.options, READ)
        check_source_schema(schema, decode=bool(options["decode"]))
        if options["decode"]:
            from pyspark_pubsub.chosen_schemas import decoding

            value = schema[VALUE].dataType if VALUE in schema.names else None
            options = options.replaced({"typed": decoding(options, value)})
        elif options.given("decodeErrors"):
            raise OptionError("The option decodeErrors goes with decode, which names the schema.")
        if len(options["jsonFields"]) > PATHS_MAX:
            raise OptionError(f"The option jsonFields names {len(options['jsonFields'])} fields; it takes {PATHS_MAX}.")
        return options


def _no_connect() -> None:
    """Spark Connect is not supported: the session's driver must be in this Python's own Spark."""
    found = [name for name in _CONNECT if name in os.environ]
    if found:
        raise OptionError(
            f"The pubsub format does not work over Spark Connect ({found[0]} is set): make the session with"
            " SparkSession.builder.master(...), or run the job with spark-submit."
        )


def _prepare(session: Any) -> None:
    """Let Spark look for the format with the Python that runs, unless somebody chose one; report a session of it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if session is not None:
        session.dataSource.register(DefaultSource)


_prepare(SparkSession.getActiveSession())
