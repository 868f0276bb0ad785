"""Data that are an object in JSON, as a column that Spark can change: a map from field names to variants.

Place: under the steps that omit and add fields; it is all Spark's own code, no Python runs per message.
Promise: fields that nobody names keep their value and their type. Numbers are written anew: 1e3 becomes 1000.0, and
2.50 becomes 2.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBJECT = "data_object"
NO_OBJECT = "the data are no object in JSON"


def with_object(frame: DataFrame) -> DataFrame:
    """The frame with OBJECT, which is null for data that are no object."""
    from pyspark.sql.functions import expr

    return frame.withColumn(OBJECT, expr("from_json(CAST(data AS STRING), 'map<string,variant>')"))


def field(path: str) -> str:
    """An expression for the field at a path of names with dots, as text; null when it is not there."""
    first, _, rest = path.partition(".")
    value = f"{OBJECT}[{literal(first)}]"
    inner = "".join(f"[{literal(name)}]" for name in rest.split(".")) if rest else ""
    return f"try_variant_get({value}, {literal('$' + inner)}, 'string')"


def literal(text: str) -> str:
    """Text as a constant of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def names(found: Iterable[str]) -> str:
    """Constants with commas."""
    return ", ".join(literal(one) for one in found)


def written(changed: Column) -> Column:
    """The object as data."""
    from pyspark.sql.functions import to_json

    return to_json(changed).cast("binary")
