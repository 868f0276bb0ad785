"""The console in Chromium, over one server with ten thousand topics: every page, wide, narrow and at twice the size, in
light and dark; what is wrong by axe's rules; what others wrote and browsers might take for a program.

Needs chromium, and axe-core in console/node_modules (`tools/console.py build` installs it); skipped without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from tests.kit.browsing import MARKS, Looked, chromium, sync_api

pytestmark = [*MARKS, pytest.mark.shows("console")]
TOPICS = 10_000
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ORDERS, BILLING, LETTERS = "projects/shop/topics/orders", "projects/shop/subscriptions/billing", "letters"
PAGES = {
    "/": "Overview",
    "/p/shop/topics": "Topics",
    "/p/shop/topics?q=number-99": "Topics",
    "/p/shop/topics/orders": "orders",
    "/p/shop/topics/orders?tab=messages": "orders",
    "/p/shop/topics/orders?tab=publish": "orders",
    "/p/shop/topics/orders?tab=scheduled": "orders",
    "/p/shop/topics/orders?tab=settings": "orders",
    "/p/shop/subscriptions": "Subscriptions",
    "/p/shop/subscriptions/billing": "billing",
    "/p/shop/subscriptions/billing?tab=messages": "billing",
    "/p/shop/subscriptions/billing?tab=pull": "billing",
    "/p/shop/subscriptions/billing?tab=seek": "billing",
    "/p/shop/subscriptions/billing?tab=letters": "billing",
    "/p/shop/subscriptions/billing?tab=rules": "billing",
    "/p/shop/subscriptions/billing?tab=settings": "billing",
    "/p/shop/snapshots": "Snapshots",
    "/p/shop/schemas": "Schemas",
    "/cluster": "Disks",
    "/at-risk": "At risk",
    "/at-risk?gone=process:server": "At risk",
    "/federation": "Federation",
    "/tenants": "Tenants",
    "/audit": "Audit log",
    "/nothing/here": "Page not found",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with ServerProcess() as server:
        api = official.Api(server.endpoint)
        api.create_topic({"name": ORDERS, "labels": {"team": "core"}})
        api.create_subscription({"name": BILLING, "topic": ORDERS, "retain_acked_messages": True})
        api.create_snapshot({"name": "projects/shop/snapshots/before", "subscription": BILLING})
        attributes = {"region": HOSTILE, "<b>name</b>": "eu"}
        data = [json.dumps({"order": number}).encode() for number in range(60)]
        api.publish({"topic": ORDERS, "messages": [{"data": one, "attributes": {"region": "eu"}} for one in data]})
        api.publish({"topic": ORDERS, "messages": [{"data": HOSTILE.encode(), "attributes": attributes}]})
        for number in range(TOPICS):
            api.create_topic({"name": f"projects/shop/topics/number-{number}"})
        yield f"http://{server.endpoint}/console"
        api.close()


def test_every_page_is_clean_wide_and_narrow(browser: Any, base: str) -> None:
    looked = Looked(browser, base, viewport={"width": 1280, "height": 800})
    for path, title in PAGES.items():
        looked.go(path, title)
        looked.is_clean(path)
    assert looked.complaints == []
    looked.page.close()


def test_ten_thousand_topics_are_found_and_sorted_and_few_are_drawn(browser: Any, base: str) -> None:
    looked = Looked(browser, base, viewport={"width": 1280, "height": 800})
    page = looked.go("/p/shop/topics", "Topics")
    page.get_by_text("10,001 topics").wait_for()
    assert page.get_by_role("row").count() < 100
    page.get_by_role("button", name="Next").click()
    page.get_by_text("51–100 of 10,001").wait_for()
    assert page.url.endswith("begin=50")
    page.get_by_role("button", name="Subscriptions").click()
    page.get_by_role("columnheader", name="Subscriptions").and_(page.locator("[aria-sort=descending]")).wait_for()
    page.get_by_role("row").nth(1).get_by_role("link", name="orders", exact=True).wait_for()
    page.get_by_role("button", name="Topic", exact=True).click()
    page.get_by_role("searchbox").fill("number-9876")
    page.get_by_role("link", name="number-9876", exact=True).wait_for()
    assert page.url.endswith("/topics?q=number-9876&sort=name")  # an address that can be sent
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Topic, subscription or page").wait_for()
    page.keyboard.type("orders")  # the focus is where one types
    page.get_by_role("option", name="orders Topic", exact=True).wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="orders", exact=True).wait_for()
    assert looked.complaints == []
    page.close()


def test_charts_begin_with_the_hour_that_history_kept(browser: Any, base: str) -> None:
    looked = Looked(browser, base, viewport={"width": 1280, "height": 800})
    page = looked.go("/p/shop/topics/orders", "orders")
    page.locator(".card", has=page.get_by_role("heading", name="Published per second")).get_by_text(
        "last hour"
    ).wait_for()
    page = looked.go("/p/shop/subscriptions/billing", "billing")
    page.locator(".card", has=page.get_by_role("heading", name="Backlog")).get_by_text("last hour").wait_for()
    assert looked.complaints == []
    page.close()


def test_what_others_wrote_is_text(browser: Any, base: str) -> None:
    looked = Looked(browser, base, viewport={"width": 1280, "height": 900})
    page = looked.go("/p/shop/topics/orders?tab=messages&offset=60", "orders")
    page.get_by_role("button", expanded=False).filter(has_text=":").first.click()
    page.get_by_role("tab", name="Text").click()
    assert page.get_by_label("Payload").inner_text() == HOSTILE
    assert page.get_by_role("rowheader", name="<b>name</b>").inner_text() == "<b>name</b>"
    assert page.locator("main img, main script, main b:text('name')").count() == 0
    assert page.title() == "orders – Syncpoint"
    # Even a mistake in the program could not make markup of a text, and no script is taken from elsewhere.
    for attempt in ("document.body.innerHTML = '<b>x</b>'", "eval('1')"):
        later = f"setTimeout(() => {{ try {{ {attempt}; go() }} catch (error) {{ fail(error) }} }})"
        with pytest.raises(sync_api.Error, match=r"Trusted|unsafe-eval"):
            page.evaluate(f"() => new Promise((go, fail) => {later})")
    page.close()


def test_a_message_is_published_found_pulled_and_reset_by_a_seek(browser: Any, base: str) -> None:
    looked = Looked(browser, base, viewport={"width": 1280, "height": 900})
    page = looked.go("/p/shop/topics/orders?tab=publish", "orders")
    page.get_by_label("Data").fill('{"from": "the console"}')
    page.get_by_label("Name of attribute 1").fill("origin")
    page.get_by_label("Value of attribute 1").fill("test")
    page.get_by_role("button", name="Copy as…").click()
    code = page.get_by_label("Command")
    assert code.inner_text().startswith('syncpoint topics publish orders --project shop --message \'{"from"')
    page.get_by_role("tab", name="curl").click()
    assert "/v1/projects/shop/topics/orders:publish" in code.inner_text()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text("Published as message").wait_for()
    page = looked.go("/p/shop/topics/orders?tab=messages&filter=attributes.origin+%3D+%22test%22", "orders")
    page.get_by_role("cell", name='{"from": "the console"}').wait_for()
    page = looked.go("/p/shop/subscriptions/billing?tab=pull", "billing")
    page.get_by_label("Maximum messages").fill("100")
    page.get_by_role("button", name="Pull", exact=True).click()
    page.get_by_role("button", name="Acknowledge all").click()
    page.get_by_text("acknowledged.").wait_for()
    page = looked.go("/p/shop/subscriptions/billing?tab=seek", "billing")
    page.get_by_role("button", name="1 h ago").click()
    page.get_by_role("button", name="Seek…").first.click()
    page.locator(".preview li", has_text="Backlog afterwards").get_by_text("62 messages").wait_for()
    page.get_by_role("button", name="Seek", exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")
    page = looked.go("/p/shop/subscriptions/billing", "billing")
    page.locator(".tile", has_text="Backlog").get_by_text("62", exact=True).wait_for()
    assert looked.complaints == []
    page.close()


def test_with_access_control_it_asks_for_a_token_and_hides_what_one_may_not_read(browser: Any, tmp_path: Path) -> None:
    auth, key = str(tmp_path / "auth.yaml"), str(tmp_path / "key")
    made = CliRunner().invoke(cli, ["iam", "init", auth, "--owner", "admin@demo.example", "--key-file", key])
    assert made.exit_code == 0, made.output
    token = Credentials(tmp_path / "key").token()
    with ServerProcess(tmp_path / "data", args=["--auth", auth]) as server:
        base = f"http://{server.endpoint}/console"
        looked = Looked(browser, base, viewport={"width": 1280, "height": 800})
        page = looked.page
        page.goto(base + "/cluster")
        page.get_by_label("Token").fill("nonsense")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("The token was rejected").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", level=1, name="Disks", exact=True).wait_for()
        page.get_by_role("article").first.wait_for()
        assert token not in page.url
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert token not in kept
        page.reload()
        page.get_by_label("Token").wait_for()  # it is gone with the page
        page.close()
