"""Data that are an object in JSON, as columns that Spark can change: a map from field names to variants, or, where
fields are only added, text behind the last one.

Place: under the steps that omit and add fields; it is all Spark's own code, no Python runs per message.
Promise: fields that nobody names keep their value and their type. In a map numbers are written anew: 1e3 becomes
1000.0, and 2.50 becomes 2.5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBJECT, EXTENSIBLE = "data_object", "data_extensible"
_PARSED = "data_parsed"
NO_OBJECT = "the data are no object in JSON"


def with_object(frame: DataFrame) -> DataFrame:
    """The frame with OBJECT, which is null for data that are no object."""
    from pyspark.sql.functions import expr

    return frame.withColumn(OBJECT, expr(_object()))


def with_extensible(frame: DataFrame, fields: Mapping[str, str], new: Sequence[str]) -> DataFrame:
    """The frame with EXTENSIBLE: whether `extended` may add the `new` fields to the data; and OBJECT for those objects
    to which it may not: they have such a field already, or are empty, or are written as only `from_json` reads them.
    `fields`: columns to be made of fields of the data, each by a path of names with dots, as text.
    """
    from pyspark.sql.functions import expr

    # The new fields are tried behind the last one: with them, what is no object, or has one of them already, cannot be
    # read as JSON, or is read without the last of them.
    ends = literal("".join(f',{json.dumps(name, ensure_ascii=False)}:""' for name in new) + "}")
    probe = f"concat({_opened()}, CAST({ends} AS BINARY))"
    able = f"({_text_at(_PARSED, [new[-1]])} IS NOT NULL)"
    frame = frame.withColumn(_PARSED, expr(f"try_parse_json(CAST({probe} AS STRING))"))
    read = {column: path.split(".") for column, path in fields.items()}
    found = {
        column: "CAST(NULL AS STRING)" if names[0] in new else _text_at(_PARSED, names)
        for column, names in read.items()
    }
    frame = frame.withColumns(
        {EXTENSIBLE: expr(able)} | {column: expr(f"CASE WHEN {able} THEN {text} END") for column, text in found.items()}
    )
    frame = frame.withColumn(OBJECT, expr(f"CASE WHEN NOT {EXTENSIBLE} THEN {_object()} END"))
    for column, (first, *rest) in read.items():
        frame = frame.withColumn(column, expr(f"coalesce({column}, {_text_at(f'{OBJECT}[{literal(first)}]', rest)})"))
    return frame.drop(_PARSED)


def _text_at(variant: str, names: Sequence[str]) -> str:
    quotes = ["'" if '"' in name else '"' for name in names]
    path = "".join(f"[{quote}{name}{quote}]" for quote, name in zip(quotes, names, strict=True))
    return f"try_variant_get({variant}, {literal('$' + path)}, 'string')"


def members(values: Mapping[str, str]) -> str:
    """An expression for the text of fields, each with a comma before it; those that are null are left out."""
    text = f"to_json(named_struct({', '.join(f'{literal(name)}, {value}' for name, value in values.items())}))"
    return f"CASE WHEN {text} = '{{}}' THEN '' ELSE ',' || substring({text}, 2, length({text}) - 2) END"


def extended(more: str) -> str:
    """An expression for data that are EXTENSIBLE, with a text of `members` behind their last field."""
    return f"concat({_opened()}, CAST({more} || '}}' AS BINARY))"


def _opened() -> str:
    """Data without their last byte, and without blanks behind it. As bytes: characters would have to be counted."""
    trimmed = "CAST(rtrim(CAST(data AS STRING)) AS BINARY)"
    return f"substring({trimmed}, 1, octet_length({trimmed}) - 1)"


def _object() -> str:
    return "from_json(CAST(data AS STRING), 'map<string,variant>')"


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
