"""Columns that no message has, in conditions of a federation file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.condition_columns import unknown_columns
from syncpoint.programs.federation.transform import CARRIED

GOOD = [
    "attributes['kind'] = 'order' AND NOT (ordering_key IS NULL OR data = X'00')",
    "CAST(CAST(data AS STRING) AS DECIMAL(10, 2)) BETWEEN 1.5 AND 2e3",
    "publish_time > current_timestamp - INTERVAL 2 DAYS AND extract(HOUR FROM publish_time) < 12",
    "publish_time >= TIMESTAMP '2026-01-31 12:00:00' AND data::string RLIKE \"a 'b' c\"",
    "exists(visited, v -> v = 'eu') AND aggregate(visited, 0, (total, one) -> total + length(one)) > 3",
    "get_json_object(CAST(data AS STRING), '$.customer') IN ('it''s', 'b\\'c') -- region",
    "CASE WHEN `source` % 2 = 0 THEN true ELSE false END /* tier */",
    "from_json(CAST(data AS STRING), 'amount INT').amount > 3 AND Offset > 1L",
    "CAST(data AS STRUCT<a: INT>).a = 1",
    "data IN (SELECT payload FROM other)",
    "date_diff(DAY, publish_time, current_date()) < 3 AND named_struct('x', 1).x = 1",
    "rand(seed => 3) < 0.5 AND ordering_key COLLATE UTF8_LCASE = 'a'",
    "map_concat(attributes, map('region', 'a'))",
    "array_contains(array(1, 2), size(visited)) AND if(origin = 'eu', 1, 0) = struct(1).col1",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_may_be_something_else_is_left_to_spark(text: str) -> None:
    assert list(unknown_columns(text, CARRIED)) == []


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("attribute['region'] = 'eu'", ["attribute"]),
        ("region = 'eu' AND attributes['kind'] = tier", ["region", "tier"]),
        ("`tier` = 1 OR upper(kind) = 'A'", ["tier", "kind"]),
        ("exists(visited, v -> v = w)", ["w"]),
        ("customer.name = 'x'", ["customer"]),
    ],
)
def test_names_that_can_only_be_columns_are_found(text: str, columns: list[str]) -> None:
    assert list(unknown_columns(text, CARRIED)) == columns


FILE = """version: 1
clusters: {a: {endpoint: "127.0.0.1:1"}, b: {endpoint: "127.0.0.1:2"}}
tasks:
  split:
    pattern: route
    from: {cluster: a, topic: projects/p/topics/orders}
    to: {cluster: b}
    where: "WHERE"
    routes:
      - {when: "WHEN", topic: projects/p/topics/vip}
    otherwise: drop
"""


@pytest.mark.parametrize(
    ("where", "when", "says"),
    [
        ("attribute['x'] = 'y'", "true", "split.where: messages have no column attribute: did you mean attributes?"),
        (
            "true",
            "tier = 'gold'",
            "split.routes.0.when: messages have no column tier: for an attribute write",
        ),
    ],
)
def test_validate_names_the_condition_and_the_column(tmp_path: Path, where: str, when: str, says: str) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(FILE.replace("WHERE", where).replace("WHEN", when))
    done = CliRunner().invoke(cli, ["federation", "validate", str(file)])
    assert done.exit_code == 1, done.output
    assert says in done.output
    file.write_text(FILE.replace("WHERE", "true").replace("WHEN", "attributes['tier'] = 'gold'"))
    assert CliRunner().invoke(cli, ["federation", "validate", str(file)]).exit_code == 0
