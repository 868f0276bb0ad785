"""What is operated in the console, in Chromium: what is at risk, rules, settings, dead letters, flows; and over TLS,
with workers and access control, what a reader without rights to payloads never gets, and who did what.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from tests.integration.test_pipeline_writing import Writer, numbered, planned
from tests.kit.browsing import MARKS, Looked, apart, chromium, trusting

pytestmark = [*MARKS, pytest.mark.shows("console")]
ORDERS, FAILED = "projects/shop/topics/orders", "projects/shop/topics/failed"
BILLING, LETTERS = "projects/shop/subscriptions/billing", "projects/shop/subscriptions/letters"
SECRET, NAMED = "payload-that-is-secret", "attribute-that-is-secret"
READER = "reader@shop.example"
WIDE = {"viewport": {"width": 1280, "height": 900}}


def asked(base: str, verb: str, path: str, body: Any = None) -> Any:
    """REST, of a server that asks nobody who they are."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(base.removesuffix("/console") + path, data, headers, method=verb), timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """A shop whose first message was given up, and whose orders are copied from another server."""
    with ServerProcess() as server:
        base = f"http://{server.endpoint}/console"
        api = official.Api(server.endpoint)
        for topic in (ORDERS, FAILED):
            api.create_topic({"name": topic})
        policy = {"dead_letter_topic": FAILED, "max_delivery_attempts": 5}
        api.create_subscription({"name": BILLING, "topic": ORDERS, "dead_letter_policy": policy})
        api.create_subscription({"name": LETTERS, "topic": FAILED})
        api.publish({"topic": ORDERS, "messages": [{"data": b"order 0"}]})
        (got,) = api.pull({"subscription": BILLING, "max_messages": 1}).received_messages
        reason = {"ackIds": [got.ack_id], "reason": "Poison", "description": "it cannot be read"}
        asked(base, "POST", f"/admin/v1/{BILLING}:deadLetterMessages", reason)
        api.publish({"topic": ORDERS, "messages": [{"data": b"order %d" % number} for number in range(1, 40)]})
        writer = Writer(server.endpoint, "shop.eu-us.orders")
        writer.stage("a", 0, 0, "x", numbered(FAILED, range(10), source=5))
        writer.commit("a", 0, (0, "x"), **planned(0, 10))
        writer.stage("a", 1, 0, "x", numbered(FAILED, range(20, 25), source=5))
        with pytest.raises(Exception, match="source 5"):
            writer.commit("a", 1, (0, "x"), **planned(20, 25))
        method = methods.LOG_READER.GetPositions
        for cursor in ("archive.orders", "shop.us-eu.orders"):
            reading = pipeline.GetPositionsRequest(topic=ORDERS, cursor=pipeline.Cursor(name=cursor))
            writer.channel.unary_unary(method, method.request.SerializeToString)(reading, timeout=30)
        writer.close()
        yield base
        api.close()


class GuardedServer(NamedTuple):
    base: str
    certificate: Path
    admin: str
    reader: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Two workers behind TLS that ask who calls. `reader`: a token of one who may see names, and no payloads, and was
    refused a payload already.
    """
    folder = tmp_path_factory.mktemp("guarded")
    auth, key, reader = folder / "auth.yaml", folder / "admin.json", folder / "reader.json"
    authority, member = Authority(folder / "tls"), f"serviceAccount:{READER}"
    certificate, private = authority.issue("server")
    run = CliRunner().invoke
    made = run(cli, ["iam", "init", str(auth), "--owner", "admin@shop.example", "--key-file", str(key)])
    assert made.exit_code == 0, made.output
    auth.write_text(auth.read_text() + "audit: {file: audit.log}\n")
    args = ["--auth", str(auth), "--tls-cert", str(certificate), "--tls-key", str(private), "--workers", "2"]
    with ServerProcess(folder / "data", args=args) as server:
        common = ["--endpoint", server.endpoint, "--tls-ca", str(authority.ca), "--project", "shop"]
        attribute = ["--attribute", f"kind={NAMED}"]
        for words in (
            ["topics", "create", "orders"],
            ["topics", "create", "failed"],
            ["subscriptions", "create", "billing", "--topic", "orders", "--dead-letter-topic", "failed"],
            ["subscriptions", "create", "letters", "--topic", "failed"],
            ["topics", "publish", "orders", "--message", SECRET, *attribute],
            ["topics", "publish", "failed", "--message", SECRET, *attribute],
            ["iam", "accounts", "create", READER],
            ["iam", "accounts", "keys", "create", READER, "--file", str(reader)],
            ["iam", "policy", "add", "project", "--member", member, "--role", "roles/pubsub.viewer"],
        ):
            done = run(cli, [*words, *common, "--credentials", str(key)])
            assert done.exit_code == 0, done.output
        refused = run(cli, ["topics", "peek", "orders", *common, "--credentials", str(reader)])
        assert refused.exit_code != 0, refused.output
        assert "PERMISSION_DENIED" in refused.output
        tokens = (Credentials(one).token() for one in (key, reader))
        yield GuardedServer(f"https://{server.endpoint}/console", certificate, *tokens)


