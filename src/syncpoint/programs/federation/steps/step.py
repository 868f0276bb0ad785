"""What a step of a pattern is, and how a link's steps follow each other.

Place: on Spark, after `where`, `select` and `python`, in front of the sink.
Promise: a row stays the row of its offset. A step may change its data, attributes and topic, or refuse it with a
reason; it neither adds rows nor changes their order. What a step has refused, later steps leave alone, so the letter
has the data that was refused. Refused rows are dropped, or go to a topic of the target in the same epoch as all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from syncpoint.base.model.limits import MESSAGE_ATTRIBUTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, DETAIL, TOPIC = "refused_reason", "refused_detail", "topic"
SIZE_READ = "bytes_read"
OBSERVED = "messages"
"""Name under which a query's progress has the counts of each batch."""
DETAIL_CHARS = 200  # an attribute has at most 1024 bytes
DROP = "drop"


JSON_FIELDS, JSON_END = "json_fields", "json_end"
"""The source's columns for a `JsonLook`: a map of the fields, and how many bytes are before the last bracket. Both are
null where only a parser can judge the data."""


@dataclass(frozen=True, slots=True)
class JsonLook:
    """What the source can look for in data while it reads them, which costs less than a parser: `fields` by paths of
    names with dots, and names that are not there.
    """

    fields: tuple[str, ...]
    without: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say what was found."""
        return (JSON_END, JSON_FIELDS) if self.fields else (JSON_END,)

    @property
    def options(self) -> dict[str, str]:
        """The options of the source for it."""
        return {"jsonFields": ",".join(self.fields), "jsonWithout": ",".join(self.without)}


class FrameStep(Protocol):
    """One step. `summary`: what it does, in a few words, without secrets; `repeatable`: whether it makes the same of
    the same message each time; `topics`: full names of topics of the target that rows may go to beside the flow's own;
    `look`: what helps it, when data come to it as they were read.
    """

    @property
    def summary(self) -> str: ...
    @property
    def repeatable(self) -> bool: ...
    @property
    def topics(self) -> tuple[str, ...]: ...
    @property
    def look(self) -> JsonLook | None: ...
    def apply(self, frame: DataFrame) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class StepChain:
    """The steps of a link, and where goes what they refuse: to a topic of the target, by its full name, or DROP."""

    steps: tuple[FrameStep, ...] = ()
    refused_to: str = DROP

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def summary(self) -> str:
        """For the plan."""
        refused = [f"refused messages to {short_topic(self.refused_to)}"] if self.refused_to != DROP else []
        return "; ".join([*(step.summary for step in self.steps), *refused])

    @property
    def repeatable(self) -> bool:
        """Whether all of them are."""
        return all(step.repeatable for step in self.steps)

    @property
    def diverts(self) -> bool:
        """Whether no message stays in the flow's own topic: each goes to one of `topics`, or nowhere."""
        return any(getattr(step, "diverts", False) for step in self.steps)

    @property
    def look(self) -> JsonLook | None:
        """What helps the first of them."""
        return self.steps[0].look if self.steps else None

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics beside the flow's own that rows may go to, in order."""
        found = [topic for step in self.steps for topic in step.topics]
        if self.refused_to != DROP:
            found.append(self.refused_to)
        return tuple(dict.fromkeys(found))

    def apply(self, frame: DataFrame, source_topic: Column, target_topic: Column, carried: Sequence[str]) -> DataFrame:
        """The carried columns of the rows that are to be written; with TOPIC where it is not that of the flow."""
        from pyspark.sql.functions import coalesce, col, count_if, length, lit, when
        from pyspark.sql.functions import count as count_rows
        from pyspark.sql.functions import sum as sum_of

        nothing = lit(None).cast("string")
        frame = frame.withColumns({REASON: nothing, DETAIL: nothing, TOPIC: target_topic, SIZE_READ: length("data")})
        for step in self.steps:
            frame = step.apply(frame)
        refused, passed = col(REASON).isNotNull(), col(REASON).isNull() & col(TOPIC).isNotNull()
        zero = lit(0).cast("bigint")
        frame = frame.observe(
            OBSERVED,
            count_rows(lit(1)).alias("read"),
            count_if(passed).alias("passed"),
            count_if(refused).alias("refused"),
            coalesce(sum_of(when(passed, col(SIZE_READ))), zero).alias("bytes_read"),
            coalesce(sum_of(when(passed, length("data"))), zero).alias("bytes_written"),
        )
        if self.refused_to == DROP:
            frame = frame.where(passed)
        else:
            letter = lettered(col("attributes"), col(REASON), col(DETAIL), source_topic, col("message_id"))
            frame = frame.withColumns(
                {
                    "attributes": when(refused, letter).otherwise(col("attributes")),
                    TOPIC: when(refused, lit(self.refused_to)).otherwise(col(TOPIC)),
                }
            ).where(col(TOPIC).isNotNull())
        return frame.select(*carried, TOPIC) if self.topics else frame.select(*carried)


def lettered(attributes: Column, reason: Column, detail: Column, source: Column, message_id: Column) -> Column:
    """A message's attributes as those of a dead letter: the names are the ones that the server writes itself. Where a
    message would have too many, it stays without them, as at the server.
    """
    from pyspark.sql.functions import coalesce, create_map, lit, map_concat, map_filter, size, substring, when

    about: Mapping[str, Column] = {
        "sys.DeadLetterReason": reason,
        "sys.DeadLetterErrorDescription": substring(coalesce(detail, lit("")), 1, DETAIL_CHARS),
        "sys.DeadLetterSource": source,
        "sys.DeadLetterMessageId": message_id,
    }
    kept = map_filter(attributes, lambda name, _: ~name.isin(*about))
    lettered = map_concat(kept, create_map(*(part for name, value in about.items() for part in (lit(name), value))))
    return when(size(lettered) <= MESSAGE_ATTRIBUTES_MAX, lettered).otherwise(attributes)


def refuse(frame: DataFrame, reason: str, detail: Column) -> DataFrame:
    """Mark the rows for which `detail` is not null, unless an earlier step has refused them."""
    from pyspark.sql.functions import coalesce, col, lit, when

    return frame.withColumns(
        {
            REASON: coalesce(col(REASON), when(detail.isNotNull(), lit(reason))),
            DETAIL: when(col(REASON).isNotNull(), col(DETAIL)).otherwise(detail),
        }
    )


def short_topic(topic: str) -> str:
    """A topic as P/T, for the plan."""
    return topic.removeprefix("projects/").replace("/topics/", "/")
