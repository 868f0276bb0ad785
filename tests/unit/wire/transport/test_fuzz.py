"""A small budget of the fuzzer in tests/fuzz/transport.py; run it by hand for a larger one."""

from __future__ import annotations

from tests.fuzz import transport as fuzz


def test_a_fixed_budget_of_mutated_streams() -> None:
    assert fuzz.run(900, seed=7) > 1_000_000
