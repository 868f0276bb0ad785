"""Functions of Spark's Python workers, which take and return arrays of Arrow, made of functions for one message.

Place: under the steps that run Python. Imported when a frame is built, as it needs pyarrow and PySpark. Annotations are
not put off here: PySpark reads them to learn what a function takes.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

STRINGS = pa.map_(pa.string(), pa.string())


def text_of(make: Callable[[], Callable[[bytes], str | None]], data: Column) -> Column:
    """A text, or null, for the data of each message. `make` is called in the worker, once for each batch."""

    def texts(values: pa.Array) -> pa.Array:
        function = make()
        return pa.array([function(one or b"") for one in values.to_pylist()], pa.string())

    return arrow_udf(texts, "string")(data)  # type: ignore[no-any-return]


def rewritten(make: Callable[[], Callable[[bytes, dict[str, str]], Any]], data: Column, attributes: Column) -> Column:
    """A struct of new data, new attributes, reason and detail for each message; `make` as above."""

    def rows(values: pa.Array, named: pa.Array) -> pa.Array:
        function = make()
        pairs = zip(values.to_pylist(), named.to_pylist(), strict=True)
        made = [function(one or b"", dict(some or ())) for one, some in pairs]
        return pa.StructArray.from_arrays(
            [
                pa.array([one[0] for one in made], pa.binary()),
                pa.array([list(one[1].items()) for one in made], STRINGS),
                pa.array([one[2] for one in made], pa.string()),
                pa.array([one[3] for one in made], pa.string()),
            ],
            names=["data", "attributes", "reason", "detail"],
        )

    kind = "struct<data:binary,attributes:map<string,string>,reason:string,detail:string>"
    return arrow_udf(rows, kind)(data, attributes)  # type: ignore[no-any-return]
