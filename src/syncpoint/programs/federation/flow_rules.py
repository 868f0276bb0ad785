"""SQL rules of a flow: Service Bus filters and actions, as the server evaluates them, as columns of Spark.

Place: `spec` reads and checks them with the file, without Spark; `transform` applies them to a frame.
Promise: rules are tried in their order, and the first that selects a message decides: its action changes the message.
What no rule selects is left out. A message on which rules fail, and that none selects, is never passed over unsaid:
`stop` ends the batch with the reason; `drop` means that the user wants it left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.limits import ATTRIBUTE_VALUE_BYTES_MAX
from syncpoint.base.rules.spark_rules import SparkAction, SparkRules
from syncpoint.base.rules.spark_values import NULL_TEXT, text_literal
from syncpoint.base.rules.sql_parser import parse_action, parse_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHOSEN, FAILURE = "rule_chosen__", "rule_failure__"
_CHANGED, _HERE = "rule_attributes__", "rule_here__"


@dataclass(frozen=True, slots=True)
class FlowRule:
    """`filter` "": all messages; `action` "": unchanged."""

    filter: str = ""
    action: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleColumns:
    """What rules come to on Spark: columns to add step by step, then those of the decision.

    `chosen`: the number of the rule that decides, or NULL; `failure`: what failed first, or NULL; `attributes`: of the
    message as it goes on, where a rule was chosen.
    """

    steps: tuple[Mapping[str, str], ...]
    chosen: str
    failure: str
    attributes: str


def compiled(rules: Sequence[FlowRule], place: str) -> RuleColumns:
    """Rules as Spark SQL. Raises `InvalidArgument`, with the place, for one that is none or that Spark cannot say."""
    made = SparkRules()
    chosen, failed, attributes = [], [], []
    for number, rule in enumerate(rules):
        try:
            condition = made.filter(parse_filter(rule.filter or "1=1"), rule.parameters)
            chosen.append(f"WHEN {condition.selects} THEN {number}")
            if condition.fails:
                failed.append(f"WHEN {CHOSEN} IS NULL AND {condition.fails} THEN {_words(number, 'filter')}")
        except InvalidArgument as error:
            raise InvalidArgument(f"{place}.{number}.filter", error.problem) from None
        if not rule.action:
            continue
        try:
            action = made.action(parse_action(rule.action), rule.parameters)
        except InvalidArgument as error:
            raise InvalidArgument(f"{place}.{number}.action", error.problem) from None
        attributes.append(f"WHEN {CHOSEN} = {number} THEN {action.attributes}")
        failed.append(f"WHEN {CHOSEN} = {number} AND {_fails(action)} THEN {_words(number, 'action')}")
    return RuleColumns(
        tuple(made.steps),
        f"CASE {' '.join(chosen)} END",
        f"CASE {' '.join(failed)} END" if failed else NULL_TEXT,
        f"CASE {' '.join(attributes)} ELSE attributes END" if attributes else "attributes",
    )


def applied(frame: DataFrame, rules: Sequence[FlowRule], on_failure: str, place: str) -> DataFrame:
    """The messages that the rules select, changed by their actions."""
    from pyspark.sql.functions import expr

    columns = frame.columns
    frame = with_decision(frame, compiled(rules, place))
    # Spark would move the condition below the steps, and write out each column of theirs wherever it is used: with a
    # column that it must not evaluate elsewhere it does not.
    frame = frame.withColumn(_HERE, expr("spark_partition_id()"))
    here = f"{_HERE} >= 0"
    if on_failure == "stop":
        # Raised where the row is judged: the batch ends, nothing of it is committed, and the flow reports this text.
        failing = f"raise_error(concat({text_literal(f'{place}: ')}, {FAILURE}, ' on message ', message_id))"
        frame = frame.where(f"CASE WHEN {FAILURE} IS NOT NULL THEN {failing} ELSE {CHOSEN} IS NOT NULL END AND {here}")
    else:
        frame = frame.where(f"{CHOSEN} IS NOT NULL AND {FAILURE} IS NULL AND {here}")
    return frame.withColumn("attributes", expr(_CHANGED)).select(*columns)


def with_decision(frame: DataFrame, rules: RuleColumns) -> DataFrame:
    """The frame with the columns CHOSEN and FAILURE, and the changed attributes beside the old ones."""
    from pyspark.sql.functions import expr

    steps = (*rules.steps, {CHOSEN: rules.chosen}, {FAILURE: rules.failure, _CHANGED: rules.attributes})
    for step in steps:
        frame = frame.withColumns({name: expr(text) for name, text in step.items()})
    return frame


def _fails(action: SparkAction) -> str:
    size = f"octet_length(array_join(map_values({action.attributes}), '')) > {ATTRIBUTE_VALUE_BYTES_MAX}"
    large = f"exists(map_values({action.attributes}), v -> octet_length(v) > {ATTRIBUTE_VALUE_BYTES_MAX})"
    return f"({action.fails} OR ({size} AND {large}))" if action.fails else f"({size} AND {large})"


def _words(number: int, part: str) -> str:
    return text_literal(f"the {part} of rule {number} fails")
