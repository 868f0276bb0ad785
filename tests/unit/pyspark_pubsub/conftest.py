"""A twin of the server for every test that asks for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_pubsub.rpc import close_idle

sys.path.insert(0, str(Path(__file__).parent))

from pubsub_twin import Running, Twin  # a helper beside the tests; they are imported by path


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    """Connections are kept between calls, but not between tests."""
    yield
    close_idle()


@pytest.fixture
def running() -> Iterator[Running]:
    """A twin with one topic, behind a port."""
    twin = Twin()
    twin.topic()
    with Running(twin) as found:
        yield found
