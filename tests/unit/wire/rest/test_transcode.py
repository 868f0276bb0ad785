"""JSON becomes the request that a gRPC client would send, or is refused in Google's words."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.wire.protobuf.messages import POOL, admin, iam, pubsub
from syncpoint.wire.protobuf.status import error_info, retry_info, unpacked
from syncpoint.wire.rest.errors import HTTP_STATUS, bad_request, error_json, headers_for
from syncpoint.wire.rest.table import Table
from syncpoint.wire.rest.transcode import VALUES_MAX, request_of, response_json, selected, selection

TABLE = Table()
TOPIC, SUB = "/v1/projects/p/topics/t", "/v1/projects/p/subscriptions/s"


def request(verb: str, path: str, body: Any = None, *query: tuple[str, str]) -> Any:
    found = TABLE.find(verb, path)
    assert found is not None
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return found[0].method.request.FromString(request_of(*found, query, data))


def refusal(verb: str, path: str, body: Any = None, *query: tuple[str, str]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        request(verb, path, body, *query)
    (detail,) = unpacked(caught.value.details)
    assert detail.field_violations[0].description == caught.value.message
    return caught.value.message


def test_the_whole_body_and_the_path() -> None:
    body = {"labels": {"a": "b"}, "message_retention_duration": "600s", "name": "projects/p/topics/other"}
    assert request("PUT", TOPIC, body) == pubsub.Topic(
        name="projects/p/topics/t", labels={"a": "b"}, message_retention_duration={"seconds": 600}
    )
    assert request("POST", f"{SUB}:detach") == pubsub.DetachSubscriptionRequest(
        subscription="projects/p/subscriptions/s"
    )


def test_one_field_as_the_body_and_the_rest_in_the_query() -> None:
    body = {"type": "AVRO", "definition": "{}"}
    assert request("POST", "/v1/projects/p/schemas", body, ("schemaId", "x")) == pubsub.CreateSchemaRequest(
        parent="projects/p", schema_id="x", schema={"type": pubsub.Schema.AVRO, "definition": "{}"}
    )
    limits = request("PATCH", "/admin/v1/limits", {"topic": {"messages": "7"}}, ("updateMask", "topic"))
    assert limits == admin.UpdateLimitsRequest(limits={"topic": {"messages": 7}}, update_mask={"paths": ["topic"]})


def test_a_query_reaches_into_messages_lists_and_enums() -> None:
    assert request("GET", f"{TOPIC}:getIamPolicy", None, ("options.requestedPolicyVersion", "3")) == (
        iam.GetIamPolicyRequest(resource="projects/p/topics/t", options={"requested_policy_version": 3})
    )
    assert request("GET", "/v1/projects/p/topics", None, ("page_size", "2"), ("pageToken", "x")) == (
        pubsub.ListTopicsRequest(project="projects/p", page_size=2, page_token="x")
    )
    assert request("GET", "/v1/projects/p/schemas", None, ("view", "FULL")).view == pubsub.SchemaView.FULL
    asked = request("POST", f"{TOPIC}:testIamPermissions", None, ("permissions", "a"), ("permissions", "b"))
    assert asked.permissions == ["a", "b"]


@pytest.mark.parametrize(
    "mask",
    ["ackDeadlineSeconds,retryPolicy.minimumBackoff", "ack_deadline_seconds,retry_policy.minimum_backoff"],
)
def test_field_masks_in_body_and_query(mask: str) -> None:
    paths = ["ack_deadline_seconds", "retry_policy.minimum_backoff"]
    content = {"subscription": {"ackDeadlineSeconds": 20}}
    assert request("PATCH", SUB, {**content, "updateMask": mask}).update_mask.paths == paths
    assert request("PATCH", SUB, content, ("updateMask", mask)).update_mask.paths == paths
    assert request("PATCH", SUB, content, *(("updateMask", one) for one in mask.split(","))).update_mask.paths == paths


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("data", [b"", b"\xfb\xff", b"\xfb\xff\xfe", bytes(range(256))])
def test_data_is_base64_of_either_alphabet(encode: Any, data: bytes) -> None:
    text = encode(data).decode()
    for one in (text, text.rstrip("=")):
        assert request("POST", f"{TOPIC}:publish", {"messages": [{"data": one}]}).messages[0].data == data


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"bogus": 1}, 'Unknown name "bogus": Cannot find field.'),
        ({"messages": [{"bogus": 1}]}, "Unknown name \"bogus\" at 'messages[0]': Cannot find field."),
        ({"messages": [{"data": "a%bb"}]}, "'messages[0].data' (TYPE_BYTES), Base64 decoding failed."),
        ({"messages": [{"data": "a"}]}, "Base64 decoding failed."),
        ({"messages": [{"data": 1}]}, "Base64 decoding failed."),
        ({"messages": {}}, "Invalid value at 'messages': a list is expected."),
        ({"messages": [3]}, "Invalid value at 'messages[0]' (google.pubsub.v1.PubsubMessage)"),
        ({"messages": [{"attributes": {"k": 1}}]}, "Invalid JSON payload"),
        ({"messages": [{"orderingKey": []}]}, "Invalid value at 'messages[0].ordering_key'"),
        ({"messages": [{"publishTime": "yesterday"}]}, "Invalid JSON payload"),
        ({"messages": [{"messageId": "1", "message_id": "2"}]}, "given twice"),
        ([], "Root element must be a message"),
        (b"{", "Invalid JSON payload"),
        (b'{"messages": [], "messages": []}', "given twice in one object"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "Invalid JSON payload"),
        (b'{"messages":[' + b"{}," * VALUES_MAX + b"{}]}", "more than 250000 values"),
        (b'{"topic": NaN}', "Unexpected token NaN"),
        (b'{"topic": "\\ud800"}', "Invalid JSON payload"),
    ],
)  # fmt: skip
def test_refused_bodies(body: Any, text: str) -> None:
    assert text in refusal("POST", f"{TOPIC}:publish", body)


def test_commas_inside_of_text_are_no_values() -> None:
    text = "," * (VALUES_MAX + 1)
    assert request("POST", f"{TOPIC}:publish", {"messages": [{"orderingKey": text}]}).messages[0].ordering_key == text


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (("bogus", "1"), "Unknown name \"bogus\": Cannot bind query parameter. Field 'bogus' could not be found"),
        (("pageSize.x", "1"), "Cannot bind query parameter"),
        (("pageSize", "x"), "Failed to parse pageSize field: 'x' is not an integer"),
        (("pageSize", "99999999999"), "Invalid JSON payload"),
    ],
)
def test_refused_queries(query: tuple[str, str], text: str) -> None:
    assert text in refusal("GET", "/v1/projects/p/topics", None, query)


def test_a_parameter_is_given_once() -> None:
    assert "given twice" in refusal("GET", "/v1/projects/p/topics", None, ("pageSize", "1"), ("pageSize", "2"))


def test_a_get_has_no_body() -> None:
    assert "must not have a body" in refusal("GET", TOPIC, {"a": 1})
    assert request("GET", TOPIC, {}).topic == "projects/p/topics/t"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "labels", "messageRetentionDuration", "schemaSettings", "encoding", "state", "tags",
                         "messageTransforms", "aiInference", "unstructuredInference", "parameters", "kmsKeyName",
                         "messageStoragePolicy", "allowedPersistenceRegions", "x"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(values)
def test_any_json_is_a_request_or_refused(value: Any) -> None:
    with contextlib.suppress(InvalidArgument):
        request("PUT", TOPIC, json.dumps(value).encode())


def test_responses_leave_defaults_out_and_spell_numbers_of_64_bits_as_text() -> None:
    found = TABLE.find("GET", TOPIC)
    assert found is not None
    topic = pubsub.Topic(name="projects/p/topics/t", state=pubsub.Topic.ACTIVE)
    assert response_json(found[0], topic.SerializeToString()) == {"name": "projects/p/topics/t", "state": "ACTIVE"}
    assert response_json(found[0], topic.SerializeToString(), True)["state"] == 1
    server = TABLE.find("GET", "/admin/v1/server")
    assert server is not None
    assert response_json(server[0], admin.Server(universe=2**63).SerializeToString()) == {"universe": str(2**63)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nextPageToken", {"nextPageToken": "n"}),
        ("topics/name", {"topics": [{"name": "a"}, {"name": "b"}]}),
        ("topics(name,labels/x),next_page_token", {"topics": [{"name": "a", "labels": {"x": "1"}}, {"name": "b"}],
                                                   "nextPageToken": "n"}),
        ("topics.labels", {"topics": [{"labels": {"x": "1", "y": "2"}}, {}]}),
        ("topics/labels/x,topics/labels", {"topics": [{"labels": {"x": "1", "y": "2"}}, {}]}),
        ("*/name", {"topics": [{"name": "a"}, {"name": "b"}], "nextPageToken": "n"}),
    ],
)  # fmt: skip
def test_partial_responses(text: str, expected: Any) -> None:
    value = {"topics": [{"name": "a", "labels": {"x": "1", "y": "2"}}, {"name": "b"}], "nextPageToken": "n"}
    assert selected(value, selection(text, pubsub.ListTopicsResponse.DESCRIPTOR)) == expected


@pytest.mark.parametrize(
    "text", ["bogus", "topics(name", "topics)", "topics/", ",", "topics(bogus)", "(" * 200, "a" * 9999]
)
def test_selections_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"field selection|too long"):
        selection(text, pubsub.ListTopicsResponse.DESCRIPTOR)


def test_errors_have_their_status_and_their_details() -> None:
    assert set(HTTP_STATUS) == set(Code) - {Code.OK}
    error = SyncpointError(Code.NOT_FOUND, "gone", [error_info("R", {"a": "b"}), b"\x0a\x01?\x12\x01x"])
    assert error_json(error) == {
        "error": {
            "code": 404,
            "message": "gone",
            "status": "NOT_FOUND",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "R",
                    "domain": "pubsub.googleapis.com",
                    "metadata": {"a": "b"},
                },
                {"@type": "?", "value": "eA=="},
            ],
        }
    }
    assert error_json(error, legacy=True)["error"]["errors"] == [
        {"message": "gone", "domain": "global", "reason": "notFound"}
    ]
    assert headers_for(SyncpointError(Code.RESOURCE_EXHAUSTED, "", [retry_info(1.2)])) == {"retry-after": "2"}
    assert "www-authenticate" in headers_for(SyncpointError(Code.UNAUTHENTICATED, ""))
    assert headers_for(bad_request("f", "x")) == {}


def test_what_google_writes_is_read_back() -> None:
    """The official client over REST writes its requests with json_format."""
    original = pubsub.Subscription(
        name="projects/p/subscriptions/s",
        topic="projects/p/topics/t",
        push_config={"push_endpoint": "https://x", "attributes": {"a": "b"}, "no_wrapper": {"write_metadata": True}},
        expiration_policy={},
        retry_policy={"minimum_backoff": {"seconds": 1, "nanos": 5}},
    )
    text = json_format.MessageToJson(original, use_integers_for_enums=True, descriptor_pool=POOL)
    assert request("PUT", SUB, text.encode()) == original
