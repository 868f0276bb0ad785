"""Durations for clocks; those of the command line are tested with its values."""

from __future__ import annotations

import pytest

from syncpoint.base.model.durations import in_seconds


def test_durations_in_seconds() -> None:
    texts = ("200ms", "5s", "1.5m", "2h", "7d", "1h30m", "5s\n")
    assert [in_seconds(one) for one in texts] == [0.2, 5.0, 90.0, 7200.0, 604_800.0, 5400.0, 5.0]
    with pytest.raises(ValueError, match="'5 secs' is not a duration"):
        in_seconds("5 secs")