@pytest.fixture(scope="module")
def browser(base: str, guarded: GuardedServer) -> Iterator[Any]:
    """It takes the certificate that this test made, and no other."""
    with chromium(trusting(guarded.certificate)) as started:
        yield started


def test_what_one_disk_would_take_with_it_is_said_by_topic(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/at-risk", "At risk")
    page.get_by_label("Failed component").select_option(label="process server")
    page.get_by_text("No messages would be lost, unavailable or delivered twice.").wait_for()
    page.get_by_role("button", name="Remove process server").click()
    foreseen = asked(base, "GET", "/admin/v1/atRisk")["failures"]
    (disk,) = (one for one in foreseen if one["kind"] == "DISK")
    page.get_by_role("button", name=f"disk {disk['name']}").click()
    page.locator(".tile", has_text="Lost").get_by_text(disk["lost"]["messages"], exact=True).wait_for()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=ORDERS))
    (orders,) = (one for one in disk["topics"] if one["topic"] == ORDERS)
    assert row.get_by_role("cell").nth(2).inner_text() == orders["lost"]["messages"]
    assert int(orders["lost"]["messages"]) >= 39  # all that wait, and what was acknowledged until it is deleted
    shared = page.url  # an address that can be sent
    page.goto(base + "/")
    page.goto(shared)
    row.wait_for()
    page.get_by_role("button", name="Copy as…").click()
    assert page.get_by_label("Command").inner_text() == f"syncpoint at-risk --disk {disk['name']}"
    page.get_by_role("button", name="Close").click()
    page.goto(shared + "&gone=process:server")
    for one in (f"disk {disk['name']}", "process server"):
        page.get_by_role("button", name=f"Remove {one}").wait_for()
    looked.is_clean()
    assert looked.complaints == []
    page.close()


