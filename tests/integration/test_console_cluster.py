"""The console at the proxies of a cluster that asks who calls, in Chromium: what each proxy has written down, shown
at either; what is at risk; and a proxy that does not answer, which is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from syncpoint.testing.rigs.etcd import why_not
from syncpoint.wire.protobuf.messages import pubsub
from tests.integration.test_cluster_access import SUBSCRIPTION, TOPIC, Guarded
from tests.kit.browsing import MARKS, Looked, apart, chromium

pytestmark = [*MARKS, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Two proxies, each with an audit log of its own."""
    made = Guarded(tmp_path_factory.mktemp("console"))
    try:
        made.up()
        made.call("Publisher.CreateTopic", pubsub.Topic(name=TOPIC), proxy=0)
        made.call("Subscriber.CreateSubscription", pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC), proxy=1)
        message = pubsub.PubsubMessage(data=b"x")
        made.call("Publisher.Publish", pubsub.PublishRequest(topic=TOPIC, messages=[message] * 7), proxy=1)
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def browser(kit: Guarded) -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("proxy", [0, 1])
def test_either_proxy_shows_the_logs_of_both_and_what_is_at_risk(browser: Any, kit: Guarded, proxy: int) -> None:
    looked = Looked(browser, f"http://{kit.proxies[proxy]}/console", viewport={"width": 1280, "height": 900})
    page = looked.page
    page.goto(looked.base + "/audit?resource=projects%2Fa")
    looked.token(kit.token("root"))
    page.get_by_text("from proxy-1, proxy-2").wait_for()
    for method, process in (("CreateTopic", "proxy-1"), ("CreateSubscription", "proxy-2")):
        row = page.get_by_role("row").filter(has=page.get_by_role("cell", name=method, exact=True)).first
        row.get_by_role("cell", name=process, exact=True).wait_for()
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("unbroken hash chain").nth(1).wait_for()
    looked.is_clean("audit")

    looked.move("/at-risk", "At risk")
    disk = page.get_by_role("row").filter(has=page.get_by_role("button", name="disk ")).first
    assert disk.get_by_role("cell").nth(1).inner_text() == "7"  # a cluster of one disk
    disk.get_by_role("button").click()
    page.get_by_role("link", name=TOPIC).wait_for()
    looked.is_clean("at risk")
    looked.move("/p/a/subscriptions/billing", "billing")
    page.locator(".tile", has_text="Backlog").get_by_text("7", exact=True).wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    looked.move("/cluster", "Cluster and disks")
    page.get_by_role("group", name="Processes").get_by_text("proxy-2").wait_for()
    looked.is_clean("cluster")
    assert looked.complaints == []
    page.close()


def test_a_proxy_that_does_not_answer_is_named(browser: Any, kit: Guarded) -> None:
    looked = Looked(browser, f"http://{kit.proxies[0]}/console", viewport={"width": 1280, "height": 900})
    page = looked.page
    apart(lambda: kit.local.pause("proxy-2"))
    try:
        page.goto(looked.base + "/audit?method=CreateTopic")
        looked.token(kit.token("root"))
        page.get_by_text("Not shown: proxy-2").wait_for()
        page.get_by_role("cell", name="CreateTopic").first.wait_for()  # of the other one
    finally:
        kit.local.resume("proxy-2")
    page.close()
