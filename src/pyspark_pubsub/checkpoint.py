"""What an epoch was planned to read, from the checkpoint's log of offsets.

Place: on the driver, when a sink with `link` commits; Spark has written the file before the epoch's first task began.
Promise: the file of one epoch alone is read, from any file system that Arrow knows by the location's scheme.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark_pubsub.errors import OptionError
from pyspark_pubsub.offsets import Offsets

FLOWS_VERSION = 2
_Plan = TypeVar("_Plan")


@dataclass(frozen=True)
class FlowPlan:
    """What a batch was planned to read of one flow, under one run of it."""

    run: str
    at: Offsets


def plans_to_json(plans: Mapping[str, FlowPlan]) -> dict[str, Any]:
    """Offsets of a stream of several flows: those that the batch which ends there reads, and no others."""
    return {
        "v": FLOWS_VERSION,
        "flows": {name: {"run": one.run, "at": one.at.to_json()} for name, one in plans.items()},
    }


def plans_from_json(value: Mapping[str, Any]) -> dict[str, FlowPlan]:
    """Raises ValueError for anything that `plans_to_json` does not give."""
    try:
        if value["v"] != FLOWS_VERSION:
            raise ValueError(f"offsets of version {value['v']!r}, not of flows, which have version {FLOWS_VERSION}")
        return {
            str(name): FlowPlan(str(one["run"]), Offsets.from_json(one["at"])) for name, one in value["flows"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these are not offsets of flows: {error!r}") from None


def planned_flows(location: str, epoch: int) -> dict[str, FlowPlan]:
    """What an epoch was planned to read of each flow. Raises OptionError."""
    return _planned(location, epoch, plans_from_json)


def planned_offsets(location: str, epoch: int) -> Offsets:
    """The offsets of the one pubsub source of a query. Raises OptionError when there is not exactly one source."""
    return _planned(location, epoch, Offsets.from_json)


def _planned(location: str, epoch: int, parse: Callable[[Mapping[str, Any]], _Plan]) -> _Plan:
    found = epoch_sources(location, epoch)
    if len(found) != 1:
        raise OptionError(
            f"The query reads {len(found)} sources; a stream that writes with `link` must read exactly one, a topic of"
            " the pubsub format."
        )
    try:
        return parse(found[0])
    except ValueError as error:
        raise OptionError(
            f"The source of a stream that writes with `link` must be of the pubsub format: {error}"
        ) from None


def epoch_sources(location: str, epoch: int) -> list[dict[str, Any]]:
    """How far each source of a query goes in an epoch, as the source itself wrote it. Raises OptionError."""
    path = f"{location.rstrip('/')}/offsets/{epoch}"
    try:
        return sources(_read(path))
    except OSError as error:
        raise OptionError(
            f"The sink cannot read {path} ({error.strerror or error}): a link needs the checkpoint to be readable from"
            " the driver's Python."
        ) from None


def sources(text: str) -> list[dict[str, Any]]:
    """The sources' offsets in a file of Spark's log: a version, a line about the batch, then a line for each source."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("v") or len(lines) < 2:
        raise OptionError("The checkpoint's log of offsets is not as Spark 4.3.0 writes it.")
    found = []
    for line in lines[2:]:
        value = json.loads(line) if line.startswith("{") else {}
        found.append(value if isinstance(value, dict) else {})
    return found


def _read(path: str) -> str:
    scheme = urlsplit(path).scheme
    if scheme in ("", "file"):
        local = unquote(urlsplit(path).path) if scheme else path
        with open(local, encoding="utf-8") as file:
            return file.read()
    from pyarrow import fs

    system, inside = fs.FileSystem.from_uri(path)
    with system.open_input_stream(inside) as stream:
        data: bytes = stream.read()
    return data.decode()
