"""At risk: what the command asks, prints, and ends with."""

from syncpoint.wire.protobuf.messages import admin


def count(messages, *ranges):
    shown = [{"source": 9, "first_offset": first, "last_offset": last} for first, last in ranges]
    return admin.RiskCount(messages=messages, bytes=10 * messages, ranges=shown, ranges_total=len(shown))


def failure(name, lost=0, unavailable=0, **more):
    topic = {"topic": "projects/p/topics/t", "lost": count(lost, (4, 3 + lost)), "unavailable": count(unavailable)}
    return admin.Failure(
        kind="DISK", name=name, lost=count(lost), unavailable=count(unavailable), topics=[topic], **more
    )


def test_every_single_failure_is_a_row_and_losing_ends_with_1(server, run):
    server.answers["Admin.GetAtRisk"] = admin.AtRisk(
        failures=[failure("/a", lost=3), failure("/b", unavailable=7, stopped=["too few", "x"])]
    )
    result = run("at-risk")
    assert result.exit_code == 1
    assert [line.split()[:5] for line in result.stdout.splitlines()[2:]] == [
        ["disk", "/a", "3", "0", "0"],
        ["disk", "/b", "0", "7", "0"],
    ]
    assert "too few (and 1 more)" in result.stdout
    assert run("at-risk", "--format", "json").exit_code == 1


def test_what_is_named_is_asked_and_shown_by_topic(server, run):
    server.answers["Admin.GetAtRisk"] = admin.AtRisk(failures=[failure("/a", lost=3, facts=2)])
    result = run("at-risk", "--disk", "/a", "--disk", "/b", "--process", "p", "--zone", "z")
    _, request = server.calls[-1]
    assert (list(request.disks), list(request.processes), list(request.zones)) == (["/a", "/b"], ["p"], ["z"])
    assert "9:4-6" in result.stdout
    assert "2 changes" in result.stderr


def test_what_nobody_knows_is_not_nothing(server, run):
    server.answers["Admin.GetAtRisk"] = admin.AtRisk(
        failures=[failure("/a")], unknown=["chain 7: no process has it open now"]
    )
    result = run("at-risk", "--disk", "/a")
    assert result.exit_code == 2
    assert "chain 7: no process has it open now" in result.stderr
    assert "Nothing would be lost" in result.stderr


def test_nothing_at_risk_ends_with_0(server, run):
    server.answers["Admin.GetAtRisk"] = admin.AtRisk(failures=[failure("/a")])
    assert run("at-risk").exit_code == 0
