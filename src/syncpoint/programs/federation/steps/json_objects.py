"""Data that are an object in JSON, as columns that Spark can change: a map from field names to variants, or, where
fields are only added, text after the last one.

Place: under the steps that omit and add fields; it is all Spark's own code, no Python runs per message. What Spark
cannot compile (`from_json`, functions with lambdas) has each row copied before and after it: `with_extensible`,
`extended` and `replaced` have none of it.
Promise: fields that nobody names keep their value and their type. In a map numbers are written anew: 1e3 becomes
1000.0, and 2.50 becomes 2.5. Data with a field that is there twice are no object.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from syncpoint.programs.federation.steps.step import JSON_END, JSON_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBJECT, EXTENSIBLE = "data_object", "data_extensible"
_TRIMMED, _OPENED, _PARSED, _WHOLE = "data_trimmed", "data_opened", "data_parsed", "data_whole"
_MARK = f"the data end here: {secrets.token_hex(8)}"  # no data have it
NO_OBJECT = "the data is not a JSON object, or has a duplicate field"


def with_object(frame: DataFrame) -> DataFrame:
    """The frame with OBJECT, its fields in their order; it is null for data that are no object."""
    from pyspark.sql.functions import expr

    made = _if_whole("from_json(CAST(data AS STRING), 'map<string,variant>')")
    return frame.withColumn(_WHOLE, expr(_whole())).withColumn(OBJECT, expr(made)).drop(_WHOLE)


def with_extensible(frame: DataFrame, fields: Mapping[str, str], new: Sequence[str]) -> DataFrame:
    """The frame with EXTENSIBLE: whether `extended` may add the `new` fields to the data; and OBJECT, its fields by
    their names, for those objects to which it may not: they have such a field already, or are empty. `fields`: columns
    to be made of fields of the data, each by a path of names with dots, as text. Where the source has looked for these
    fields and names, data that it found plain are not parsed.
    """
    from pyspark.sql.functions import expr

    looked = JSON_END in frame.columns
    plain, end = (f"{JSON_END} IS NOT NULL", JSON_END) if looked else ("false", "0")
    # The new fields are tried after the last one, before a new bracket, and the last of them is a mark: with them,
    # what is no object, or has one of them already, cannot be read as JSON, or is read without the mark.
    *others, last = (json.dumps(name, ensure_ascii=False) for name in new)
    ends = literal("".join(f',{name}:""' for name in others) + f',{last}:"{_MARK}"}}')
    opened = f"substring({_TRIMMED}, 1, octet_length({_TRIMMED}) - 1)"
    frame = frame.withColumn(_TRIMMED, expr(f"CASE WHEN NOT ({plain}) THEN {_trimmed()} END"))
    frame = frame.withColumn(_OPENED, expr(f"CASE WHEN {plain} THEN substring(data, 1, {end}) ELSE {opened} END"))
    tried = _parsed(f"concat({_OPENED}, CAST({ends} AS BINARY))")
    ends_so = f"substring({_TRIMMED}, -1, 1) = X'7D'"
    frame = frame.withColumn(_PARSED, expr(f"CASE WHEN NOT ({plain}) AND {ends_so} THEN {tried} END"))
    marked = f"coalesce({_field(_PARSED, [new[-1]], 'string')} = '{_MARK}', false)"
    frame = frame.withColumn(EXTENSIBLE, expr(f"{plain} OR {marked}"))
    frame = frame.withColumn(_WHOLE, expr(f"CASE WHEN NOT {EXTENSIBLE} THEN {_whole()} END"))
    frame = frame.withColumn(OBJECT, expr(_if_whole(f"try_variant_get({_WHOLE}, '$[0]', 'map<string,variant>')")))
    read = {}
    for column, path in fields.items():
        first, *rest = path.split(".")
        found = f"WHEN {plain} THEN {JSON_FIELDS}[{literal(path)}]" if looked else ""
        extensible = "NULL" if first in new else _field(_PARSED, [first, *rest], "string")
        other = _field(f"{OBJECT}[{literal(first)}]", rest, "string")
        read[column] = expr(f"CASE {found} WHEN {EXTENSIBLE} THEN {extensible} ELSE {other} END")
    return frame.withColumns(read).drop(_TRIMMED, _PARSED, _WHOLE)


def _field(variant: str, names: Sequence[str], kind: str = "variant") -> str:
    quotes = ["'" if '"' in name else '"' for name in names]
    path = "".join(f"[{quote}{name}{quote}]" for quote, name in zip(quotes, names, strict=True))
    return f"try_variant_get({variant}, {literal('$' + path)}, '{kind}')"


def members(values: Mapping[str, str]) -> str:
    """An expression for the text of fields, each with a comma before it; those that are null are left out."""
    text = f"to_json(named_struct({', '.join(f'{literal(name)}, {value}' for name, value in values.items())}))"
    return f"CASE WHEN {text} = '{{}}' THEN '' ELSE ',' || substring({text}, 2, length({text}) - 2) END"


def extended(more: str) -> str:
    """An expression for data that are EXTENSIBLE, with a text of `members` after their last field."""
    return f"concat({_OPENED}, CAST({more} || '}}' AS BINARY))"


def replaced(values: Mapping[str, str]) -> str:
    """An expression for OBJECT with fields, in the place of those of the same names; without those that are null."""
    none = "CAST(map() AS MAP<STRING, VARIANT>)"
    each = (f"CASE WHEN {value} IS NULL THEN {none} ELSE map({literal(name)}, {value}) END"
            for name, value in values.items())  # fmt: skip
    return f"map_concat({OBJECT}, {', '.join(each)})"


def _trimmed() -> str:
    """Data without trailing blanks, as bytes: characters would have to be counted."""
    blanks = "rtrim(CAST(data AS STRING))"  # of all four kinds it takes much longer, and few data need it
    ends = f"substring(CAST({blanks} AS BINARY), -1, 1) IN (X'09', X'0A', X'0D')"
    every = f"rtrim(CAST(X'09200A0D' AS STRING), {blanks})"
    return f"CAST(CASE WHEN {ends} THEN {every} ELSE {blanks} END AS BINARY)"


def _parsed(data: str) -> str:
    return f"try_parse_json(CAST({data} AS STRING))"


def _whole() -> str:
    """Data in front of a mark, as an array: data beyond its end cannot be read, or not up to the mark."""
    return _parsed(f"concat(CAST('[' AS BINARY), data, CAST(',\"{_MARK}\"]' AS BINARY))")


def _if_whole(made: str) -> str:
    """An expression for data with nothing after the end. Where there is nothing to look at, it ends at once:
    AND would go on to look through all of the data, since NULL AND FALSE is FALSE.
    """
    ended = f"try_variant_get({_WHOLE}, '$[1]', 'string') = '{_MARK}'"
    return f"CASE WHEN {_WHOLE} IS NULL THEN NULL WHEN {ended} AND is_valid_utf8(CAST(data AS STRING)) THEN {made} END"


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
