"""Google's discovery client, which builds itself from the document that the server describes itself with."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytestmark = pytest.mark.shows("rest")

httplib2 = pytest.importorskip("httplib2")
discovery = pytest.importorskip("googleapiclient.discovery")
errors = pytest.importorskip("googleapiclient.errors")


def test_the_discovery_client(space: Any) -> None:
    address = f"http://{space.endpoint}/$discovery/rest?version={{apiVersion}}"
    http = httplib2.Http(timeout=40)
    with discovery.build("pubsub", "v1", http=http, discoveryServiceUrl=address, static_discovery=False) as service:
        project = service.projects()
        topics, subscriptions = project.topics(), project.subscriptions()
        topic, sub = space.path("topics", "orders"), space.path("subscriptions", "mail")
        made = topics.create(name=topic, body={"labels": {"team": "a"}}).execute()
        assert (made["name"], made["labels"]) == (topic, {"team": "a"})
        subscriptions.create(name=sub, body={"topic": topic, "ackDeadlineSeconds": 20}).execute()
        patch = {"subscription": {"ackDeadlineSeconds": 30}, "updateMask": "ackDeadlineSeconds"}
        assert subscriptions.patch(name=sub, body=patch).execute()["ackDeadlineSeconds"] == 30
        data = base64.b64encode(b"hello" * 1000).decode()
        sent = {"messages": [{"data": data, "attributes": {"k": "v"}}]}
        (number,) = topics.publish(topic=topic, body=sent).execute()["messageIds"]
        (got,) = subscriptions.pull(subscription=sub, body={"maxMessages": 5}).execute()["receivedMessages"]
        assert (got["message"]["messageId"], got["message"]["data"]) == (number, data)
        assert subscriptions.acknowledge(subscription=sub, body={"ackIds": [got["ackId"]]}).execute() == {}
        listed = topics.list(project=f"projects/{space.project}", pageSize=1)
        assert [one["name"] for one in listed.execute()["topics"]] == [topic]
        assert topics.list_next(listed, {}) is None
        # Longer than a query may be: the client posts it as a form and says that GET is meant.
        token = "x" * 3000
        with pytest.raises(errors.HttpError) as caught:
            topics.list(project=f"projects/{space.project}", pageToken=token).execute()
        assert caught.value.resp.status == 400
        subscriptions.delete(subscription=sub).execute()
        topics.delete(topic=topic).execute()
        with pytest.raises(errors.HttpError, match="Resource not found") as caught:
            topics.get(topic=topic, x__xgafv="2").execute()
        assert caught.value.resp.status == 404
