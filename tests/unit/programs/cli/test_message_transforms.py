"""Files of message transforms, as `gcloud` reads them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import click
import pytest

from syncpoint.programs.cli.message_transforms import changed_transforms, read_transforms
from syncpoint.wire.protobuf.messages import pubsub

UDF = "javascriptUdf: {functionName: f, code: 'function f(m) { return m; }'}"


@pytest.mark.parametrize("text", [f"- {UDF}\n", f"{UDF}\n", f"messageTransforms:\n- {UDF}\n"])
def test_a_list_one_transform_or_both_in_a_field_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(text)
    (found,) = read_transforms(path)
    assert found.javascript_udf.function_name == "f"


@pytest.mark.parametrize("text", ["- nonsense: 1\n", "text\n", "{"])
def test_what_is_no_transform_is_refused_with_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(text)
    with pytest.raises(click.UsageError, match=r"transforms\.yaml"):
        read_transforms(path)


def test_an_update_keeps_changes_or_clears_them(tmp_path: Path) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(f"- {UDF}\n")
    assert changed_transforms(None, False) is None
    assert changed_transforms(None, True) == []
    assert len(changed_transforms(path, False) or []) == 1
    with pytest.raises(click.UsageError, match="cannot be combined"):
        changed_transforms(path, True)


CODE = """
function double(message, metadata) {
  const order = JSON.parse(message.data);
  if (order.test) return null;
  return {data: JSON.stringify({n: 2 * order.n, id: metadata.message_id}), attributes: {a: message.attributes.a + "!"}};
}
"""
DOUBLE = pubsub.MessageTransform(javascript_udf={"function_name": "double", "code": CODE})
COMPRESS = pubsub.MessageTransform(compression={"compression_algorithm": "ZLIB", "compression_mode": "COMPRESS"})
INFER = pubsub.MessageTransform(ai_inference={"endpoint": "projects/p/locations/l/endpoints/e"})


@pytest.mark.parametrize(
    ("transforms", "data", "code", "steps"),
    [
        ([DOUBLE, COMPRESS, INFER], '{"n": 4}', 0, [
            "transformed", "transformed", "not tested: only a server asks models",
        ]),
        ([DOUBLE, COMPRESS], '{"test": 1}', 0, ["dropped"]),
        ([COMPRESS, DOUBLE], "x", 1, ["transformed", "failed: the data is not valid UTF-8, which a function needs"]),
        ([pubsub.MessageTransform(compression=COMPRESS.compression, disabled=True)], "x", 0, []),
    ],
)  # fmt: skip
def test_transforms_are_tried_step_by_step(server, run, transforms, data, code, steps):
    server.answers["Publisher.GetTopic"] = pubsub.Topic(message_transforms=transforms)
    words = ["--topic", "orders", "--attribute", "a=1", "--format", "json"]
    result = run("message-transforms", "test", data, *words)
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert [one["result"] for one in found] == steps
    if len(steps) == 3:
        assert (found[0]["transform"], found[0]["message"]["attributes"]) == ("double", {"a": "1!"})
        assert base64.b64decode(found[0]["message"]["data"]) == b'{"n":8}'
    assert [method for method, _ in server.calls] == ["Publisher.GetTopic"], "nothing is published"


def test_transforms_of_files_and_subscriptions_are_tried(server, run, tmp_path):
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(message_transforms=[DOUBLE])
    assert '{"n":8,"id":"1"}' in run("message-transforms", "test", '{"n": 4}', "--subscription", "billing").stdout
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription()
    assert "has no transforms" in run("message-transforms", "test", "x", "--subscription", "billing").stderr
    server.calls.clear()
    path = tmp_path / "transforms.yaml"
    path.write_text(f"- {UDF}\n")
    result = run("message-transforms", "test", "-", "--message-transforms-file", str(path), input="hällo")
    assert result.stdout.splitlines()[-1].split() == ["f", "transformed", "hällo"]
    assert run("message-transforms", "validate", "--message-transforms-file", str(path)).exit_code == 0
    path.write_text(f"- {UDF}\n".replace("function f", "function g"))
    for words in (["validate"], ["test", "x"]):
        result = run("message-transforms", *words, "--message-transforms-file", str(path))
        assert result.exit_code == 1
        assert "message_transforms[0].javascript_udf.code: the code defines no function f" in result.stderr
    for words in (["validate"], ["test", "x"], ["test", "x", "--message", "y", "--topic", "orders"]):
        assert run("message-transforms", *words).exit_code == 2
    assert server.calls == []
