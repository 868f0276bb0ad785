"""Labels: an attribute with the same value on every message of a flow, such as the region that it comes from.

Place: a step. Promise: the message's own value under this name is replaced. One that has as many
attributes as a message may have already, none of this name, goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from syncpoint.base.model.limits import MESSAGE_ATTRIBUTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Label:
    """The step."""

    name: str
    value: str
    topics: tuple[str, ...] = ()
    repeatable: ClassVar = True
    look: ClassVar = None

    @property
    def summary(self) -> str:
        return f"{self.name} = {self.value}"

    def apply(self, frame: DataFrame) -> DataFrame:
        """Set the attribute."""
        from pyspark.sql.functions import col, create_map, lit, map_concat, map_filter, size, when

        others = map_filter(col("attributes"), lambda name, _: name != self.name)
        labelled = map_concat(others, create_map(lit(self.name), lit(self.value)))
        fits = size(labelled) <= MESSAGE_ATTRIBUTES_MAX
        return frame.withColumn("attributes", when(fits, labelled).otherwise(others))
