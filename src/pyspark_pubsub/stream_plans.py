"""What a batch was planned to copy of a source that is not of the pubsub format: Spark's own Kafka source, or files.

Place: on the driver, when `flows_sink` commits; `numbered` in tasks. A target knows links by intervals of offsets,
whatever is read; here these intervals come from what Spark writes into the checkpoint before an epoch's first task.

    Kafka    a partition is a source and a chain of its own, its number plus one (a row of source 0 is of none), with
             Kafka's offsets. So the target knows by itself which records it has, and no checkpoint is needed. Offsets
             without a record (of compacted topics, of transactions) lie within the intervals like any other.
    files    an epoch is a source, and rows are numbered in it. So the checkpoint, which knows the files, is
             needed: `files_copied` and `checkpoint_id` say whether it is the one by which the target has copied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_pubsub.checkpoint import epoch_sources
from pyspark_pubsub.errors import OptionError, SchemaError
from pyspark_pubsub.offsets import Offsets

if TYPE_CHECKING:
    import pyarrow

    from pyspark_pubsub.flows_file import SharedFlow

KAFKA, FILES = "kafka", "files"
PART_BITS, ROW_BITS = 11, 28
"""How the number of a row from a file is made up: of its task in the epoch, and its place in that."""
_ROWS = 1 << PART_BITS + ROW_BITS


def planned(flow: SharedFlow, location: str, epoch: int) -> Offsets:
    """What an epoch was planned to copy of a flow that reads a stream. Raises OptionError."""
    if flow.stream == KAFKA:
        return _kafka(Offsets.from_json(json.loads(flow.at)), location, epoch)
    _make_lasting(Path(location), epoch)
    return files_plan(flow.topic, checkpoint_id(Path(location)), epoch)


def kafka_at(topic: str, cluster: str, topic_id: int, ends: Mapping[int, int]) -> Offsets:
    """A place in a topic of Kafka; `ends`: by partition."""
    return _by_source(Offsets(topic, topic_id, f"{KAFKA}:{cluster}", {}), ends, ends)


def partitions_of(offsets: Mapping[int, int]) -> dict[int, int]:
    """Offsets by source, by partition."""
    return {source - 1: offset for source, offset in offsets.items()}


def _kafka(start: Offsets, location: str, epoch: int) -> Offsets:
    """`start`: where the query's first epoch began. Partitions that have come since begin at their beginning."""
    before = _partitions(location, epoch - 1, start.topic) if epoch else partitions_of(start.sources)
    ends = _partitions(location, epoch, start.topic)
    return _by_source(start, {number: before.get(number, 0) for number in ends}, ends)


def _by_source(topic: Offsets, begins: Mapping[int, int], ends: Mapping[int, int]) -> Offsets:
    return replace(
        topic,
        sources={number + 1: end for number, end in ends.items()},
        begins={number + 1: begin for number, begin in begins.items()},
        places={number + 1: (0, number + 1) for number in ends},
    )


def _partitions(location: str, epoch: int, topic: str) -> dict[int, int]:
    (found,) = epoch_sources(location, epoch)
    try:
        return {int(number): int(offset) for number, offset in found[topic].items()}
    except (KeyError, ValueError, AttributeError) as error:
        raise OptionError(f"Epoch {epoch} has no offsets of the Kafka topic {topic}: {error!r}") from None


# -- files ---------------------------------------------------------------------------------------------------------


def files_plan(folder: str, checkpoint: str, epoch: int) -> Offsets:
    """The interval of an epoch that reads files."""
    source = epoch + 1
    return Offsets(folder, 0, f"{FILES}:{checkpoint}", {source: _ROWS}, {source: 0}, {source: (0, 1)})


def files_copied(sources: Iterable[int]) -> int:
    """How many epochs a target has, by the sources of its link."""
    return max(sources, default=0)


def checkpoint_id(checkpoint: Path) -> str:
    """The id that Spark gave a checkpoint; "": there is none. Raises OptionError."""
    try:
        found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(f"The checkpoint {checkpoint} cannot be read: {error!r}") from None
    return found


def epochs_planned(checkpoint: Path) -> int:
    """How many epochs a checkpoint knows."""
    return 1 + max((int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()), default=-1)


def _make_lasting(checkpoint: Path, epoch: int) -> None:
    """Have the disk what Spark has written of an epoch, before the target has the epoch: Spark does not wait for it."""
    places = [checkpoint, checkpoint / "offsets", checkpoint / "sources" / "0"]
    logged = [path for path in places[2].glob("*") if path.name.split(".")[0].isdigit()]
    newest = sorted(logged, key=lambda path: int(path.name.split(".")[0]))[-1:]
    for path in [checkpoint / "metadata", checkpoint / "offsets" / str(epoch), *newest, *places]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def numbered(batches: Iterator[pyarrow.RecordBatch], epoch: int, part: int) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one task, numbered anew in `source` and `offset`. Raises SchemaError when numbers do not suffice."""
    import numpy as np
    import pyarrow as pa

    if part >> PART_BITS:
        raise SchemaError(f"Files are copied in batches of at most {1 << PART_BITS} tasks; read fewer in a batch.")
    first = at = part << ROW_BITS
    for batch in batches:
        if at + batch.num_rows - first > 1 << ROW_BITS:
            raise SchemaError(f"A task has more than {1 << ROW_BITS} rows of files; read fewer files in a batch.")
        offsets = pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64))
        sources = pa.array(np.full(batch.num_rows, epoch + 1, dtype=np.int64))
        batch = batch.set_column(batch.schema.get_field_index("source"), "source", sources)
        yield batch.set_column(batch.schema.get_field_index("offset"), "offset", offsets)
        at += batch.num_rows