def test_rules_are_made_tried_changed_and_deleted(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/p/shop/subscriptions/billing?tab=rules", "billing")
    page.get_by_role("button", name="Create rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("eu")
    dialog.get_by_label("Filter (SQL)").fill("region = 'eu")
    dialog.get_by_role("button", name="Create", exact=True).click()
    wrong = dialog.locator(".field.wrong")
    assert "was not expected" in wrong.get_by_role("alert").inner_text()
    assert wrong.locator("textarea").count() == 1
    dialog.get_by_label("Filter (SQL)").fill("region = 'eu' AND total > @limit")
    dialog.get_by_label("Action").fill("SET replicated = 1")
    dialog.get_by_label("Name of parameter 1").fill("limit")
    dialog.get_by_label("Value of parameter 1").fill("100")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("cell", name="@limit = 100").wait_for()
    (kept,) = (one for one in asked(base, "GET", f"/admin/v1/{BILLING}/rules")["rules"] if one["name"] == "eu")
    assert kept["parameters"] == {"limit": {"integer": "100"}}

    page.get_by_label("Name of tried attribute 1").fill("region")
    page.get_by_label("Value of tried attribute 1").fill("eu")
    page.get_by_label("Name of tried attribute 2").fill("total")
    page.get_by_label("Value of tried attribute 2").fill("120")
    page.get_by_role("button", name="Test", exact=True).click()
    page.get_by_text("a subscriber would receive 2 copies").wait_for()
    page.get_by_role("cell", name="total > @limit", exact=True).wait_for()
    page.get_by_role("cell", name="RuleName=eu").wait_for()
    looked.is_clean("rules")
    page.get_by_label("Test another rule").check()
    page.get_by_label("Filter (SQL)").fill("total >")
    page.get_by_role("button", name="Test", exact=True).click()
    page.locator(".field.wrong").get_by_role("alert").wait_for()

    page.get_by_role("button", name="Change eu").click()
    dialog.get_by_label("Filter (SQL)").fill("region = 'us'")
    dialog.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("cell", name="region = 'us'").wait_for()
    page.get_by_role("button", name="Delete eu").click()
    dialog.get_by_role("button", name="Delete rule").click()
    page.get_by_role("cell", name="region = 'us'").wait_for(state="detached")
    assert [one["name"] for one in asked(base, "GET", f"/admin/v1/{BILLING}/rules")["rules"]] == ["$Default"]
    page.close()


def test_settings_are_changed_and_what_is_wrong_is_said_at_its_field(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    asked(base, "POST", "/admin/v1/projects/shop/topics/jobs:createQueue", {})
    page = looked.go("/p/shop/subscriptions/jobs?tab=settings", "jobs")
    page.get_by_role("heading", name="Queue settings for sending").wait_for()
    receiving = page.get_by_role("region", name="Queue settings for receiving")
    receiving.get_by_label("Time to live").fill("soon")
    receiving.get_by_text("Write a duration such as").wait_for()
    receiving.get_by_label("Time to live").fill("2h")
    receiving.get_by_label("Ack deadline").fill("5")
    receiving.get_by_role("button", name="Save 2 changes").click()
    receiving.locator(".field.wrong", has_text="Ack deadline").get_by_role("alert").wait_for()
    receiving.get_by_label("Ack deadline").fill("60")
    receiving.get_by_label("Dead-letter topic").fill("failed")
    receiving.get_by_label("Max delivery attempts").fill("7")
    receiving.get_by_label("Receiving suspended").select_option("yes")
    receiving.get_by_role("button", name="Copy as…").click()
    command = page.get_by_label("Command").inner_text()
    page.get_by_role("button", name="Close").click()
    receiving.get_by_role("button", name="Save 5 changes").click()
    receiving.get_by_text("Saved.").wait_for()
    name = "projects/shop/subscriptions/jobs"
    config, options = asked(base, "GET", f"/v1/{name}"), asked(base, "GET", f"/admin/v1/{name}:options")
    assert config["ackDeadlineSeconds"] == 60
    assert config["deadLetterPolicy"] == {"deadLetterTopic": FAILED, "maxDeliveryAttempts": 7}
    assert (options["ttl"], options["receiveSuspended"]) == ("7200s", True)
    # The command does the same: on a subscription of its own.
    asked(base, "PUT", "/v1/projects/shop/subscriptions/other", {"topic": ORDERS})
    words = command.replace(" jobs ", " other ").split()[1:]
    done = apart(lambda: CliRunner().invoke(cli, [*words, "--endpoint", base.split("/")[2]]))
    assert done.exit_code == 0, done.output
    other = "projects/shop/subscriptions/other"
    assert asked(base, "GET", f"/v1/{other}")["deadLetterPolicy"] == config["deadLetterPolicy"]
    assert {**asked(base, "GET", f"/admin/v1/{other}:options"), "subscription": name} == options

    sending = page.get_by_role("region", name="Queue settings for sending")
    sending.get_by_label("Duplicate detection").fill("10m")
    sending.get_by_role("button", name="Save 1 change").click()
    sending.get_by_text("Saved.").wait_for()
    assert asked(base, "GET", "/admin/v1/projects/shop/topics/jobs:options")["duplicateDetectionWindow"] == "600s"
    looked.is_clean("settings")
    page.close()


def test_resources_are_created_with_the_settings_that_the_command_line_has(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/p/shop/schemas", "Schemas")
    page.get_by_role("button", name="Create schema").click()
    page.keyboard.type("order")  # the focus is where one types
    page.get_by_label("Definition").fill(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    )
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("button", name="order", exact=True).wait_for()
    page = looked.go("/p/shop/topics", "Topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    page.keyboard.type("bills")
    dialog.get_by_label("Message retention duration").fill("2h")
    dialog.get_by_label("Labels").fill("team=core")
    dialog.get_by_label("Schema", exact=True).fill("order")
    dialog.get_by_label("Message encoding").select_option("JSON")
    dialog.get_by_label("Duplicate detection").fill("10m")
    looked.is_clean("create a topic")
    dialog.get_by_role("button", name="Copy as…").click()
    command = page.get_by_label("Command").inner_text()
    page.get_by_role("button", name="Close").last.click()
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", level=1, name="bills").wait_for()
    page.get_by_role("button", name="Create subscription").click()
    page.keyboard.type("careful")
    dialog.get_by_label("Message filter").fill('attributes.region = "eu"')
    dialog.get_by_label("Enable message ordering").select_option("yes")
    dialog.get_by_label("Min retry delay").fill("5s")
    dialog.get_by_label("Dead-letter topic").fill("failed")
    dialog.get_by_text("More settings").click()
    dialog.get_by_label("Expiration period").fill("never")
    dialog.get_by_label("Time to live").fill("1h")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", level=1, name="careful").wait_for()

    topic = asked(base, "GET", "/v1/projects/shop/topics/bills")
    assert topic["schemaSettings"] == {"schema": "projects/shop/schemas/order", "encoding": "JSON"}
    assert (topic["messageRetentionDuration"], topic["labels"]) == ("7200s", {"team": "core"})
    made = asked(base, "GET", "/v1/projects/shop/subscriptions/careful")
    assert (made["filter"], made["enableMessageOrdering"], made["expirationPolicy"]) == (
        'attributes.region = "eu"',
        True,
        {},
    )
    assert made["retryPolicy"]["minimumBackoff"] == "5s"
    assert made["deadLetterPolicy"] == {"deadLetterTopic": FAILED, "maxDeliveryAttempts": 5}
    assert asked(base, "GET", "/admin/v1/projects/shop/subscriptions/careful:options")["ttl"] == "3600s"
    words = command.replace(" bills ", " copied ").replace("10m", "600s").split()[1:]
    done = apart(lambda: CliRunner().invoke(cli, [*words, "--endpoint", base.split("/")[2]]))
    assert done.exit_code == 0, done.output
    copied = asked(base, "GET", "/v1/projects/shop/topics/copied")
    assert {**copied, "name": topic["name"]} == topic

    page = looked.go("/p/shop/subscriptions/careful?tab=settings", "careful")
    form = page.get_by_role("region", name="Subscription settings")
    assert form.get_by_label("Min retry delay").input_value() == "5s"
    form.get_by_text('attributes.region = "eu"').wait_for()  # fixed
    form.get_by_label("Min retry delay").fill("")
    form.get_by_label("Max retry delay").fill("")
    form.get_by_label("Push endpoint").fill("http://example.com/x")
    form.get_by_role("button", name="Save 3 changes").click()
    form.locator(".field.wrong", has_text="Push endpoint").get_by_role("alert").wait_for()
    form.get_by_label("Push endpoint").fill("")
    form.get_by_role("button", name="Save 2 changes").click()
    form.get_by_text("Saved.").wait_for()
    assert "retryPolicy" not in asked(base, "GET", "/v1/projects/shop/subscriptions/careful")
    page = looked.go("/p/shop/snapshots", "Snapshots")
    page.get_by_role("button", name="Create snapshot").click()
    page.keyboard.type("before")
    dialog.get_by_label("Subscription").fill("careful")
    dialog.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("cell", name="before").wait_for()
    page.close()


def test_a_redrive_first_counts_and_then_publishes(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/p/shop/subscriptions/letters?tab=letters", "letters")
    page.get_by_label("Reason").fill("Poison")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("cell", name="it cannot be read").wait_for()

    def state(name: str) -> int:
        return int(asked(base, "GET", f"/admin/v1/{name}:state").get("backlogMessages", 0))

    letters, billing = state(LETTERS), state(BILLING)
    page.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog", name="Redrive dead letters")
    dialog.get_by_text("1 dead letter would be published to orders. Nothing has been changed yet.").wait_for()
    looked.violations()
    dialog.get_by_role("button", name="Cancel").click()
    assert (state(LETTERS), state(BILLING)) == (letters, billing)

    page.get_by_role("button", name="Redrive…").click()
    dialog.get_by_role("button", name="Redrive", exact=True).click()
    dialog.wait_for(state="detached")
    page.get_by_text("No dead letters in this subscription.").wait_for()
    assert (state(LETTERS), state(BILLING)) == (letters - 1, billing + 1)
    again = asked(base, "GET", f"/admin/v1/{BILLING}:peek?pageSize=100")["messages"][-1]["message"]
    assert base64.b64decode(again["data"]) == b"order 0"
    assert again["attributes"]["sys.RedriveCount"] == "1"
    assert looked.complaints == []
    page.close()


def test_flows_are_shown_as_this_server_knows_them(browser: Any, base: str) -> None:
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/federation", "Federation")
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="l", exact=True))
    row.get_by_text("blocked").wait_for()
    assert row.get_by_role("cell").nth(4).inner_text().split()[0] == "10"
    page.get_by_role("img", name="Sites: to eu: 1 flow 41 behind").wait_for()
    page.get_by_text("5: 10-19 are gone at the source").wait_for()
    reader = page.get_by_role("row").filter(has=page.get_by_role("cell", name="archive.orders", exact=True))
    reader.get_by_role("link", name=ORDERS).wait_for()
    reader.get_by_text("lagging").wait_for()
    assert page.get_by_text("Unknown").count() == 0
    looked.is_clean()
    page.close()


def test_tenants_with_what_they_may_use_and_what_they_use(browser: Any, base: str) -> None:
    tenant = {"owners": ["user:ann@example.com"], "projects": ["projects/shop"], "quota": {"topics": "100"}}
    asked(base, "POST", "/admin/v1/tenants", {"name": "acme", **tenant})
    looked = Looked(browser, base, **WIDE)
    page = looked.go("/tenants", "Tenants")
    page.get_by_role("cell", name="user:ann@example.com").wait_for()
    page.get_by_role("button", name="acme").click()
    page.get_by_text(re.compile(r"^\d of 100$")).wait_for()
    page.get_by_role("group", name="Projects of acme").get_by_role("link", name="shop").wait_for()
    looked.is_clean("tenants")
    assert looked.complaints == []
    page.close()


def test_who_may_not_read_payloads_gets_none_of_them_anywhere(browser: Any, guarded: GuardedServer) -> None:
    looked = Looked(browser, guarded.base, **WIDE)
    page, told = looked.page, list[str]()
    page.on("response", lambda answer: told.append(answer.text()) if "/live" not in answer.url else None)
    page.goto(guarded.base + "/")
    looked.token(guarded.reader)
    secrets = [*(one for text in (SECRET, NAMED) for one in (text, base64.b64encode(text.encode()).decode()))]
    for path, title in (
        ("/p/shop/topics/orders", "orders"),
        ("/p/shop/topics/orders?tab=messages", "orders"),
        ("/p/shop/topics/orders?tab=scheduled", "orders"),
        ("/p/shop/topics/orders?tab=settings", "orders"),
        ("/p/shop/subscriptions/billing", "billing"),
        ("/p/shop/subscriptions/billing?tab=messages", "billing"),
        ("/p/shop/subscriptions/billing?tab=rules", "billing"),
        ("/p/shop/subscriptions/billing?tab=settings", "billing"),
        ("/p/shop/subscriptions/letters?tab=letters", "letters"),
        ("/at-risk", "At risk"),
        ("/federation", "Federation"),
        ("/audit", "Audit log"),
    ):
        looked.move(path, title)
        page.wait_for_load_state("networkidle") if "settings" in path else None
        shown = page.content()
        assert not [one for one in secrets if one in shown], path
        for button in ("Delete", "Create rule", "Redrive…", "Publish", "Pull", "Save", "Search"):
            assert page.get_by_role("button", name=button, exact=True).count() == 0, (path, button)
    page.get_by_text("requires the permission syncpoint.audit.read").wait_for()
    for path in (f"{ORDERS}:peek", f"{BILLING}:peek", f"{LETTERS}:deadLetters?selection.subscription={LETTERS}"):
        found = page.evaluate(
            "([path, token]) => fetch(path, {headers: {authorization: `Bearer ${token}`}}).then((a) => a.text())",
            [f"/admin/v1/{path}", guarded.reader],
        )
        assert "PERMISSION_DENIED" in found, path
        told.append(found)
    assert told
    assert not [one for text in told for one in secrets if one in text]
    page.close()


def test_over_tls_with_workers_payloads_are_hidden_until_asked_for_and_the_logs_of_all_are_shown(
    browser: Any, guarded: GuardedServer
) -> None:
    looked = Looked(browser, guarded.base, **WIDE)
    page = looked.page
    page.goto(guarded.base + "/p/shop/topics/orders?tab=messages")
    looked.token(guarded.admin)
    page.get_by_role("cell", name="••••••").wait_for()
    assert SECRET not in page.content()
    page.get_by_role("button", name="Show payloads").click()
    page.get_by_role("cell", name=SECRET).wait_for()
    page.get_by_role("button", name="Hide payloads").click()
    assert SECRET not in page.content()
    looked.move("/p/shop/subscriptions/billing", "billing")
    page.locator(".tile", has_text="Backlog").get_by_text("1", exact=True).wait_for()
    page.get_by_text("Live", exact=True).wait_for()

    looked.move("/audit?outcome=refused&who=reader", "Audit log")
    row = page.get_by_role("row").filter(has_text="PeekTopic").first
    row.wait_for()  # what the reader was refused, by whichever worker
    assert READER in row.inner_text()
    assert "refused" in row.inner_text()
    row.get_by_role("button").click()
    page.get_by_text("Previous hash").wait_for()
    looked.is_clean("audit")
    looked.move("/audit?method=CreateTopic", "Audit log")
    page.get_by_role("cell", name="projects/shop", exact=True).nth(1).wait_for()  # two topics, in one project
    assert page.get_by_role("cell", name="refused").count() == 0
    page.get_by_text("from worker-1, worker-2").wait_for()
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("unbroken hash chain").nth(1).wait_for()
    looked.move("/audit?since=-1h&until=-30m", "Audit log")
    page.get_by_text("No matching entries.").wait_for()
    for path, title in (("/", "Overview"), ("/cluster", "Cluster and disks"), ("/at-risk", "At risk")):
        looked.move(path, title)
        looked.is_clean(path)
    page.close()
