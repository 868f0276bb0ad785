"""Plans of drills: what is understood, and what is refused with its key."""

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.disaster.drill_page import certificate_page
from syncpoint.programs.disaster.drill_plan import parse_plan
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("drills")


def test_a_plan_has_what_fails_for_how_long_and_its_bounds(tmp_path) -> None:
    plan = parse_plan({"kind": "kill", "cluster": str(tmp_path), "process": "publish-1", "for": "5s", "limit": "1m"})
    assert (plan.lasts_s, plan.limit_s, plan.topic) == (5.0, 60.0, "")
    assert plan.shown == f"cluster {tmp_path}, process publish-1"
    restarted = parse_plan({"kind": "kill", "pid": 7, "restart": "serve --secret x"})
    assert restarted.shown == "pid 7", "a command may hold what is not for everybody"
    assert (restarted.lasts_s, restarted.limit_s) == (10.0, 120.0)


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"kind": "burn"}, "kind", "must be kill, hang, pause-link, move-home"),
        ({"kind": "kill", "pid": "7"}, "kill", "needs cluster and process or pid and restart"),
        ({"kind": "hang", "pid": "7", "restart": "x"}, "hang", "nothing else"),
        ({"kind": "hang", "pid": "x"}, "pid", "id of a process"),
        ({"kind": "kill", "pid": "7", "restart": "serve 'x"}, "restart", "quotes that end"),
        ({"kind": "kill", "pid": "7", "restart": ""}, "restart", "must be a command"),
        ({"kind": "hang", "pid": "7", "for": "2m"}, "limit", "longer than"),
        ({"kind": "hang", "pid": "7", "limit": "2h"}, "limit", "at most 3600 s"),
        ({"kind": "hang", "pid": "7", "color": "red"}, "color", "unknown key"),
        ({"kind": "cut-network", "port": "65536"}, "port", "TCP port"),
        ({"kind": "fill-disk", "folder": "/", "leave": "1k"}, "leave", "number of bytes"),
        ({"kind": "fill-disk", "leave": "1"}, "fill-disk", "needs folder or folder and leave"),
        ({"kind": "pause-link", "federation": "/nowhere.yaml", "flow": "f"}, "federation", "does not exist"),
    ],
)
def test_what_cannot_be_done_or_undone_is_refused(given, field, message) -> None:
    with pytest.raises(InvalidArgument, match=message) as refused:
        parse_plan(given)
    assert field in str(refused.value)


def test_the_page_of_a_certificate_has_both_objectives() -> None:
    found = admin.Drill(project="projects/p", drill="one", kind="hang", target="pid 7", state=admin.Drill.DONE)
    assert "Nothing was measured." in certificate_page(found)
    found.certificate.confirmed, found.certificate.lost, found.certificate.not_copied = 2000, 3, -1
    found.certificate.publish_gap_ms, found.certificate.receive_gap_ms = 2500, 4200
    page = certificate_page(found)
    assert "| RPO: confirmed messages that were lost | 3 of 2,000 |" in page
    assert "| RTO: longest time without a publish or a message | 4.2 s |" in page
    assert "not asked" in page
