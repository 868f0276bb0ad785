"""Intervals of what is read from Kafka and from files, by what Spark has written into a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pubsub import stream_plans as plans
from pyspark_pubsub.errors import OptionError, SchemaError
from pyspark_pubsub.flows_file import SharedFlow

OFFSETS_END = 10**12  # that a server takes


def planned_in(folder: Path, epoch: int, offsets: object) -> None:
    """As Spark writes the offsets of an epoch."""
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")


def flow(at: str = "", stream: str = plans.KAFKA) -> SharedFlow:
    return SharedFlow("f", "orders", "run", "projects/p/topics/t", at=at, stream=stream)


def test_an_epoch_of_kafka_goes_from_the_one_before_to_its_own_end(tmp_path: Path) -> None:
    at = json.dumps(plans.kafka_at("orders", "CL", 7, {0: 10, 1: 20}).to_json())
    planned_in(tmp_path, 0, {"orders": {"0": 15, "1": 20}})
    planned_in(tmp_path, 1, {"orders": {"0": 15, "1": 40, "2": 3}})  # a partition has come
    first = plans.planned(flow(at), str(tmp_path), 0)
    assert (first.begins, first.sources) == ({1: 10, 2: 20}, {1: 15, 2: 20})
    assert f"{first.universe}/{first.incarnation}" == "kafka:CL/7"
    second = plans.planned(flow(at), str(tmp_path), 1)
    assert (second.begins, second.sources) == ({1: 15, 2: 20, 3: 0}, {1: 15, 2: 40, 3: 3})
    assert second.places[3] == (0, 3), "a partition is a chain of its own"


def test_offsets_of_another_topic_are_refused(tmp_path: Path) -> None:
    planned_in(tmp_path, 0, {"others": {"0": 15}})
    with pytest.raises(OptionError, match="no offsets of the Kafka topic orders"):
        plans.planned(flow(json.dumps(plans.kafka_at("orders", "CL", 7, {0: 0}).to_json())), str(tmp_path), 0)


def test_an_epoch_of_files_is_an_interval_of_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "abc"}')
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "9.compact").write_text("")
    planned_in(tmp_path, 3, {"logOffset": 3})
    found = plans.planned(flow(stream=plans.FILES), str(tmp_path), 3)
    assert (found.begins, plans.files_copied(found.sources)) == ({4: 0}, 4)
    assert (found.universe, plans.epochs_planned(tmp_path)) == ("files:abc", 4)
    assert plans.checkpoint_id(tmp_path / "none") == ""
    assert plans.epochs_planned(tmp_path / "none") == 0


@given(
    st.integers(0, 1 << 40),
    st.integers(0, (1 << plans.PART_BITS) - 1),
    st.lists(st.integers(0, 5), max_size=5),
)
def test_rows_of_files_are_numbered_within_their_epoch_and_rise(epoch: int, part: int, sizes: list[int]) -> None:
    batches = [
        pa.record_batch({name: pa.array([0] * size, pa.int64()) for name in ("source", "offset")}) for size in sizes
    ]
    found = [n for one in plans.numbered(iter(batches), epoch, part) for n in one.column("offset").to_pylist()]
    whole = plans.files_plan("folder", "id", epoch)
    assert found == list(range(found[0], found[0] + sum(sizes))) if found else not sum(sizes)
    assert all(whole.begins[epoch + 1] <= n < whole.sources[epoch + 1] < OFFSETS_END for n in found)
    if found and part:
        others = plans.numbered(iter(batches), epoch, part - 1)
        assert found[0] > max(n for one in others for n in one.column("offset").to_pylist())


def test_numbers_that_do_not_suffice_are_said_so() -> None:
    with pytest.raises(SchemaError, match="at most"):
        list(plans.numbered(iter(()), 0, 1 << plans.PART_BITS))
