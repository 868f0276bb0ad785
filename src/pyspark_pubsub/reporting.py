"""Failures as Spark shows them: one sentence of ours, without the lines of Python that led to it.

Place: around what Spark calls, on the driver and in tasks.
Promise: only failures that name the next step are shown so; any other keeps its traceback. All have theirs where
`spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled` is false. A worker of Spark ends once it has reported a
failure, so nothing else is shown without its traceback.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from pyspark_pubsub.errors import CallError, DataLossError, OptionError, SchemaError

EXPLAINED = (CallError, DataLossError, OptionError, SchemaError)
_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def explained() -> Iterator[None]:
    """Around work that Spark asked for."""
    try:
        yield
    except EXPLAINED:
        if "SPARK_SIMPLIFIED_TRACEBACK" in os.environ and os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def explaining(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method that Spark calls, with its failures shown so."""

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with explained():
            return function(*args, **kwargs)

    return called
