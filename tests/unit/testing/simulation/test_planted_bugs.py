"""Planted bugs: every one finds in the shipped modules what it replaces, and puts it back."""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.planted_bugs import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_replaced_is_there(name: str) -> None:
    for _ in range(2):
        with PLANTED[name].patch():
            pass
