"""Archive and restore: a topic as Parquet files with a manifest, and back.

Place: batch jobs on Spark over the `pubsub` format. An archive is made in parts of limited size, each finished (files
on the disk, manifest replaced) before the next begins, so it may be broken off and gone on with, and the next run adds
what is new. While it lags, a cursor at the server keeps what it has not read.
A restore publishes part after part, each once however often it is tried, with the ids, times and order of old; files
are held against their checksums first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.programs.federation import manifest as manifests
from syncpoint.programs.federation.flow_options import access
from syncpoint.programs.federation.manifest import ArchivePart, Manifest, Stretch
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.programs.federation.transform import CARRIED
from syncpoint.wire.protobuf.messages import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_PART = 500_000
_ANEW = "Start a new archive in another folder; run it more often, or increase the topic's retention."

OnProgress = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True, slots=True)
class Done:
    """What a run has done."""

    parts: int
    rows: int


def archive(
    spark: SparkSession,
    server: FederatedCluster,
    topic: str,
    folder: Path,
    on_progress: OnProgress,
    *,
    rows_per_part: int = ROWS_PER_PART,
) -> Done:
    """Add to the archive in `folder` what the topic has beyond it. Raises `FailedPrecondition` when the folder holds
    another topic, or messages are gone that it does not hold; `SyncpointError` when the server refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cursor = f"archive.{folder.resolve().name}"
    with Servers(patience_s=30.0) as servers:
        found = manifests.load(folder)
        request = pipeline.GetPositionsRequest(topic=topic, first=found is None)
        request.cursor.name = cursor
        for source, end in (found.reached() if found is not None else {}).items():
            request.processed.add(source=source, end=end)
        positions = servers.call(server, "LogReader.GetPositions", request)
        if found is None:
            found = Manifest(topic, positions.topic_incarnation, positions.universe, CARRIED)
        _check_same(found, positions, folder)
        if positions.lost:
            gaps = ", ".join(f"source {one.source}: {one.begin} to {one.end - 1}" for one in positions.lost)
            raise FailedPrecondition(f"messages of {topic} were deleted before they were archived: {gaps}. {_ANEW}")
        waiting = _waiting(found, positions)
        total, rows, parts = sum(one.end - one.begin for one in waiting), 0, 0
        on_progress(0, total)
        for stretches in _parts(waiting, rows_per_part):
            part = _write_part(spark, server, topic, folder, len(found.parts) + 1, stretches)
            found.parts.append(part)
            found.save(folder)
            rows, parts = rows + part.rows, parts + 1
            on_progress(rows, total)
            processed = pipeline.GetPositionsRequest(topic=topic)
            processed.cursor.name = cursor
            for source, end in found.reached().items():
                processed.processed.add(source=source, end=end)
            servers.call(server, "LogReader.GetPositions", processed)
        found.save(folder)
    return Done(parts, rows)


def restore(spark: SparkSession, server: FederatedCluster, folder: Path, topic: str, on_progress: OnProgress) -> Done:
    """Publish an archive to a topic that exists. Raises `FailedPrecondition` or `SyncpointError` when a file is
    missing or not what it was, before anything of its part is published.
    """
    found = manifests.load(folder)
    if found is None:
        raise NotFound(str(folder), f"{folder} has no manifest.json, so it is not an archive.")
    query = f"restore/{found.universe}/{found.incarnation}/{topic}"
    rows = 0
    on_progress(0, found.rows)
    for part in found.parts:
        manifests.verify_part(folder, part)
        if part.rows:
            frame = _in_order(spark, folder, part)
            options = {
                **access(server),
                "topic": topic,
                "keepIdentity": "true",
                "batchQuery": query,
                "batchEpoch": str(part.number),
            }
            frame.write.format("pubsub").mode("append").options(**options).save()
        rows += part.rows
        on_progress(rows, found.rows)
    return Done(len(found.parts), rows)


def _check_same(found: Manifest, positions: object, folder: Path) -> None:
    same = (found.topic, found.incarnation, found.universe)
    now = (positions.topic, positions.topic_incarnation, positions.universe)  # type: ignore[attr-defined]
    if same != now:
        raise FailedPrecondition(
            f"{folder} holds another topic ({found.topic}, number {found.incarnation} of server {found.universe}); "
            f"the command names {now[0]}, number {now[1]} of server {now[2]}. Choose another folder."
        )


def _waiting(found: Manifest, positions: object) -> list[Stretch]:
    """What the archive does not have, in the order of keys."""
    ends = found.ends()
    waiting = []
    for one in positions.sources:  # type: ignore[attr-defined]
        begin = ends.get(one.source, one.begin)
        if begin < one.begin:
            raise FailedPrecondition(
                f"offsets {begin} to {one.begin - 1} of source {one.source} of {found.topic} were deleted before they "
                f"were archived. {_ANEW}"
            )
        if begin < one.end:
            waiting.append(Stretch(one.source, begin, one.end, one.epoch, one.chain))
    return waiting


def _parts(waiting: Sequence[Stretch], rows_per_part: int) -> Iterator[tuple[Stretch, ...]]:
    """Stretches of about `rows_per_part` rows, without changing their order."""
    taken: list[Stretch] = []
    room = rows_per_part
    for one in waiting:
        begin = one.begin
        while begin < one.end:
            end = min(one.end, begin + room)
            taken.append(Stretch(one.source, begin, end, one.epoch, one.chain))
            room -= end - begin
            begin = end
            if not room:
                yield tuple(taken)
                taken, room = [], rows_per_part
    if taken:
        yield tuple(taken)


def _write_part(
    spark: SparkSession, server: FederatedCluster, topic: str, folder: Path, number: int, stretches: tuple[Stretch, ...]
) -> ArchivePart:
    options = {
        **access(server),
        "topic": topic,
        "columns": ",".join(CARRIED),
        "startingPosition": json.dumps({str(one.source): one.begin for one in stretches}),
        "endingPosition": json.dumps({str(one.source): one.end for one in stretches}),
    }
    frame = spark.read.format("pubsub").options(**options).load()
    path = folder / "parts" / f"{number:06}"
    shutil.rmtree(path, ignore_errors=True)  # of a run that was broken off
    frame.write.parquet(str(path))
    files = tuple(manifests.file_of(folder, one) for one in sorted(path.glob("*.parquet")))
    manifests.sync_folder(path)
    rows = spark.read.parquet(str(path)).count() if files else 0
    wanted = sum(one.end - one.begin for one in stretches)
    if rows != wanted:
        raise FailedPrecondition(f"part {number} has {rows} messages instead of {wanted}; it was discarded")
    return ArchivePart(number, rows, stretches, files)


def _in_order(spark: SparkSession, folder: Path, part: ArchivePart) -> DataFrame:
    """A part's rows as they were: sources in the order of keys, each by offset, over partitions in this order."""
    from itertools import chain

    from pyspark.sql.functions import create_map, lit

    frame = spark.read.parquet(*(str(folder / file.path) for file in part.files))
    places = {one.source: place for place, one in enumerate(part.stretches)}
    place = create_map(*(lit(value) for value in chain.from_iterable(places.items())))
    return (
        frame.withColumn("place", place[frame["source"]]).orderBy("place", "offset").drop("place", "source", "offset")
    )
