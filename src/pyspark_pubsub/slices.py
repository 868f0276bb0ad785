"""What a task is given: which messages to read, and where.

Place: made by `source` on the driver, pickled to Spark's Python workers, read there by `reading`. A module of its own,
without Arrow: the processes in which Spark plans and commits need none, and start sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_pubsub.options import ServerAccess

if TYPE_CHECKING:
    from pyspark_pubsub.chosen_schemas import Typed


@dataclass
class Slice(InputPartition):
    """One partition: offsets [begin, end) of a source, and all that is needed to read them elsewhere."""

    access: ServerAccess
    topic: str
    incarnation: int
    source: int
    begin: int
    end: int
    schema: StructType
    filter: str = ""
    origins: tuple[str, ...] = ()
    not_visited: str = ""
    skip_subscription: str = ""
    skip_snapshot: str = ""
    frame_bytes: int = 2 << 20
    prefetch: int = 1
    fail_on_data_loss: bool = True
    chain: int = 0
    flow: str = ""
    json_fields: tuple[str, ...] = ()
    json_without: tuple[str, ...] = ()
    typed: Typed | None = None


@dataclass
class SliceGroup(InputPartition):
    """One partition of several small pieces, read one after the other."""

    slices: list[Slice]
