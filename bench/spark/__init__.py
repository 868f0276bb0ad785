"""What do pipelines on Spark cost, and how long does a message wait in them? See `bench.spark.question`.

Tasks of Spark import their formats from here, so this file imports nothing.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """`python -m bench spark [--rows N] [--runs N] [--only CASE ...]`"""
    from bench.spark.question import main as question

    question(argv)
