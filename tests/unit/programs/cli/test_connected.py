"""Who is connected: what is asked, what is printed, and what is said about what is not known."""

from syncpoint.wire.protobuf.messages import admin

STREAM = admin.ConnectedClient(
    kind="STREAM",
    process="server",
    peer="10.0.0.7:4711",
    user_agent="grpc-python/1.70",
    connect_time={"seconds": 1795230000},
    max_outstanding_messages=100,
    outstanding_messages=3,
)


def test_streams_are_shown_without_columns_that_nobody_fills(server, run, run_json):
    server.answers["Admin.ListSubscriptionClients"] = admin.ListSubscriptionClientsResponse(clients=[STREAM])
    lines = run("subscriptions", "clients", "billing").stdout.splitlines()
    assert lines[0].split() == ["KIND", "PEER", "PROCESS", "SINCE", "OUTSTANDING", "MAX", "USER_AGENT"]
    assert lines[2].split() == [
        "STREAM", "10.0.0.7:4711", "server", "2026-11-21T03:00:00Z", "3", "100", "grpc-python/1.70",
    ]  # fmt: skip
    assert server.calls[-1][1].subscription == "projects/p/subscriptions/billing"
    assert run_json("subscriptions", "clients", "billing")["clients"][0]["peer"] == "10.0.0.7:4711"


def test_what_is_missing_is_said(server, run):
    server.answers["Admin.ListTopicPublishers"] = admin.ListTopicPublishersResponse(
        publishers=[admin.ConnectedClient(kind="PUBLISHER", process="proxy-1")],
        more=1200,
        unknown=["proxy-2 does not report its clients (gone)"],
        addresses_hidden=True,
    )
    said = run("topics", "publishers", "orders").stderr
    assert server.calls[-1][1].topic == "projects/p/topics/orders"
    assert "1,200 more" in said
    assert "Unknown: proxy-2 does not report its clients (gone)" in said
    assert "syncpoint.server.get" in said
