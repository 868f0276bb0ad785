"""The user's page and the code name the same options."""

import re
from pathlib import Path

from pyspark_pubsub.options import OPTIONS
from pyspark_pubsub.schema import TYPES

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def test_every_option_and_alias_is_on_the_page_and_no_other():
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") >= 5]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named == {spelling for option in OPTIONS for spelling in (option.name, *option.aliases)}


def test_every_column_is_on_the_page():
    assert all(name in PAGE for name in TYPES)
