"""Less work for the garbage collector, in Spark's workers and nowhere else."""

import gc
import sys
from types import ModuleType, SimpleNamespace

import pytest

from pyspark_pubsub.gc_pause import spare_collections


@pytest.fixture
def frozen():
    """How many objects are out of collections: none before the test, and as before it again behind it."""
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield gc.get_freeze_count
    gc.unfreeze()
    if before:
        gc.freeze()


def started_as(monkeypatch, name):
    main = ModuleType("__main__")
    main.__spec__ = None if name is None else SimpleNamespace(name=name)
    monkeypatch.setitem(sys.modules, "__main__", main)


@pytest.mark.parametrize("name", [None, "pytest.__main__", "pyspark.sql.streaming.python_streaming_source_runner"])
def test_other_processes_are_left_alone(monkeypatch, frozen, name):
    started_as(monkeypatch, name)
    spare_collections()
    assert frozen() == 0


def test_a_worker_is_spared_what_it_has_imported_once(monkeypatch, frozen):
    started_as(monkeypatch, "pyspark.daemon")
    spare_collections()
    before = frozen()
    assert before > 1000
    kept = [[] for _ in range(5000)]
    spare_collections()
    assert frozen() <= before
    assert len(kept) == 5000
