"""What happens to messages on their way: SQL rules, a condition, new values, a function of the user's.

Place: on Spark, between the source and the sink. Promise: a row stays the row of its offset; rows may be left out, and
data, attributes and ordering key changed, nothing else. So what is committed at the target is exact whatever this does.
Where nothing is to happen, a row is a block of messages, as the one server sent it and the other takes it: no message
becomes a row.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_rules import applied
from syncpoint.programs.federation.spec import FieldChange
from syncpoint.programs.federation.steps.step import JsonLook

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED = ("message_id", "source", "offset", "publish_time", "data", "attributes", "ordering_key", "origin", "visited")
UNTOUCHED = ("source", "block")


FLOW = "flow"
"""The column with the flow of a row, where several share a query."""


class FlowsUnknown(Exception):
    """A function has left no column `flow`: flows that use it cannot share a query."""


def columns(link: FederationLink, *, shared: bool = False) -> tuple[str, ...]:
    """What is to be read for what a link changes. `shared`: by several flows in one query."""
    wanted = UNTOUCHED if link.unchanged else CARRIED
    look = looked_for(link)
    return (*wanted, *(look.columns if look is not None else ()), *((FLOW,) if shared else ()))


def looked_for(link: FederationLink) -> JsonLook | None:
    """What the source is to look for in the data of a link's messages, whose steps have them as they were read."""
    return link.steps.look if link.change.unchanged else None


def prepared(frame: DataFrame, link: FederationLink, flow: Flow | None) -> DataFrame:
    """The frame as the sink takes it: changed, and after the steps of the pattern; of one flow, or (None) of those
    that share it. Raises `InvalidArgument`, FlowsUnknown.
    """
    frame = changed(frame, link.change, flow.name if flow is not None else link.name)
    if not link.steps:
        return frame
    from pyspark.sql.functions import concat, lit, substring

    if flow is not None:
        return link.steps.apply(frame, lit(flow.source_topic), lit(flow.target_topic), CARRIED)
    short = substring(frame[FLOW], len(link.name) + 2, 1024)
    source = concat(lit(f"projects/{link.source_project}/topics/"), short)
    head, *parts = f"projects/{link.target_project}/topics/{link.rename}".split("{topic}")
    target = concat(lit(head), *(column for part in parts for column in (short, lit(part))))
    return link.steps.apply(frame, source, target, (*CARRIED, FLOW))


def changed(frame: DataFrame, change: FieldChange, place: str) -> DataFrame:
    """The frame with `rules`, `where`, `select` and `python` applied, in this order. Raises `InvalidArgument`."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import expr

    if change.unchanged:
        return frame
    carried = (*CARRIED, FLOW) if FLOW in frame.columns else CARRIED
    if change.rules:
        frame = applied(frame, change.rules, change.rule_failure, f"{place}.rules")
    try:
        if change.where:
            frame = frame.where(change.where)
    except AnalysisException as error:
        raise InvalidArgument(f"{place}.where", _first_line(error)) from None
    try:
        frame = frame.withColumns({name: expr(value) for name, value in change.select.items()})
    except AnalysisException as error:
        raise InvalidArgument(f"{place}.select", _first_line(error)) from None
    if change.python:
        frame = function(change.python, place)(frame)
    missing = [name for name in CARRIED if name not in frame.columns]
    if missing:
        raise InvalidArgument(f"{place}.python", f"the function must keep the columns {', '.join(missing)}")
    if not set(carried) <= set(frame.columns):
        raise FlowsUnknown
    return frame.select(*carried)


def function(reference: str, place: str) -> Callable[[DataFrame], DataFrame]:
    """The function that module:function stands for. Raises `InvalidArgument`."""
    module, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{place}.python", f"{reference} cannot be imported: {error}") from None
    if not callable(found):
        raise InvalidArgument(f"{place}.python", f"{reference} is not a function")
    made: Callable[[DataFrame], DataFrame] = found
    return made


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
