"""A twin of the server for every test that asks for it."""

from collections.abc import Iterator

import pytest

from pyspark_pubsub.rpc import close_idle
from tests.unit.pyspark_pubsub.pubsub_twin import Running, Twin


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
