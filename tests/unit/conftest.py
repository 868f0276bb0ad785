"""Properties are tried on machines that have much else to do: no example fails for the time that it took, and half of
the examples are left to `make test-long`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.examples import ALL, SOME


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile(
        "busy",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=True,
        max_examples=SOME if "not long" in config.option.markexpr else ALL,
    )
    settings.load_profile("busy")
