"""Objectives: targets for the ten indicators, as files in the format OpenSLO v1 say them.

Place: read at a start; `slos.yaml` beside this file is what holds without a file of the operator's.
Promise: a file that is not understood whole is refused with the place of the mistake: nothing in it is passed over.
What is read is a part of OpenSLO, `openslo.schema.json`: one rolling window of days, one objective, an indicator of
ours by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncpoint.base.model.documents import check_document
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.histogram import SECONDS as BOUNDS
from syncpoint.watch.monitor.indicators import Quick, Youngest
from syncpoint.watch.monitor.sli_table import BY_NAME, ServiceLevelIndicator

DAY_S: Final = 86_400.0
WINDOW_S_MAX: Final = 35 * DAY_S
_DAYS: Final = {"d": 1, "w": 7}


class Objective(NamedTuple):
    """One SLO. `threshold`: up to which an event is good; 0 where the indicator has none."""

    name: str
    title: str
    description: str
    sli: ServiceLevelIndicator
    target: float
    threshold: float
    window_s: float

    @property
    def in_words(self) -> str:
        """Such as "99 % within 5 s over 30 days"."""
        within = f" within {self.threshold:g} s" if self.threshold else ""
        return f"{100 * self.target:.6g}%{within} over {self.window_s / DAY_S:g} days"


def shipped() -> list[Objective]:
    """What holds without a file."""
    from syncpoint.base.model.yaml_text import load_yaml_documents  # only where objectives are watched

    return objectives_of(load_yaml_documents(_beside("slos.yaml")), "slos.yaml", check=False)


def load_objectives(path: Path) -> list[Objective]:
    """Those of a file. Raises `InvalidArgument` with the place of the mistake, `OSError`."""
    import yaml

    from syncpoint.base.model.yaml_text import load_yaml_documents

    try:
        documents = list(load_yaml_documents(path.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(str(path), f"is not YAML: {error}") from None
    return objectives_of(documents, str(path))


def objectives_of(documents: Iterable[Any], place: str, *, check: bool = True) -> list[Objective]:
    """Documents as objectives. `check`: against the schema. Raises `InvalidArgument`."""
    found: dict[str, Objective] = {}
    for number, document in enumerate((one for one in documents if one is not None), 1):
        where = f"{place}, document {number}"
        if check:
            check_document(document, schema(), where, within="{place}: {path}")
        one = _objective(document, where)
        if one.name in found:
            raise InvalidArgument(f"{where}: metadata.name", f"{one.name} is defined twice")
        found[one.name] = one
    if not found:
        raise InvalidArgument(place, "has no objective")
    return list(found.values())


@cache
def schema() -> Mapping[str, Any]:
    """What is read of OpenSLO."""
    found: dict[str, Any] = json.loads(_beside("openslo.schema.json"))
    return found


def _objective(document: Mapping[str, Any], place: str) -> Objective:
    metadata, spec = document["metadata"], document["spec"]
    (goal,) = spec["objectives"]
    (window,) = spec["timeWindow"]
    sli = BY_NAME.get(spec["indicatorRef"])
    if sli is None:
        raise InvalidArgument(
            f"{place}: spec.indicatorRef", f"{spec['indicatorRef']!r} is unknown; choose from {', '.join(BY_NAME)}"
        )
    window_s = int(window["duration"][:-1]) * _DAYS[window["duration"][-1]] * DAY_S
    if window_s > WINDOW_S_MAX:
        raise InvalidArgument(f"{place}: spec.timeWindow", f"at most {WINDOW_S_MAX / DAY_S:g} days are kept")
    timeslices = isinstance(sli.measure, Youngest)
    if timeslices != (spec["budgetingMethod"] == "Timeslices"):
        needed = "Timeslices" if timeslices else "Occurrences"
        raise InvalidArgument(f"{place}: spec.budgetingMethod", f"{sli.name} requires {needed}")
    threshold = float(goal.get("value", sli.threshold))
    if not sli.threshold and "value" in goal:
        raise InvalidArgument(f"{place}: spec.objectives.0.value", f"{sli.name} has no threshold")
    if isinstance(sli.measure, Quick) and threshold not in BOUNDS:
        near = sorted(sorted(BOUNDS, key=lambda bound: abs(bound - threshold))[:2])
        raise InvalidArgument(
            f"{place}: spec.objectives.0.value",
            f"{threshold:g} s is not a bucket bound of the histogram; nearby bounds are {near[0]:g} and {near[1]:g}",
        )
    title = metadata.get("displayName") or sli.title
    return Objective(
        metadata["name"], title, spec.get("description", ""), sli, float(goal["target"]), threshold, window_s
    )


def _beside(name: str) -> str:
    return resources.files("syncpoint.watch.monitor").joinpath(name).read_text()
