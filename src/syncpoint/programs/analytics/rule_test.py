"""Rules of a back-test: which stored messages rules would have selected, and what their actions would have made.

Place: beside `back_test`, which counts what is selected; rules are compiled to Spark's own expressions
(`rules.spark_rules`), which judge as the server does.
Promise: as for a subscription, all rules without an action select together, and each rule with one makes a copy of what
it selects. A message that a rule fails at is counted for it, and not selected by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.correlation import correlation
from syncpoint.base.rules.spark_rules import SparkRules
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.sql_values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN: Final = 3
"""Copies that are shown of each rule, the oldest first."""
RULE_COLUMNS: Final = ("message_id", "source", "offset", "publish_time", "attributes", "ordering_key")


@dataclass(frozen=True, slots=True)
class CandidateRule:
    """`sql` "": all messages; `action` "": they stay as they are; `correlation`: a filter instead of `sql`."""

    name: str
    sql: str = ""
    action: str = ""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    correlation: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its filter in words."""
        return self.sql or " AND ".join(f"{name} is {text!r}" for name, text in sorted(self.correlation.items()))


@dataclass(frozen=True, slots=True)
class RuleCopy:
    """What an action would have made of the attributes of a message."""

    message_id: str
    before: dict[str, str]
    after: dict[str, str]


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """Result of one rule: messages selected, messages that its filter or action failed for, and sample copies."""

    name: str
    sql: str
    action: str
    selected: int
    failed: int
    copies: tuple[RuleCopy, ...]


def check_rules(rules: Sequence[CandidateRule]) -> None:
    """Raises `InvalidArgument` for a rule that is none, or that Spark cannot say; loads no Spark."""
    _compiled(rules)


def with_rules(frame: DataFrame, rules: Sequence[CandidateRule]) -> DataFrame:
    """The frame, which has `RULE_COLUMNS`, with columns of each rule by its number: selects_N, fails_N, copy_N. Raises
    `InvalidArgument` for a rule that is none, or that Spark cannot say.
    """
    from pyspark.sql.functions import expr

    for step in _compiled(rules):
        frame = frame.withColumns({name: expr(text) for name, text in step.items()})
    return frame


def _compiled(rules: Sequence[CandidateRule]) -> list[dict[str, str]]:
    """Columns to add, step by step."""
    made = SparkRules()
    columns: dict[str, str] = {}
    for number, rule in enumerate(rules):
        try:
            wanted = correlation(rule.correlation).predicate() if rule.correlation else parse_filter(rule.sql or "1=1")
            condition = made.filter(wanted, rule.parameters)
            action = made.action(parse_action(rule.action), rule.parameters) if rule.action else None
        except InvalidArgument as error:
            raise InvalidArgument(rule.name, error.problem) from None
        fails = condition.fails or "false"
        selects, copy = condition.selects, "attributes"
        if action is not None:
            bad = action.fails or "false"
            fails = f"(coalesce({fails}, false) OR ({selects} AND coalesce({bad}, false)))"
            selects = f"({selects} AND NOT coalesce({bad}, false))"
            copy = action.attributes
        columns |= {
            f"selects_{number}": selects,
            f"fails_{number}": f"coalesce({fails}, false)",
            f"copy_{number}": copy,
        }
    return [*made.steps, columns]


def any_selects(rules: Sequence[CandidateRule]) -> str:
    """The condition that one of them selects a message."""
    return " OR ".join(f"selects_{number}" for number in range(len(rules)))


def outcomes(frame: DataFrame, rules: Sequence[CandidateRule]) -> tuple[RuleOutcome, ...]:
    """What each rule would have done, of a frame that `with_rules` has made."""
    from pyspark.sql import functions as F

    counts: Any = frame.agg(
        *(F.count_if(f"selects_{number}").alias(f"selected_{number}") for number in range(len(rules))),
        *(F.count_if(f"fails_{number}").alias(f"failed_{number}") for number in range(len(rules))),
    ).first()
    found = []
    for number, rule in enumerate(rules):
        copies: list[RuleCopy] = []
        if rule.action and counts[f"selected_{number}"]:
            chosen = frame.where(f"selects_{number}").orderBy("publish_time", "source", "offset").limit(SHOWN)
            rows = chosen.select("message_id", "attributes", F.col(f"copy_{number}").alias("copy")).collect()
            copies = [RuleCopy(row.message_id, dict(row.attributes or {}), dict(row["copy"] or {})) for row in rows]
        found.append(
            RuleOutcome(
                rule.name,
                rule.text,
                rule.action,
                counts[f"selected_{number}"],
                counts[f"failed_{number}"],
                tuple(copies),
            )
        )
    return tuple(found)
