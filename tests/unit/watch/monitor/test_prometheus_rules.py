"""What is generated for Prometheus and Grafana: promtool takes it, it fires when it should, and reads what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from syncpoint.base.runtime.shipped_pages import pages
from syncpoint.watch.metrics import prober_families
from syncpoint.watch.metrics.family import MetricKind
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.alert_rules import THRESHOLD_RULES, budget_rule
from syncpoint.watch.monitor.grafana_dashboards import PUBLISHERS, dashboards, expressions
from syncpoint.watch.monitor.indicators import Youngest
from syncpoint.watch.monitor.monitor_settings import RUNBOOKS
from syncpoint.watch.monitor.objectives import shipped
from syncpoint.watch.monitor.prometheus_rules import rules_file
from syncpoint.watch.monitor.sli_table import BY_NAME as SLI_BY_NAME
from syncpoint.watch.monitor.sli_table import SLIS

pytestmark = pytest.mark.shows("monitor", "dashboards")

ROOT = Path(__file__).resolve().parents[4]
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: make prometheus")
ERRORS = "UNAVAILABLE"


def promtool(*arguments: str | Path) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(rules_file(shipped(), RUNBOOKS))
    return path


def calls(code: str, per_minute: int) -> dict[str, str]:
    series = f'syncpoint_calls_total{{listener="clients",method="Publisher.Publish",code="{code}"}}'
    return {"series": series, "values": f"0+{per_minute}x25"}


@needs_promtool
def test_rules_pass_and_fire_as_the_server_does(rules: Path, tmp_path: Path) -> None:
    assert f"{sum(len(one['rules']) for one in yaml.safe_load(rules.read_text())['groups'])} rules found" in promtool(
        "check", "rules", rules
    )
    firing = [
        {
            "exp_labels": {"severity": "page", "slo": "publish-success"},
            "exp_annotations": {
                "summary": "Publish success: the error budget of 99.9% over 30 days burns too fast.",
                "runbook_url": f"{RUNBOOKS}#errorbudgetburnsfast",
            },
        }
    ]
    fast = budget_rule("page")
    tests = [
        {  # a tenth of all calls fails
            "interval": "1m",
            "input_series": [calls("OK", 90), calls(ERRORS, 10)],
            "alert_rule_test": [{"eval_time": "20m", "alertname": fast, "exp_alerts": firing}],
            "promql_expr_test": [
                {
                    "expr": 'round(1000 * max(slo:sli_error:ratio_rate1h{sloth_slo="publish-success"}))',
                    "eval_time": "20m",
                    "exp_samples": [{"labels": "{}", "value": 100}],
                }
            ],
        },
        {  # within the budget
            "interval": "1m",
            "input_series": [calls("OK", 100), calls(ERRORS, 0)],
            "alert_rule_test": [{"eval_time": "20m", "alertname": fast, "exp_alerts": []}],
        },
        {  # durability does not wait
            "interval": "10s",
            "input_series": [
                {
                    "series": 'syncpoint_disk_state{process="n",chain="0",disk="/d1",state="failed"}',
                    "values": "0 0 1 1 1",
                },
                {"series": 'up{job="syncpoint",process="n"}', "values": "1 1 0 0 0 0 0"},
            ],
            "alert_rule_test": [
                {"eval_time": "10s", "alertname": "DiskDead", "exp_alerts": []},
                {
                    "eval_time": "1m",
                    "alertname": "DiskDead",
                    "exp_alerts": [
                        {
                            "exp_labels": {"severity": "page", "process": "n", "chain": "0", "disk": "/d1"},
                            "exp_annotations": {
                                "summary": "Disk /d1 of chain 0 failed: it returned errors or hung. "
                                "Its server still runs.",
                                "runbook_url": f"{RUNBOOKS}#diskdead",
                            },
                        }
                    ],
                },
                {
                    "eval_time": "1m",
                    "alertname": "ProcessUnanswered",
                    "exp_alerts": [
                        {
                            "exp_labels": {"severity": "page", "process": "n", "job": "syncpoint"},
                            "exp_annotations": {
                                "summary": "Process n does not answer requests for its metrics.",
                                "runbook_url": f"{RUNBOOKS}#processunanswered",
                            },
                        }
                    ],
                },
            ],
        },
        {  # a prober says that something is not as expected, for longer than one run of it
            "interval": "10s",
            "input_series": [
                {
                    "series": f'syncpoint_prober_as_expected{{prober="P{number}",endpoint="e",metric="success"}}',
                    "values": f"1 {0 if number == 1 else 1}x15",
                }
                for number in (1, 2)
            ],
            "alert_rule_test": [
                {"eval_time": "80s", "alertname": "ProberUnexpected", "exp_alerts": []},
                {
                    "eval_time": "150s",
                    "alertname": "ProberUnexpected",
                    "exp_alerts": [
                        {
                            "exp_labels": {"severity": "page", "endpoint": "e"},
                            "exp_annotations": {
                                "summary": "Probes of e have failed for 90 s.",
                                "runbook_url": f"{RUNBOOKS}#proberunexpected",
                            },
                        }
                    ],
                },
            ],
        },
    ]
    check(tmp_path, *tests)


def check(folder: Path, *tests: dict[str, object]) -> None:
    """Have promtool play these."""
    path, one = folder / "test.yaml", folder / "one.yaml"
    one.write_text(rules_file(shipped()[:1], RUNBOOKS))  # all of them take promtool ten times as long
    content = {"rule_files": [str(one)], "evaluation_interval": "30s", "tests": list(tests)}
    path.write_text(yaml.safe_dump(content))
    promtool("test", "rules", path)


def firing(expression: str, at: str, *process: str) -> dict[str, object]:
    """At this time exactly these alerts of the expression fire, by one label."""
    label, query = expression.split(" ", 1)
    found = f'count by ({label}) (ALERTS{{{query}, alertstate="firing"}})'
    samples = [{"labels": f'{{{label}="{one}"}}', "value": 1} for one in process]
    return {"expr": found, "eval_time": at, "exp_samples": samples}


@needs_promtool
def test_what_follows_from_a_process_that_is_gone_is_no_alert(tmp_path: Path) -> None:
    budget, lacking = f'slo alertname="{budget_rule("page")}"', 'chain alertname="UnderReplicated"'
    up = {"series": 'up{job="syncpoint",process="s2"}', "values": "1x30 0x60"}
    served = [
        {
            "series": f'syncpoint_chain_disk{{process="p1",chain="{chain}",disk="/c2/d1",server="{server}"}}',
            "values": "1x90",
        }
        for chain, server in ((1, "s2"), (2, "s3"))
    ]
    late = [
        {"series": f'syncpoint_log_under_replicated_seconds{{process="p1",chain="{chain}"}}', "values": "0x30 100x60"}
        for chain in (1, 2)
    ]
    fails = 'syncpoint_calls_total{listener="clients",method="Publisher.Publish",code="UNAVAILABLE"}'
    well = {"series": fails.replace("UNAVAILABLE", "OK"), "values": "0+1000x90"}
    check(
        tmp_path,
        {
            "interval": "1m",
            "input_series": [up, *served, *late, well, {"series": fails, "values": "0x30 500 1000 1000x58"}],
            "promql_expr_test": [
                firing('process alertname="ProcessUnanswered"', "33m", "s2"),
                firing(budget, "33m"),
                firing(budget, "39m"),
                firing(lacking, "50m", "2"),
            ],
        },
        {  # clients go on failing
            "interval": "1m",
            "input_series": [up, well, {"series": fails, "values": "0x30 0+500x60"}],
            "promql_expr_test": [firing(budget, "35m"), firing(budget, "50m", "publish-success")],
        },
        {  # it is down for a moment again and again, which nobody is paged for
            "interval": "15s",
            "input_series": [
                {**up, "values": "1x30" + " 0 1 1 1" * 15},
                well,
                {"series": fails, "values": "0x30 0+500x60"},
            ],
            "promql_expr_test": [firing(budget, "20m", "publish-success")],
        },
    )


@needs_promtool
def test_what_follows_from_a_dead_disk_is_no_alert(tmp_path: Path) -> None:
    dead = 'syncpoint_disk_state{process="p1",chain="1",disk="/c2/d1",state="failed"}'
    given_up = [
        {
            "series": f'syncpoint_disk_failures_total{{process="p1",chain="1",disk="/c2/d{number}"}}',
            "values": "0x5 1x20",
        }
        for number in (1, 2)
    ]
    check(
        tmp_path,
        {
            "interval": "1m",
            "input_series": [{"series": dead, "values": "0x5 1x20"}, *given_up],
            "promql_expr_test": [firing('disk alertname=~"Disk.*"', "8m", "/c2/d1", "/c2/d2")],
        },
    )


def test_every_alert_has_a_runbook(rules: Path) -> None:
    page = pages()[RUNBOOKS.removeprefix("syncpoint docs ")].read_text()
    names = {one.name for one in THRESHOLD_RULES} | {budget_rule("page"), budget_rule("ticket")}
    assert names == set(re.findall(r"^## ([A-Z][A-Za-z]+)$", page, re.MULTILINE)) - {"A"}
    groups = yaml.safe_load(rules.read_text())["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule} == names


def test_the_page_of_indicators_has_all_ten_and_their_families() -> None:
    page = (ROOT / "docs/operations/slis.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (`.*`) \|", page, re.MULTILINE))
    assert {name: tuple(re.findall(r"`(\w+)`", families)) for name, families in rows.items()} == {
        one.name: one.families for one in SLIS
    }


def shown() -> dict[str, str]:
    """Names of samples, and the family each is of."""
    found = {}
    for one in (*FAMILIES, *prober_families.FAMILIES):
        ends = ("_bucket", "_count", "_sum") if one.kind is MetricKind.HISTOGRAM else ("",)
        found.update({one.name + end: one.name for end in ends})
    return found


def test_dashboards_are_what_grafana_reads_and_name_what_there_is() -> None:
    known = shown()
    for name, content in dashboards(tuple(shipped())).items():
        assert json.loads(json.dumps(content))["uid"] == name
        ids = [panel["id"] for panel in content["panels"]]
        assert len(ids) == len(set(ids))
        places = [tuple(panel["gridPos"].values()) for panel in content["panels"]]
        assert len(places) == len(set(places))
        for panel in content["panels"]:
            assert panel["type"] == "timeseries"
            assert panel["targets"]
            assert all(one["refId"] and one["datasource"]["type"] == "prometheus" for one in panel["targets"])
        for expression in expressions(content):
            named = set(re.findall(r"\b(?:syncpoint|pubsub|process)_[a-z_]+\b(?!\.\+)", expression))
            assert named <= known.keys(), expression
    assert len(PUBLISHERS.lines) == 5


@needs_promtool
def test_promtool_reads_every_expression_of_the_dashboards(tmp_path: Path) -> None:
    found = [one for content in dashboards(tuple(shipped())).values() for one in expressions(content)]
    found += [one.promql for one in SLIS]
    recorded = [
        {"record": f"test:{number}", "expr": one.replace("$__rate_interval", "5m")} for number, one in enumerate(found)
    ]
    path = tmp_path / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}, width=10_000))
    assert f"{len(found)} rules found" in promtool("check", "rules", path)


def test_the_same_panel_is_regrouped_by_topic_region_and_process() -> None:
    content = dashboards(tuple(shipped()))["syncpoint-publishing"]
    by_title = {panel["title"]: panel["targets"][0]["expr"] for panel in content["panels"]}
    rate = "(rate(syncpoint_topic_messages_total[$__rate_interval]))"
    assert by_title["Messages published"] == f"sum {rate}"
    for title, label in (("topic", "topic"), ("region", "region"), ("process", "process")):
        assert by_title[f"Messages published, by {title}"] == f"sum by ({label}) {rate}"


@needs_promtool
def test_only_subscriptions_with_subscribers_for_ten_minutes_are_late(tmp_path: Path) -> None:
    measure = SLI_BY_NAME["delivery-freshness"].measure
    assert isinstance(measure, Youngest)

    def series(name: str, subscription: str, values: str) -> dict[str, str]:
        return {
            "series": f'syncpoint_subscription_{name}{{project="p",subscription="{subscription}"}}',
            "values": values,
        }

    def found(at: str, *age: int) -> dict[str, object]:
        samples = [{"labels": "{}", "value": one} for one in age]
        return {"expr": measure.query, "eval_time": at, "exp_samples": samples}

    check(
        tmp_path,
        {
            "interval": "30s",
            "input_series": [
                series("oldest_unacked_age_seconds", "served", "40x80"),
                series("subscribers", "served", "2x80"),
                series("oldest_unacked_age_seconds", "alone", "9000x80"),
                series("subscribers", "alone", "0x80"),
                series("oldest_unacked_age_seconds", "now-and-then", "7000x80"),
                series("subscribers", "now-and-then", " ".join(["0x1 1x11"] * 6)),
            ],
            "promql_expr_test": [found("5m"), found("8m"), found("11m", 40), found("30m", 40)],
        },
    )
