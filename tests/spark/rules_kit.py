"""Random messages and random rules, and what the server and Spark make of them, side by side.

    python -m tests.spark.rules_kit --messages 1000000 --rules 24 --seed 1

Filters are trees of the generators of `tests/unit/base/rules`, drawn by a seeded generator of this module; actions are
put together from statements. The server's side are the closures that servers evaluate rules with.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.spark_rules import SparkRules
from syncpoint.base.rules.sql_compile import compile_action, compile_filter
from syncpoint.base.rules.sql_parser import parse_action, parse_filter
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RuleMessage
from tests.unit.base.rules import reference

NAMES = ["a", "b", "B", "cc", "größe", "sys.To", "sys.TimeToLive", "x y", "k"]
SPELLINGS = [*NAMES, "A", "Cc", "CC", "GRÖSSE", "GRÖßE", "\u212a", "SYS.TO", "Sys.TimeToLive", "X Y"]
TEXTS = [
    "", "1", "2", "-3", "+3", "2.5", ".5", "2.", "1e1", "1e999", "1e-7", "0.1", "123456789.123", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "true", "False", "x", "x%", "ax_b", "o'hara", "ü", "üx\U0001f600",
    "1 ", " 1", "0x1", "1d", "NaN", "Infinity", "é", "a\nb", "$1", "0:1:0", "1.02:03:04.5", "-0:0:1", "99999999.0:0:0",
    "24:00", "26:3:4", "2026-03-01", "2026-03-01T10:20", "2026-03-01 10:20:30.1234567Z", "2026-02-30", "0000-01-01",
    "0001-01-01", "9999-12-31T23:59:59.999999Z", "2026-03-01T10:20:30+05:30", "2026-03-01T10:20:30-23:59",
    "2026-03-01T10:20:30+24:00", "0001-01-01T00:00:00+01:00", "2026-03-01T24:00", "7" * 64, "0" * 63 + "7", "0" * 65,
]  # fmt: skip
CONSTANTS = [*TEXTS, 0, 1, 2, 3, 9223372036854775807, 2.5, 0.5, 1e300, 1e-5, None, True, False]
PATTERNS = [
    "%",
    "",
    "x%",
    "%b",
    "a%b",
    "%x%",
    "_x_",
    "%_",
    "x!%",
    "!_%",
    "a_%b",
    "%1%:%",
    "ü_",
    "%\U0001f600",
    "a%_%b%",
]
SYSTEM = [
    "sys.To", "sys.MessageId", "sys.SessionId", "sys.EnqueuedTimeUtc", "sys.SequenceNumber", "sys.TimeToLive",
    "sys.ExpiresAtUtc", "sys.Label", "user.a", "p('b')", "newid()",
]  # fmt: skip
RELATIONS = ["=", "<>", "<", "<=", ">", ">="]


def filters(rng: random.Random, count: int) -> Iterator[str]:
    """Filters of all kinds."""
    for _ in range(count):
        yield reference.text(_condition(rng, rng.choice([0, 1, 2])))


def actions(rng: random.Random, count: int) -> Iterator[str]:
    """Actions of up to three statements."""
    for _ in range(count):
        found = []
        for _ in range(rng.choice([1, 2, 3])):
            name = rng.choice(
                ["a", "b", "cc", "[größe]", "k", "sys.To", "sys.TimeToLive", "[x y]", "new", "sys.MessageId"]
            )
            value = reference.text(_value(rng, rng.choice([0, 1, 2])))
            found.append(f"REMOVE {name}" if rng.random() < 0.2 else f"SET {name} = {value}")
        yield "; ".join(found)


def _condition(rng: random.Random, depth: int) -> reference.Tree:
    if depth and rng.random() < 0.7:
        op = rng.choice(["and", "or", "not"])
        return (op, *(_condition(rng, depth - 1) for _ in range(1 if op == "not" else 2)))
    match rng.randrange(8):
        case 0:
            return (
                rng.choice(["in", "not in"]),
                _value(rng, 1),
                [_value(rng, 0) for _ in range(rng.choice([1, 2, 4]))],
            )
        case 1:
            escape = rng.choice([None, None, ("constant", "!")])
            return (rng.choice(["like", "not like"]), _value(rng, 0), ("constant", rng.choice(PATTERNS)), escape)
        case 2:
            return (
                rng.choice(["is null", "is not null"]),
                rng.choice(["a", "b", "[größe]", "sys.To", "sys.TimeToLive"]),
            )
        case _:
            return (rng.choice(RELATIONS), _value(rng, rng.choice([0, 1, 2])), _value(rng, rng.choice([0, 0, 1])))


def _value(rng: random.Random, depth: int) -> reference.Tree:
    if depth and rng.random() < 0.6:
        if rng.random() < 0.15:
            return ("negative", ("property", rng.choice(["a", "b", "cc"])))
        return (rng.choice("+-*/%"), _value(rng, depth - 1), _value(rng, depth - 1))
    draw = rng.random()
    if draw < 0.55:
        return ("property", rng.choice(["a", "b", "B", "cc", "größe", "[x y]", "k"]))
    if draw < 0.7:
        return ("property", rng.choice(SYSTEM))
    return ("constant", rng.choice(CONSTANTS))


def messages(rng: random.Random, count: int) -> list[RuleMessage]:
    """Messages with a few attributes, whose texts are often numbers, times and spans."""
    made = []
    for offset in range(count):
        attributes = {rng.choice(SPELLINGS): _text(rng) for _ in range(rng.choice([0, 1, 2, 3, 5]))}
        made.append(
            RuleMessage(
                attributes,
                rng.choice(["", "7", "m-1"]),
                rng.choice(["", "key", "a"]),
                rng.choice([0, 10**18, 1_772_409_600_123_456_000, rng.randrange(1 << 61)]) // 1000 * 1000,
                offset,
            )
        )
    return made


def _text(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.5:
        return rng.choice(TEXTS)
    if draw < 0.65:
        return str(rng.randrange(-1000, 1000))
    if draw < 0.8:
        return repr(rng.choice([rng.uniform(-1e3, 1e3), rng.lognormvariate(0, 40), rng.random() / 3]))
    if draw < 0.9:
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(1 << 32))).isoformat()
    return f"{rng.randrange(3)}.{rng.randrange(24)}:{rng.randrange(60)}:{rng.randrange(60)}"


def new_ids(message: RuleMessage) -> Any:
    """What `newid()` is on Spark, for messages of source 1."""

    def new_id(number: int) -> str:
        found = hashlib.md5(f"1/{message.offset}/{number}".encode()).hexdigest()
        return f"{found[:8]}-{found[8:12]}-4{found[13:16]}-a{found[17:20]}-{found[20:]}"

    return new_id


def table(made: Sequence[RuleMessage]) -> pa.Table:
    """Messages as the columns that rules see."""
    times = [one.publish_time_ns // 1000 for one in made]
    return pa.table(
        {
            "message_id": pa.array([one.message_id for one in made], pa.string()),
            "source": pa.array([1] * len(made), pa.int64()),
            "offset": pa.array([one.offset for one in made], pa.int64()),
            "publish_time": pa.array(times, pa.timestamp("us", "UTC")),
            "attributes": pa.array([list(one.attributes.items()) for one in made], pa.map_(pa.string(), pa.string())),
            "ordering_key": pa.array([one.ordering_key for one in made], pa.string()),
        }
    )


def by_server_filter(text: str, made: Sequence[RuleMessage], **parameters: Any) -> list[str]:
    """t, f, u (unknown) or x (fails) for each message."""
    evaluate = compile_filter(parse_filter(text), parameters)
    found = []
    for one in made:
        try:
            truth = evaluate(one, new_ids(one))
            found.append("u" if truth is None else "t" if truth else "f")
        except RuleError:
            found.append("x")
    return found


def by_server_action(text: str, made: Sequence[RuleMessage]) -> list[dict[str, str] | None]:
    """The attributes, or None where it fails."""
    act = compile_action(parse_action(text))
    found: list[dict[str, str] | None] = []
    for one in made:
        try:
            found.append(act(one, new_ids(one)))
        except RuleError:
            found.append(None)
    return found


def with_steps(frame: Any, steps: Sequence[dict[str, str]]) -> Any:
    """The frame with the columns that compiled rules need."""
    from pyspark.sql.functions import expr

    for step in steps:
        frame = frame.withColumns({name: expr(text) for name, text in step.items()})
    return frame


def on_spark(
    spark: Any, made: Sequence[RuleMessage], wanted: Sequence[str], acted: Sequence[str] = (), **parameters: Any
) -> tuple[list[list[str]], list[list[dict[str, str] | None]], str]:
    """Outcomes of filters and of actions for each message, as the functions above, and the plan."""
    rules = SparkRules()
    columns = []
    for number, text in enumerate(wanted):
        found = rules.filter(parse_filter(text), parameters)
        fails = f"WHEN {found.fails} THEN 'x'" if found.fails else ""
        truth = f"CASE {fails} WHEN {found.truth} THEN 't' WHEN NOT {found.truth} THEN 'f' ELSE 'u' END"
        columns.append(f"{truth} AS filter{number}")
    for number, text in enumerate(acted):
        action = rules.action(parse_action(text))
        columns.append(f"{action.attributes} AS action{number}")
        columns.append(f"{action.fails or 'false'} AS fails{number}")
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(
            table(made), f"{folder}/messages.parquet"
        )  # read from a file, plans are compiled, as on a stream
        frame = with_steps(spark.read.parquet(folder), rules.steps).selectExpr("offset", *columns)
        plan = frame._jdf.queryExecution().toString()
        arrow = frame.toArrow().sort_by("offset")
    outcomes = [arrow[f"filter{number}"].to_pylist() for number in range(len(wanted))]
    results = []
    for number in range(len(acted)):
        failed = arrow[f"fails{number}"].to_pylist()
        maps = arrow[f"action{number}"].to_pylist()
        results.append([None if bad else dict(one) for bad, one in zip(failed, maps, strict=True)])
    return outcomes, results, plan


def sayable(texts: Iterator[str], *, action: bool = False) -> list[str]:
    """Those that Spark can say and the parser takes."""
    found = []
    for text in texts:
        try:
            if action:
                SparkRules().action(parse_action(text))
            else:
                SparkRules().filter(parse_filter(text))
        except InvalidArgument:
            continue
        found.append(text)
    return found


def differences(spark: Any, made: Sequence[RuleMessage], wanted: Sequence[str], acted: Sequence[str]) -> list[str]:
    """What server and Spark say differently, in words; and any Python in the plan."""
    outcomes, results, plan = on_spark(spark, made, wanted, acted)
    found = [f"{word} in the plan" for word in ("Python", "InArrow", "InPandas") if word in plan]
    for text, ours in zip(wanted, outcomes, strict=True):
        theirs = by_server_filter(text, made)
        found += [f"{text}: server {a}, Spark {b}: {m}" for a, b, m in zip(theirs, ours, made, strict=True) if a != b][
            :3
        ]
    for text, changed in zip(acted, results, strict=True):
        wished = by_server_action(text, made)
        found += [
            f"{text}: server {a}, Spark {b}: {m}" for a, b, m in zip(wished, changed, made, strict=True) if a != b
        ][:3]
    return found


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="tests.spark.rules_kit")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rules", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    from syncpoint.programs.federation.session import session

    spark = session("rules", "local[2]", {"spark.driver.memory": "1500m"})
    rng = random.Random(given.seed)
    at, compared, outcomes = 0, 0, 0
    begun = time.monotonic()
    while at < given.messages:
        made = messages(rng, min(50_000, given.messages - at))
        wanted = sayable(filters(rng, given.rules))
        acted = sayable(actions(rng, given.rules // 3), action=True)
        wrong = differences(spark, made, wanted, acted)
        if wrong:
            raise SystemExit("\n".join(wrong))
        at, compared = at + len(made), compared + len(wanted) + len(acted)
        outcomes += len(made) * (len(wanted) + len(acted))
        print(
            f"{at:,} messages, {compared} rules, {outcomes:,} outcomes: the same, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main()
