"""Mitigation and headroom: what the commands ask, print, and end with."""

from syncpoint.wire.protobuf.messages import admin


def answer(**more):
    return admin.Mitigation(
        mode="act",
        processes=[{"name": "p1", "verdict": "sick"}],
        records=[{"action": "drain", "process": "p1", "reason": "late", "outcome": "done"}],
        **more,
    )


def test_status_shows_processes_and_decisions(server, run, run_json):
    server.answers["Admin.GetMitigation"] = answer()
    result = run("mitigation", "status")
    assert "Mode: act." in result.stderr
    assert ["p1", "sick"] in [line.split() for line in result.stdout.splitlines()]
    assert "done" in result.stdout
    assert run_json("mitigation", "status")["records"][0]["action"] == "drain"


def test_pause_and_resume(server, run):
    server.answers["Admin.PauseMitigation"] = answer(paused=True)
    server.answers["Admin.ResumeMitigation"] = answer()
    assert "Mode: act, paused." in run("mitigation", "pause", "--comment", "works").stderr
    assert server.calls[-1][1].comment == "works"
    assert "Mode: act." in run("mitigation", "resume").stderr


def test_headroom_ends_with_1_where_it_is_short(server, run):
    row = {"domain": "zone a", "role": "proxy", "members": 3, "left": 2, "busy": 0.5, "busy_after": 0.75}
    server.answers["Admin.GetHeadroom"] = admin.Headroom(rows=[row])
    result = run("headroom")
    assert result.exit_code == 0
    assert "2 of 3" in result.stdout
    server.answers["Admin.GetHeadroom"] = admin.Headroom(rows=[{**row, "busy_after": 0.9, "short": True}])
    assert run("headroom").exit_code == 1
    server.answers["Admin.GetHeadroom"] = admin.Headroom()
    assert "one place" in run("headroom").stderr
