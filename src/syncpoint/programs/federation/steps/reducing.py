"""Reduction: fields and attributes are left out of messages.

Place: a step. Promise: a field that is to go is gone, or the message is refused: data that are no object, and a path
that leads through something that is not an object, are not passed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from syncpoint.programs.federation.steps.json_objects import NO_OBJECT, OBJECT, literal, names, with_object, written
from syncpoint.programs.federation.steps.step import REASON, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REFUSED = "ReductionFailed"
_NAMES = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
KEYS: dict[str, Any] = {
    "omit": {**_NAMES, "description": "Fields of the data to remove, such as `card` or `customer.card`."},
    "keep": {**_NAMES, "description": "Top-level fields of the data to keep; all others are removed."},
    "omit_attributes": {**_NAMES, "description": "Attributes to remove."},
}

_Tree = dict[str, "_Tree | None"]


@dataclass(frozen=True, slots=True)
class Reduce:
    """The step."""

    omit: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    omit_attributes: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    repeatable: ClassVar = True
    look: ClassVar = None

    @property
    def summary(self) -> str:
        parts = [f"omit {', '.join(self.omit)}"] if self.omit else []
        parts += [f"keep only {', '.join(self.keep)}"] if self.keep else []
        parts += [f"omit attributes {', '.join(self.omit_attributes)}"] if self.omit_attributes else []
        return "; ".join(parts)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Leave out what is named."""
        from pyspark.sql.functions import coalesce, col, expr, lit, map_filter, when

        if self.omit or self.keep:
            tree = _tree(self.omit)
            frame = with_object(frame)
            wrong = when(col(OBJECT).isNull(), lit(NO_OBJECT))
            blocked = [
                f"WHEN {test} THEN {literal(f'{path} is not an object')}" for path, test in _blocked(OBJECT, tree)
            ]
            if blocked:
                wrong = coalesce(wrong, expr(f"CASE {' '.join(blocked)} END"))
            frame = refuse(frame, REFUSED, wrong)
            kept = f"map_filter({OBJECT}, (k, v) -> k IN ({names(self.keep)}))" if self.keep else OBJECT
            smaller = written(expr(_without(kept, tree)))
            frame = frame.withColumn("data", when(col(REASON).isNull(), smaller).otherwise(col("data"))).drop(OBJECT)
        if self.omit_attributes:
            fewer = map_filter(col("attributes"), lambda name, _: ~name.isin(*self.omit_attributes))
            frame = frame.withColumn("attributes", when(col(REASON).isNull(), fewer).otherwise(col("attributes")))
        return frame


def _tree(paths: tuple[str, ...]) -> _Tree:
    """Paths as a tree; None: this field goes, whatever is in it."""
    root: _Tree = {}
    for path in sorted(paths, key=lambda one: one.count(".")):
        here = root
        *way, last = path.split(".")
        for name in way:
            inner = here.setdefault(name, {})
            if inner is None:
                break  # it goes with what it is in
            here = inner
        else:
            here[last] = None
    return root


def _without(outer: str, tree: _Tree) -> str:
    """An expression: the map without the entries of the tree."""
    gone = [name for name, inner in tree.items() if inner is None]
    left = f"map_filter({outer}, (k, v) -> k NOT IN ({names(gone)}))" if gone else outer
    deeper = {name: inner for name, inner in tree.items() if inner is not None}
    if not deeper:
        return left
    cases = " ".join(
        f"WHEN k = {literal(name)} AND {_is_object('v')} THEN"
        f" to_variant_object({_without('CAST(v AS MAP<STRING, VARIANT>)', inner)})"
        for name, inner in deeper.items()
    )
    return f"transform_values({left}, (k, v) -> CASE {cases} ELSE v END)"


def _is_object(value: str) -> str:
    return f"schema_of_variant({value}) LIKE 'OBJECT<%'"


def _blocked(outer: str, tree: _Tree, above: str = "") -> list[tuple[str, str]]:
    """(path, condition): the path leads through something that is there and is not an object."""
    found = []
    for name, inner in tree.items():
        if inner is None:
            continue
        value, path = f"{outer}[{literal(name)}]", f"{above}{name}"
        found.append((path, f"{value} IS NOT NULL AND NOT is_variant_null({value}) AND NOT ({_is_object(value)})"))
        nested = f"(CASE WHEN {_is_object(value)} THEN CAST({value} AS MAP<STRING, VARIANT>) END)"
        found += _blocked(nested, inner, f"{path}.")
    return found
