"""`slo`, `alerts` and `dashboards`: what is asked, printed and written."""

import json

from syncpoint.wire.protobuf.messages import admin


def test_indicators_and_objectives_say_where_there_is_no_data(server, run, run_json):
    slis = [
        admin.Sli(name="publish-success", unit="ratio", state="MEASURED", value=0.97, events=1000),
        admin.Sli(name="router-assignment", unit="ratio", state="NOT_APPLICABLE"),
    ]
    slo = admin.Slo(name="publish-success", objective="99.9% over 30 days", state="MEASURED", good_ratio=0.97)
    slo.burn_rates.add(rate=30.0).window.FromSeconds(3600)
    server.answers["Admin.ListSlis"] = admin.ListSlisResponse(slis=slis)
    server.answers["Admin.ListSlos"] = admin.ListSlosResponse(slos=[slo])
    shown = run("slo", "list").stdout
    assert "97%" in shown
    assert "not applicable" in shown
    assert "30" in shown
    assert run_json("slo", "list")["slos"][0]["name"] == "publish-success"


def test_a_report_says_what_is_credited(server, run):
    line = {"slo": "publish-success", "promised": 0.999, "measured": 0.985, "events": 10, "credit_percent": 25}
    server.answers["Admin.GetSlaReport"] = admin.SlaReport(
        month="2026-11", lines=[{**line, "state": "MEASURED"}], credit_percent=25, measured_ratio=0.5
    )
    result = run("slo", "report", "--month", "2026-11")
    assert "98.5%" in result.stdout
    assert "measured for 50% of it; credit 25%" in result.stderr
    assert server.calls[-1][1].month == "2026-11"


def alert(**more):
    one = admin.Alert(alert="a1", rule="DiskDead", severity="PAGE", summary="Disk /d1.", **more)
    one.start_time.FromSeconds(1_790_000_000)
    one.events.add(text="ana was notified (fired)").time.FromSeconds(1_790_000_001)
    return one


def test_a_page_that_nobody_looks_after_ends_with_1(server, run):
    server.answers["Admin.ListAlerts"] = admin.ListAlertsResponse(alerts=[alert(state="FIRING")])
    result = run("alerts", "list")
    assert result.exit_code == 1
    assert "DiskDead" in result.stdout
    server.answers["Admin.ListAlerts"] = admin.ListAlertsResponse(alerts=[alert(state="ACKNOWLEDGED")])
    assert run("alerts", "list").exit_code == 0
    history = run("alerts", "history", "--limit", "5")
    assert "ana was notified (fired)" in history.stderr
    assert server.calls[-1][1].page_size == 5
    server.answers["Admin.ListAlerts"] = admin.ListAlertsResponse()
    assert "No active alerts." in run("alerts", "list").stderr


def test_what_follows_from_an_alert_is_counted_under_it(server, run):
    under = admin.Alert(alert="a2", rule="DiskGivenUp", state="FIRING", follows="ProcessUnanswered of c2", cause="a1")
    server.answers["Admin.ListAlerts"] = admin.ListAlertsResponse(alerts=[alert(state="ACKNOWLEDGED"), under])
    short = run("alerts", "list")
    assert "DiskGivenUp" not in short.stdout
    assert "1 alert that follow from these: --all lists them." in short.stderr
    assert "firing, follows" in run("alerts", "list", "--all").stdout


def test_acknowledging_and_silencing(server, run):
    server.answers["Admin.AcknowledgeAlert"] = alert(state="ACKNOWLEDGED", acknowledged_by="ana", runbook="x#diskdead")
    assert "Runbook: x#diskdead" in run("alerts", "ack", "a1", "--by", "ana").stderr
    server.answers["Admin.CreateSilence"] = admin.Silence(silence="s1")
    assert "Silence s1" in run("alerts", "silence", "Disk*", "--label", "chain=0", "--for", "2h").stderr
    asked = server.calls[-1][1].silence
    assert (asked.rule, dict(asked.labels)) == ("Disk*", {"chain": "0"})
    assert run("alerts", "silence", "Disk*", "--for", "soon").exit_code == 2
    assert run("alerts", "silence", "Disk*", "--label", "chain", "--for", "1h").exit_code == 2


def test_dashboards_are_written(run, tmp_path):
    said = run("dashboards", "export", str(tmp_path / "d")).stderr
    names = {path.name for path in (tmp_path / "d").iterdir()}
    assert f"{len(names)} dashboards" in said
    assert "syncpoint-overview.json" in names
    assert json.loads((tmp_path / "d" / "syncpoint-probers.json").read_text())["panels"]


def test_rules_take_the_objectives_of_a_file(run, tmp_path):
    (tmp_path / "m.yaml").write_text("runbooks: https://ops.example.com/alerts\n")
    shown = run("slo", "rules", "--monitor", str(tmp_path / "m.yaml")).stdout
    assert "https://ops.example.com/alerts#diskdead" in shown
    assert "slo:sli_error:ratio_rate5m" in shown
