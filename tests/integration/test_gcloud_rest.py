"""What `gcloud pubsub` sends over REST, call by call: it cannot be installed from a package registry, so it is played.

Its requests are those of a generated client: the whole resource with its name in a PUT, masks in camelCase inside the
body of a PATCH, `alt=json` everywhere, options of policies in the query, compressed answers.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from syncpoint.testing.rigs.official import eventually

pytestmark = pytest.mark.shows("rest")

AVRO = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'


class Gcloud:
    """Sends as gcloud does; `refused` is the error it would print."""

    def __init__(self, space: Any) -> None:
        self.connection = http.client.HTTPConnection(space.endpoint, timeout=40)
        self.path = space.path
        self.project = f"projects/{space.project}"

    def send(self, verb: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        command = path.rpartition(":")[2] if ":" in path else verb.lower()
        headers = {
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
            "content-type": "application/json",
            "user-agent": f"google-cloud-sdk gcloud/545.0.0 command/gcloud.pubsub.{command} "
            "invocation-id/5f0e environment/None environment-version/None client-os/LINUX client-os-ver/6.1.0 "
            "client-pltf-arch/x86_64 interactive/True from-script/False python/3.12.8 term/xterm (Linux 6.1.0)",
            "x-goog-api-client": "cred-type/u",
        }
        data = json.dumps(body, sort_keys=True) if body is not None else None
        if data is None:
            headers["content-length"] = "0"
        self.connection.request(verb, f"/v1/{path}?{urlencode({'alt': 'json', **query})}", data, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        return answer.status, json.loads(content)

    def __call__(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        status, content = self.send(verb, path, body, **query)
        assert status == 200, content
        return content

    def refused(self, verb: str, path: str, body: Any = None, **query: Any) -> str:
        status, content = self.send(verb, path, body, **query)
        error = content["error"]
        assert (error["code"], status >= 400, bool(error["message"])) == (status, True, True), content
        return str(error["status"])

    def topic(self, short: str, **fields: Any) -> str:
        name = str(self.path("topics", short))
        return str(self("PUT", name, {"name": name, **fields})["name"])

    def subscription(self, topic: str, short: str, **fields: Any) -> str:
        name = str(self.path("subscriptions", short))
        return str(self("PUT", name, {"name": name, "topic": topic, **fields})["name"])

    def publish(self, topic: str, *bodies: str, **fields: Any) -> list[str]:
        messages = [{"data": base64.b64encode(body.encode()).decode(), **fields} for body in bodies]
        return list(self("POST", f"{topic}:publish", {"messages": messages})["messageIds"])

    def pull(self, subscription: str) -> list[Any]:
        request = {"maxMessages": 10, "returnImmediately": True}
        return list(
            eventually(lambda: self("POST", f"{subscription}:pull", request).get("receivedMessages"), what="messages")
        )

    def ack(self, subscription: str, got: list[Any]) -> None:
        assert self("POST", f"{subscription}:acknowledge", {"ackIds": [one["ackId"] for one in got]}) == {}


@pytest.fixture
def gcloud(space: Any) -> Iterator[Gcloud]:
    made = Gcloud(space)
    yield made
    made.connection.close()


def test_topics(gcloud: Gcloud) -> None:
    """create, describe, update, list, list-subscriptions, delete."""
    names = sorted(gcloud.topic(short, labels={"team": short}) for short in ("one", "three", "two"))
    assert gcloud.refused("PUT", names[0], {"name": names[0]}) == "ALREADY_EXISTS"
    wished = {"labels": {"team": "x"}, "messageRetentionDuration": "86400s", "name": names[0]}
    patch = {"topic": wished, "updateMask": "labels,messageRetentionDuration"}
    assert gcloud("PATCH", names[0], patch) == gcloud("GET", names[0]) | wished
    cleared = {"topic": {"name": names[0]}, "updateMask": "messageRetentionDuration"}
    assert "messageRetentionDuration" not in gcloud("PATCH", names[0], cleared)
    assert gcloud.refused("PATCH", names[0], {"topic": wished, "updateMask": "nonsense"}) == "INVALID_ARGUMENT"
    first = gcloud("GET", f"{gcloud.project}/topics", pageSize=2)
    second = gcloud("GET", f"{gcloud.project}/topics", pageSize=2, pageToken=first["nextPageToken"])
    assert [one["name"] for one in first["topics"] + second["topics"]] == names
    sub = gcloud.subscription(names[0], "mail")
    assert gcloud("GET", f"{names[0]}/subscriptions", pageSize=100) == {"subscriptions": [sub]}
    assert gcloud("DELETE", names[0]) == {}
    assert gcloud.refused("GET", names[0]) == "NOT_FOUND"


def test_subscriptions(gcloud: Gcloud) -> None:
    """create with most of its flags, describe, update, modify-push-config, detach, list, delete."""
    topic, dead = gcloud.topic("orders"), gcloud.topic("dead")
    flags = {
        "ackDeadlineSeconds": 30,
        "deadLetterPolicy": {"deadLetterTopic": dead, "maxDeliveryAttempts": 7},
        "enableMessageOrdering": True,
        "expirationPolicy": {},
        "filter": 'attributes.colour = "red"',
        "labels": {"team": "a"},
        "messageRetentionDuration": "3600s",
        "retainAckedMessages": True,
        "retryPolicy": {"minimumBackoff": "11s", "maximumBackoff": "500s"},
    }
    sub = gcloud.subscription(topic, "mail", **flags)
    made = gcloud("GET", sub)
    assert {key: made[key] for key in flags} == flags
    assert (made["topic"], made["state"]) == (topic, "ACTIVE")
    wished = {"ackDeadlineSeconds": 60, "name": sub, "retryPolicy": {"minimumBackoff": "12s"}}
    mask = "ackDeadlineSeconds,deadLetterPolicy,expirationPolicy,retryPolicy.minimumBackoff"
    changed = gcloud("PATCH", sub, {"subscription": wished, "updateMask": mask})
    assert (changed["ackDeadlineSeconds"], changed["retryPolicy"]["minimumBackoff"]) == (60, "12s")
    assert "deadLetterPolicy" not in changed
    assert changed["expirationPolicy"] == {"ttl": "2678400s"}
    assert gcloud("GET", gcloud.subscription(topic, "once", enableExactlyOnceDelivery=True))[
        "enableExactlyOnceDelivery"
    ]
    assert gcloud("DELETE", gcloud.path("subscriptions", "once")) == {}
    push = {"oidcToken": {"serviceAccountEmail": "p@example.iam.gserviceaccount.com"}, "pushEndpoint": "https://a.b/c"}
    assert gcloud("POST", f"{sub}:modifyPushConfig", {"pushConfig": push}) == {}
    assert gcloud("GET", sub)["pushConfig"]["pushEndpoint"] == "https://a.b/c"
    assert gcloud("POST", f"{sub}:modifyPushConfig", {"pushConfig": {}}) == {}
    assert [one["name"] for one in gcloud("GET", f"{gcloud.project}/subscriptions", pageSize=9)["subscriptions"]] == [
        sub
    ]
    assert gcloud("POST", f"{sub}:detach") == {}
    assert gcloud("GET", sub)["detached"] is True
    assert gcloud.refused("POST", f"{sub}:pull", {"maxMessages": 1}) == "FAILED_PRECONDITION"
    assert gcloud("DELETE", sub) == {}


def test_messages(gcloud: Gcloud) -> None:
    """publish, pull, modify-message-ack-deadline, ack, pull --auto-ack, seek."""
    topic = gcloud.topic("orders")
    sub = gcloud.subscription(topic, "mail", enableMessageOrdering=True, retainAckedMessages=True)
    begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    (number,) = gcloud.publish(topic, "hello", attributes={"colour": "red"}, orderingKey="k")
    (got,) = gcloud.pull(sub)
    message = got["message"]
    assert base64.b64decode(message["data"]) == b"hello"
    assert (message["messageId"], message["attributes"], message["orderingKey"]) == (number, {"colour": "red"}, "k")
    assert message["publishTime"].endswith("Z")
    change = {"ackDeadlineSeconds": 0, "ackIds": [got["ackId"]]}
    assert gcloud("POST", f"{sub}:modifyAckDeadline", change) == {}
    gcloud.ack(sub, gcloud.pull(sub))
    assert gcloud("POST", f"{sub}:pull", {"maxMessages": 1, "returnImmediately": True}) == {}
    assert gcloud("POST", f"{sub}:seek", {"time": begun}) == {}
    gcloud.ack(sub, gcloud.pull(sub))
    assert gcloud.refused("POST", f"{topic}:publish", {"messages": [{}]}) == "INVALID_ARGUMENT"


def test_snapshots(gcloud: Gcloud) -> None:
    """create, describe, list, seek, delete."""
    topic = gcloud.topic("orders")
    sub, snapshot = gcloud.subscription(topic, "mail"), gcloud.path("snapshots", "snap")
    gcloud.publish(topic, "kept")
    made = gcloud("PUT", snapshot, {"labels": {"a": "b"}, "subscription": sub})
    assert (made["name"], made["topic"], made["labels"]) == (snapshot, topic, {"a": "b"})
    assert gcloud("GET", snapshot) == made
    assert gcloud("GET", f"{gcloud.project}/snapshots", pageSize=9)["snapshots"] == [made]
    gcloud.ack(sub, gcloud.pull(sub))
    assert gcloud("POST", f"{sub}:seek", {"snapshot": snapshot}) == {}
    gcloud.ack(sub, gcloud.pull(sub))
    assert gcloud("DELETE", snapshot) == {}
    assert gcloud.refused("GET", snapshot) == "NOT_FOUND"


def test_schemas(gcloud: Gcloud) -> None:
    """create, describe, commit, list, list-revisions, rollback, validate-schema, validate-message, delete-revision."""
    name = gcloud.path("schemas", "record")
    all_schemas = f"{gcloud.project}/schemas"
    body = {"definition": AVRO, "name": name, "type": "AVRO"}
    made = gcloud("POST", all_schemas, body, schemaId="record")
    assert (made["name"], made["definition"]) == (name, AVRO)
    wider = AVRO.replace("]}", ',{"name":"t","type":"string","default":""}]}')
    second = gcloud("POST", f"{name}:commit", {"name": name, "schema": body | {"definition": wider}})
    assert gcloud("GET", name, view="FULL") == second
    assert gcloud("GET", f"{name}@{made['revisionId']}", view="FULL")["definition"] == AVRO
    assert [one["type"] for one in gcloud("GET", all_schemas, view="BASIC", pageSize=9)["schemas"]] == ["AVRO"]
    revisions = gcloud("GET", f"{name}:listRevisions", view="FULL", pageSize=9)["schemas"]
    assert [one["revisionId"] for one in revisions] == [second["revisionId"], made["revisionId"]]
    third = gcloud("POST", f"{name}:rollback", {"revisionId": made["revisionId"]})
    assert third["definition"] == AVRO
    assert gcloud("POST", f"{all_schemas}:validate", {"schema": {"definition": AVRO, "type": "AVRO"}}) == {}
    data = base64.b64encode(b'{"n":1}').decode()
    inline = {"encoding": "JSON", "message": data, "schema": {"definition": AVRO, "type": "AVRO"}}
    assert gcloud("POST", f"{all_schemas}:validateMessage", inline) == {}
    by_name = {"encoding": "JSON", "message": base64.b64encode(b"{}").decode(), "name": name}
    assert gcloud.refused("POST", f"{all_schemas}:validateMessage", by_name) == "INVALID_ARGUMENT"
    gcloud("DELETE", f"{name}@{second['revisionId']}:deleteRevision")
    settings = {"encoding": "JSON", "firstRevisionId": made["revisionId"], "schema": name}
    topic = gcloud.topic("orders", schemaSettings=settings)
    assert gcloud("GET", topic)["schemaSettings"] == settings
    assert gcloud("DELETE", name) == {}


def test_policies(gcloud: Gcloud) -> None:
    """get-iam-policy, set-iam-policy, add-iam-policy-binding, of topics, subscriptions, snapshots and schemas."""
    topic = gcloud.topic("orders")
    sub = gcloud.subscription(topic, "mail")
    snapshot = gcloud("PUT", gcloud.path("snapshots", "snap"), {"subscription": sub})["name"]
    body = {"definition": AVRO, "type": "AVRO"}
    schema = gcloud("POST", f"{gcloud.project}/schemas", body, schemaId="record")["name"]
    binding = {"members": ["user:a@example.com"], "role": "roles/pubsub.viewer"}
    for resource in (topic, sub, snapshot, schema):
        options = {"options.requestedPolicyVersion": 3}
        policy = gcloud("GET", f"{resource}:getIamPolicy", **options)
        wished = {"bindings": [*policy.get("bindings", []), binding], "etag": policy["etag"], "version": 3}
        made = gcloud("POST", f"{resource}:setIamPolicy", {"policy": wished})
        assert made["bindings"] == wished["bindings"]
        assert gcloud("GET", f"{resource}:getIamPolicy", **options) == made
        late = {"policy": {"bindings": [], "etag": policy["etag"]}}
        assert gcloud.refused("POST", f"{resource}:setIamPolicy", late) == "ABORTED"
        kind = resource.split("/")[2]
        asked = {"permissions": [f"pubsub.{kind}.get", f"pubsub.{kind}.delete"]}
        assert gcloud("POST", f"{resource}:testIamPermissions", asked) == asked
