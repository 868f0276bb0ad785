"""A small budget of the fuzzer in tests/fuzz/transport.py; run it by hand for a larger one."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def test_a_fixed_budget_of_mutated_streams() -> None:
    path = Path(__file__).parents[2] / "fuzz" / "transport.py"
    spec = importlib.util.spec_from_file_location("fuzz_transport", path)
    assert spec is not None
    assert spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    assert fuzz.run(900, seed=7) > 1_000_000
