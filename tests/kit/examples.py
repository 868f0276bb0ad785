"""How many examples and seeds are tried: all of them where tests marked `long` run, elsewhere a share."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

ALL, SOME = 100, 50  # the profiles' counts; hypothesis draws other examples in every run


def examples(most: int) -> int:
    """For a property that wants another number of examples than the profile has."""
    return most * settings.default.max_examples // ALL


def seeds(some: int, most: int) -> list[ParameterSet]:
    """So many seeds for `parametrize`; those behind the first `some` are marked `long`."""
    return [pytest.param(seed, marks=pytest.mark.long if seed >= some else ()) for seed in range(most)]
