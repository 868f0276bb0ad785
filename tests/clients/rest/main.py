"""REST as gcloud and curl speak it, against a running Syncpoint: one JSON line per scenario on stdout.

Plain HTTP/1.1 with JSON bodies in camelCase and `?alt=json`; PUBSUB_EMULATOR_HOST names the server. StreamingPull has
no REST method: what needs it is skipped, or done with pull. What the driver is asked for is said in python/main.py.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

PROJECT = os.environ.get("CLIENT_PROJECT") or f"p{time.time_ns():x}"
SECONDS = 60
OUTAGE_SECONDS = 200
DEFINITION = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'
CODE = "function up(message, metadata) { message.data = message.data.toUpperCase(); return message; }"
HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "google-cloud-sdk gcloud"}


class Skip(Exception):
    """REST has no such method."""


class Refused(Exception):
    """The server answered with an error; `status` is its canonical name."""

    def __init__(self, code: int, body: Any) -> None:
        super().__init__(f"HTTP {code}: {body}")
        self.status = body["error"]["status"]


def want(holds: object, what: object) -> None:
    if not holds:
        raise AssertionError(what)


def call(method: str, path: str, body: Any = None, query: str = "", timeout: float = 20) -> Any:
    host = os.environ["PUBSUB_EMULATOR_HOST"]
    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, f"/v1/{path}?alt=json{query}", data, HEADERS)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        want(answer["error"]["code"] == response.status, answer)
        raise Refused(response.status, answer)
    return answer


class Space:
    """Names with the scenario in them."""

    prefix = ""

    def name(self, kind: str, short: str) -> str:
        return f"projects/{PROJECT}/{kind}/{self.prefix}-{short}"

    def topic(self, short: str = "topic", **fields: Any) -> str:
        return str(call("PUT", self.name("topics", short), fields)["name"])

    def sub(self, topic: str, short: str = "sub", **fields: Any) -> str:
        body = {"topic": topic, "ackDeadlineSeconds": 10, **fields}
        return str(call("PUT", self.name("subscriptions", short), body)["name"])

    def pair(self, **fields: Any) -> tuple[str, str]:
        topic = self.topic()
        return topic, self.sub(topic, **fields)


def message(body: str, **fields: Any) -> dict[str, Any]:
    return {"data": base64.b64encode(body.encode()).decode(), **fields}


def publish_all(topic: str, *messages: dict[str, Any]) -> list[str]:
    return list(call("POST", f"{topic}:publish", {"messages": list(messages)})["messageIds"])


def pull_once(sub: str, wait: float = 4.0) -> list[Any]:
    end = time.monotonic() + wait
    while True:
        got = call("POST", f"{sub}:pull", {"maxMessages": 100, "returnImmediately": True}).get("receivedMessages", [])
        if got or time.monotonic() > end:
            return list(got)
        time.sleep(0.05)


def pull_all(sub: str, count: int) -> list[Any]:
    got: list[Any] = []
    end = time.monotonic() + SECONDS
    while len(got) < count:
        want(time.monotonic() < end, f"{len(got)} of {count} messages came")
        got += pull_once(sub)
    return got


def bodies(got: list[Any]) -> list[str]:
    return [base64.b64decode(one["message"]["data"]).decode() for one in got]


def ack_all(sub: str, got: list[Any]) -> None:
    call("POST", f"{sub}:acknowledge", {"ackIds": [one["ackId"] for one in got]})


def deadline(sub: str, got: list[Any], seconds: int) -> None:
    ids = [one["ackId"] for one in got]
    call("POST", f"{sub}:modifyAckDeadline", {"ackIds": ids, "ackDeadlineSeconds": seconds})


def refused(status: str, method: str, path: str, body: Any = None) -> None:
    try:
        call(method, path, body)
    except Refused as error:
        want(error.status == status, error)
        return
    raise AssertionError(f"no {status}")


def listed(kind: str) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        page = call("GET", f"projects/{PROJECT}/{kind}", query=f"&pageSize=1&pageToken={token}")
        names += [one["name"] for one in page.get(kind, [])]
        token = page.get("nextPageToken", "")
        if not token:
            return names


def topics(s: Space) -> None:
    name = s.topic(labels={"team": "a"})
    want(call("GET", name)["labels"] == {"team": "a"}, "label lost")
    refused("ALREADY_EXISTS", "PUT", name, {})
    change = {"topic": {"name": name, "messageRetentionDuration": "3600s"}, "updateMask": "messageRetentionDuration"}
    changed = call("PATCH", name, change)
    want(changed["messageRetentionDuration"] == "3600s" and changed["labels"] == {"team": "a"}, changed)
    want(name in listed("topics"), "not listed")
    want(call("DELETE", name) == {}, "an answer with something in it")
    refused("NOT_FOUND", "GET", name)


def subscriptions(s: Space) -> None:
    topic, name = s.pair()
    want(call("GET", name)["topic"] == topic, "topic lost")
    wished = {"name": name, "ackDeadlineSeconds": 42, "labels": {"a": "b"}}
    changed = call("PATCH", name, {"subscription": wished, "updateMask": "ackDeadlineSeconds,labels"})
    want(changed["ackDeadlineSeconds"] == 42 and changed["labels"] == {"a": "b"}, changed)
    want(name in listed("subscriptions"), "not listed")
    want(call("GET", f"{topic}/subscriptions")["subscriptions"] == [name], "not listed at its topic")
    call("DELETE", name)
    refused("NOT_FOUND", "GET", name)


def publish(s: Space) -> None:
    topic, sub = s.pair(enableMessageOrdering=True)
    sent = [message(str(n), attributes={"n": str(n), "é": "ü"}, orderingKey="k") for n in range(20)]
    ids = publish_all(topic, *sent)
    got: list[Any] = []
    while len(got) < len(ids):
        fresh = pull_all(sub, 1)
        ack_all(sub, fresh)
        got += [one["message"] for one in fresh]
    want([one["messageId"] for one in got] == ids, "out of order")
    fields = ("data", "attributes", "orderingKey")
    want([{field: one[field] for field in fields} for one in got] == sent, got)


def pull(s: Space) -> None:
    topic, sub = s.pair()
    publish_all(topic, message("a"), message("b"), message("c"))
    want(sorted(bodies(pull_all(sub, 3))) == ["a", "b", "c"], "other messages")


def ack(s: Space) -> None:
    topic, sub = s.pair()
    publish_all(topic, message("a"), message("b"))
    ack_all(sub, pull_all(sub, 2))
    time.sleep(11)
    want(not pull_once(sub, 2), "acknowledged messages came again")


def nack(s: Space) -> None:
    topic, sub = s.pair()
    publish_all(topic, message("a"))
    for _ in range(2):
        deadline(sub, pull_all(sub, 1), 0)
    ack_all(sub, pull_all(sub, 1))


def modack(s: Space) -> None:
    topic, sub = s.pair()
    publish_all(topic, message("a"))
    first = pull_all(sub, 1)
    deadline(sub, first, 60)
    time.sleep(11)
    want(not pull_once(sub, 2), "came again although its deadline was extended")
    deadline(sub, first, 0)
    ack_all(sub, pull_all(sub, 1))


def exactly_once(s: Space) -> None:
    topic, sub = s.pair(enableExactlyOnceDelivery=True)
    publish_all(topic, message("a"))
    old = pull_all(sub, 1)
    deadline(sub, old, 0)
    ack_all(sub, pull_all(sub, 1))
    refused("INVALID_ARGUMENT", "POST", f"{sub}:acknowledge", {"ackIds": [old[0]["ackId"]]})


def dead_letter(s: Space) -> None:
    dead = s.topic("dead")
    letters = s.sub(dead, "dead")
    topic, sub = s.pair(deadLetterPolicy={"deadLetterTopic": dead, "maxDeliveryAttempts": 5})
    publish_all(topic, message("poison"))
    for attempt in range(1, 6):
        got = pull_all(sub, 1)
        want(got[0]["deliveryAttempt"] == attempt, got)
        deadline(sub, got, 0)
    (letter,) = pull_all(letters, 1)
    want(letter["message"]["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "5", letter)


def filters(s: Space) -> None:
    topic, sub = s.pair(filter='attributes.colour = "red"')
    colours = {"1": "blue", "2": "red"}
    publish_all(topic, *(message(body, attributes={"colour": colour}) for body, colour in colours.items()))
    want(bodies(pull_all(sub, 1)) == ["2"], "other messages")


def snapshot_seek(s: Space) -> None:
    topic, sub = s.pair()
    publish_all(topic, message("a"), message("b"))
    snapshot = s.name("snapshots", "snap")
    want(call("PUT", snapshot, {"subscription": sub})["topic"] == topic, "topic lost")
    ack_all(sub, pull_all(sub, 2))
    call("POST", f"{sub}:seek", {"snapshot": snapshot})
    ack_all(sub, pull_all(sub, 2))
    call("DELETE", snapshot)


def made_schema(s: Space) -> Any:
    body = {"type": "AVRO", "definition": DEFINITION}
    return call("POST", f"projects/{PROJECT}/schemas", body, query=f"&schemaId={s.prefix}-schema")


def schema(s: Space) -> None:
    made = made_schema(s)
    topic = s.topic(schemaSettings={"schema": made["name"], "encoding": "JSON"})
    sub = s.sub(topic)
    publish_all(topic, message('{"n":1}'))
    attributes = pull_all(sub, 1)[0]["message"]["attributes"]
    want(attributes["googclient_schemaencoding"] == "JSON", attributes)
    want(attributes["googclient_schemarevisionid"] == made["revisionId"], attributes)
    refused("INVALID_ARGUMENT", "POST", f"{topic}:publish", {"messages": [message('{"n":"x"}')]})


def iam(s: Space) -> None:
    topic = s.topic()
    policy = call("GET", f"{topic}:getIamPolicy")
    binding = {"role": "roles/pubsub.viewer", "members": ["user:a@example.com"]}
    policy["bindings"] = [*policy.get("bindings", []), binding]
    made = call("POST", f"{topic}:setIamPolicy", {"policy": policy})
    want(made["bindings"] == policy["bindings"] and made["etag"], made)
    asked = ["pubsub.topics.publish", "pubsub.topics.get"]
    tested = call("POST", f"{topic}:testIamPermissions", {"permissions": asked})
    want(sorted(tested["permissions"]) == sorted(asked), tested)


def push_config(s: Space) -> None:
    _, sub = s.pair()
    for push in ({"pushEndpoint": "https://push.example.com/x"}, {}):
        want(call("POST", f"{sub}:modifyPushConfig", {"pushConfig": push}) == {}, "an answer with something in it")
        read = call("GET", sub).get("pushConfig", {})
        want(read.get("pushEndpoint") == push.get("pushEndpoint"), read)


def transforms(s: Space) -> None:
    udf = {"functionName": "up", "code": CODE}
    topic = s.topic(messageTransforms=[{"javascriptUdf": udf}])
    sub = s.sub(topic)
    want(call("GET", topic)["messageTransforms"][0]["javascriptUdf"] == udf, "read back otherwise")
    publish_all(topic, message("quiet"))
    want(bodies(pull_all(sub, 1)) == ["QUIET"], "not transformed")


def schema_revisions(s: Space) -> None:
    made = made_schema(s)
    name = made["name"]
    wider = DEFINITION.replace("]}", ',{"name":"t","type":"string","default":""}]}')
    second = call("POST", f"{name}:commit", {"schema": {"name": name, "type": "AVRO", "definition": wider}})

    def revisions() -> list[str]:
        return [one["revisionId"] for one in call("GET", f"{name}:listRevisions", query="&view=FULL")["schemas"]]

    want(revisions() == [second["revisionId"], made["revisionId"]], revisions())
    fits = {"name": name, "encoding": "JSON", "message": base64.b64encode(b'{"n":1,"t":"x"}').decode()}
    want(call("POST", f"projects/{PROJECT}/schemas:validateMessage", fits) == {}, "an answer with something in it")
    third = call("POST", f"{name}:rollback", {"revisionId": made["revisionId"]})
    want(third["definition"] == DEFINITION, third)
    call("DELETE", f"{name}@{second['revisionId']}:deleteRevision")
    want(revisions() == [third["revisionId"], made["revisionId"]], revisions())
    wrong = {"schema": {"type": "AVRO", "definition": "{"}}
    refused("INVALID_ARGUMENT", "POST", f"projects/{PROJECT}/schemas:validate", wrong)


def push_create(s: Space) -> None:
    token = {"serviceAccountEmail": "pusher@example.iam.gserviceaccount.com", "audience": "us"}
    push = {"pushEndpoint": "https://push.example.com/x", "attributes": {"x-goog-version": "v1"}, "oidcToken": token}
    _, sub = s.pair(pushConfig=push)
    want(call("GET", sub)["pushConfig"] == push, call("GET", sub))
    refused("FAILED_PRECONDITION", "POST", f"{sub}:pull", {"maxMessages": 1})


def detach(s: Space) -> None:
    topic, sub = s.pair()
    call("POST", f"{sub}:detach")
    want(call("GET", sub)["detached"] is True, "not detached")
    want(call("GET", f"{topic}/subscriptions") == {}, "still listed at its topic")
    refused("FAILED_PRECONDITION", "POST", f"{sub}:pull", {"maxMessages": 1})


def seek_time(s: Space) -> None:
    topic, sub = s.pair(retainAckedMessages=True)
    start = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    publish_all(topic, message("a"), message("b"))
    ack_all(sub, pull_all(sub, 2))
    call("POST", f"{sub}:seek", {"time": start})
    ack_all(sub, pull_all(sub, 2))


def compression(s: Space) -> None:
    topic, sub = s.pair()
    connection = http.client.HTTPConnection(os.environ["PUBSUB_EMULATOR_HOST"], timeout=20)
    data = gzip.compress(json.dumps({"messages": [message("x" * 50_000)]}).encode())
    connection.request("POST", f"/v1/{topic}:publish", data, HEADERS | {"Content-Encoding": "gzip"})
    response = connection.getresponse()
    want(response.status == 200, response.read())
    connection.close()
    want(bodies(pull_all(sub, 1)) == ["x" * 50_000], "another message")


def tracing(s: Space) -> None:
    topic, sub = s.pair()
    attributes = {"googclient_traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    publish_all(topic, message("a", attributes=attributes))
    want(pull_all(sub, 1)[0]["message"]["attributes"] == attributes, "other attributes")


def no_streams(_: Space) -> None:
    raise Skip("REST has no streaming pull")


def no_client(_: Space) -> None:
    raise Skip("ordering keys are paused by clients, not by the service")


def restart(s: Space) -> None:
    """REST has no stream to hold open: what is published and not acknowledged is there after the restart."""
    flow(s, "restart")


def rolling(s: Space) -> None:
    """All processes of the server are restarted in turn in the meantime."""
    flow(s, "rolling")


def insist(method: str, path: str, body: Any) -> Any:
    """A call that is repeated for as long as the server is away."""
    end = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            return call(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            want(time.monotonic() < end, f"{method} {path}: {error!r}")
        except Refused as error:
            want(error.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED") and time.monotonic() < end, error)
        time.sleep(0.2)


def flow(s: Space, what: str) -> None:
    """Publish and pull until the driver has done what it is asked for; everything published is received."""
    topic, sub = s.pair()
    sent, after = 0, 0
    seen: set[str] = set()

    def take() -> None:
        request = {"maxMessages": 100, "returnImmediately": True}
        got = insist("POST", f"{sub}:pull", request).get("receivedMessages", [])
        if got:
            insist("POST", f"{sub}:acknowledge", {"ackIds": [one["ackId"] for one in got]})
        seen.update(bodies(got))

    print(json.dumps({"ask": what}), flush=True)
    answered = threading.Thread(target=sys.stdin.readline, daemon=True)
    answered.start()
    while after < 50:
        insist("POST", f"{topic}:publish", {"messages": [message(str(sent))]})
        sent += 1
        after += not answered.is_alive()
        if sent % 5 == 0:
            take()
        time.sleep(0.02)
    end = time.monotonic() + SECONDS
    while len(seen) < sent:
        want(time.monotonic() < end, f"{len(seen)} of {sent} came")
        take()


SCENARIOS = {
    "topics": topics, "subscriptions": subscriptions, "publish": publish, "pull": pull,
    "streaming_pull": no_streams, "ack": ack, "nack": nack, "modack": modack, "exactly_once": exactly_once,
    "dead_letter": dead_letter, "filter": filters, "snapshot_seek": snapshot_seek, "schema": schema, "iam": iam,
    "push_config": push_config, "transforms": transforms, "schema_revisions": schema_revisions,
    "push_create": push_create, "detach": detach, "ordering_resume": no_client, "seek_time": seek_time,
    "compression": compression, "tracing": tracing, "cancel": no_streams, "idle": no_streams, "restart": restart,
    "rolling": rolling,
}  # fmt: skip


def main() -> None:
    space = Space()
    asked = [name for name in os.environ.get("SCENARIOS", "").split(",") if name]
    for name in asked or SCENARIOS:
        space.prefix = name
        result, detail = "pass", ""
        try:
            SCENARIOS[name](space)
        except Skip as reason:
            result, detail = "skip", str(reason)
        except Exception as error:
            traceback.print_exc()
            result, detail = "fail", f"{type(error).__name__}: {error}"
        print(json.dumps({"scenario": name, "result": result, "detail": detail}), flush=True)


if __name__ == "__main__":
    main()
