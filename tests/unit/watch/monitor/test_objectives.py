"""Objectives in the format of OpenSLO, and agreements by the month."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import yaml

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.watch.monitor.monitor_core import MEASURED, NO_DATA
from syncpoint.watch.monitor.monitor_settings import load_monitor, parse_monitor
from syncpoint.watch.monitor.objectives import load_objectives, objectives_of, shipped
from syncpoint.watch.monitor.sli_table import SLIS
from tests.unit.watch.monitor.conftest import BEGIN_S, Watched

SHIPPED = resources.files("syncpoint.watch.monitor").joinpath("slos.yaml").read_text()


def changed(old: str, new: str) -> list[object]:
    assert old in SHIPPED
    return list(yaml.safe_load_all(SHIPPED.replace(old, new, 1)))


def test_what_is_shipped_fits_the_schema_and_has_one_for_each_indicator() -> None:
    found = objectives_of(yaml.safe_load_all(SHIPPED), "slos.yaml")
    assert found == shipped()
    assert [one.sli.name for one in found] == [one.name for one in SLIS]
    (create,) = [one for one in found if one.name == "create-subscription-time"]
    assert create.threshold == 5.0
    assert create.in_words == "99% within 5 s over 30 days"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("kind: SLO", "kind: Service", "kind"),
        ("target: 0.999", "target: 1.5", "target"),
        ("indicatorRef: publish-success", "indicatorRef: nothing", "indicatorRef"),
        ("value: 0.25", "value: 0.4", "nearby bounds are 0.25 and 0.5"),
        ("duration: 30d", "duration: 60d", "timeWindow"),
        ("isRolling: true", "isRolling: false", "isRolling"),
        ("budgetingMethod: Timeslices", "budgetingMethod: Occurrences", "budgetingMethod"),
        ("target: 0.999", "target: 0.999, op: lte, value: 3", "no threshold"),
        ("service: syncpoint", "servise: syncpoint", "service"),
        ("{name: publish-latency,", "{name: publish-success,", "twice"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(old: str, new: str, place: str) -> None:
    with pytest.raises(InvalidArgument, match=place):
        objectives_of(changed(old, new), "slos.yaml")


def test_a_file_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SHIPPED.split("---")[0].replace("0.999", "0.95"))
    (tmp_path / "monitor.yaml").write_text(
        "objectives: mine.yaml\nsla:\n- {slo: publish-success, credits: [{below: 0.95, percent: 30}]}\n"
    )
    settings = load_monitor(tmp_path / "monitor.yaml")
    assert [one.target for one in settings.objectives] == [0.95]
    assert settings.agreements[0].credited(0.94) == 30
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(InvalidArgument):
        load_objectives(tmp_path / "empty.yaml")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("people: {ana: {mail: x}}", "people.ana"),
        ("people: {ana: {}}", "people.ana"),
        ("people: {ana: {email: a@b}}\non_call: {sites: [{name: z, people: [ana]}]}", "mail"),
        ("people: {ana: {command: [x]}}", "on_call"),
        ("people: {ana: {command: [x]}}\non_call: {sites: [{name: z, people: [bob]}]}", "bob"),
        ("people: {ana: {command: [x]}}\non_call: {sites: [{people: [ana], hours: 8-17}]}", "hours"),
        ("people: {ana: {command: [x]}}\non_call: {sites: [{people: [ana], timezone: Mars/North}]}", "timezone"),
        ("targets: [{url: 'file:///etc/passwd'}]", "targets.0.url"),
        ("sla: [{slo: nothing}]", "sla.0.slo"),
        ("objektives: x", "objektives"),
    ],
)
def test_mistakes_in_the_monitors_file_have_a_place(text: str, place: str) -> None:
    with pytest.raises(InvalidArgument, match=place):
        parse_monitor(yaml.safe_load(text))


def test_credits_follow_from_what_was_measured() -> None:
    watched = Watched()
    for code, number in {"OK": 985, "UNAVAILABLE": 15}.items():
        watched.add("syncpoint_calls_total", number, "clients", "Publisher.Publish", code)
    for _ in range(12):
        watched.look()
    found = watched.core.agreements("", watched.now_s)
    (line,) = found.lines
    assert (line.measured, line.events, line.percent, found.percent) == (0.985, 1000, 25.0, 25.0)
    assert not found.complete
    assert 0 < found.measured_ratio < 0.01  # the month was over for the most part before anybody measured
    quiet = watched.core.agreements("2020-01", watched.now_s)
    assert (quiet.complete, quiet.measured_ratio, quiet.lines[0].measured, quiet.percent) == (True, 0.0, None, 0.0)
    with pytest.raises(InvalidArgument, match="month"):
        watched.core.agreements("January", watched.now_s)


def test_what_was_counted_survives_a_crash_up_to_the_minute(tmp_path: Path) -> None:
    watched = Watched(path=str(tmp_path / "m.sqlite"))
    for _ in range(12):
        watched.add("syncpoint_calls_total", 10, "clients", "Publisher.Publish", "OK")
        watched.look()
    watched.restart()
    state = {one.objective.name: one for one in watched.core.objectives(BEGIN_S + 130)}
    assert state["publish-success"].state == MEASURED
    assert 50 <= state["publish-success"].events.total <= 120
    assert state["publish-latency"].state == NO_DATA
