"""Routing: the first true condition decides which topic of the target a message goes to.

Place: a step, after all that change data. Promise: a message goes to one topic, in the same epoch as all others, or,
where the task asks for it, to none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.steps.step import DROP, REASON, TOPIC, short_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RouteByCondition:
    """The step. `routes`: (condition in Spark SQL, full name of a topic); `otherwise`: a topic, DROP, or "" for the
    flow's own; `place`: of the key, for errors about conditions that Spark does not accept.
    """

    routes: tuple[tuple[str, str], ...]
    otherwise: str
    place: str
    repeatable: ClassVar = True
    look: ClassVar = None

    @property
    def summary(self) -> str:
        parts = [f"to {short_topic(topic)} where {condition}" for condition, topic in self.routes]
        if self.otherwise:
            parts.append("else dropped" if self.otherwise == DROP else f"else to {short_topic(self.otherwise)}")
        return ", ".join(parts)

    @property
    def diverts(self) -> bool:
        """Whether no message stays in the flow's own topic."""
        return bool(self.otherwise)

    @property
    def topics(self) -> tuple[str, ...]:
        last = (self.otherwise,) if self.otherwise not in ("", DROP) else ()
        return (*(topic for _, topic in self.routes), *last)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Set TOPIC; null where a message goes nowhere. Raises `InvalidArgument` naming a condition."""
        from pyspark.errors import AnalysisException
        from pyspark.sql.functions import col, expr, lit, when

        chosen = when(col(REASON).isNotNull(), col(TOPIC))
        for number, (condition, topic) in enumerate(self.routes):
            try:
                frame.where(condition)
            except AnalysisException as error:
                raise InvalidArgument(f"{self.place}.{number}.when", str(error).strip().splitlines()[0]) from None
            chosen = chosen.when(expr(condition), lit(topic))
        if not self.otherwise:
            last = col(TOPIC)
        else:
            last = lit(None).cast("string") if self.otherwise == DROP else lit(self.otherwise)
        return frame.withColumn(TOPIC, chosen.otherwise(last))
