"""Transforms on messages, and which may be written."""

from __future__ import annotations

import json
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from syncpoint.base.model.limits import PUBLISH_REQUEST_BYTES_MAX
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.transforms import message_transforms
from syncpoint.catalog.transforms.compression import compressed
from syncpoint.catalog.transforms.definitions import CODE_BYTES_MAX, TRANSFORMS_MAX, check_transforms
from syncpoint.catalog.transforms.errors import NotTried, TransformError
from syncpoint.catalog.transforms.inference import Models
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.sandbox import Sandbox
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.loops import on_loop

pytestmark = pytest.mark.shows("transforms")

P, T = "projects/p", "projects/p/topics/t"
MODEL = "projects/p/locations/l/endpoints/sentiment"
KINDS = [
    (algorithm, mode)
    for algorithm in (pubsub.Compression.ZLIB, pubsub.Compression.ZSTD)
    for mode in (pubsub.Compression.COMPRESS, pubsub.Compression.DECOMPRESS)
]


class Model:
    """A model that answers as it is reported."""

    def __init__(self) -> None:
        self.status, self.answer = 200, b'{"score": 0.5}'
        self.asked: list[tuple[str, object]] = []

    async def __call__(
        self, url: str, body: bytes, authorization: bytes, timeout_s: float, answer_bytes_max: int
    ) -> tuple[int, bytes]:
        assert not authorization
        self.asked.append((url, json.loads(body)))
        if not self.status:
            raise OSError("connection refused")
        return self.status, self.answer


def make() -> Transformer:
    return Transformer(Sandbox(processes=1), Models({MODEL: "http://127.0.0.1:9/predict"}, Model()))


async def end(transformer: Transformer) -> None:
    await transformer.sandbox.close()


with_transformer = on_loop(make, end)


def model_of(transformer: Transformer) -> Model:
    model = transformer.models.client
    assert isinstance(model, Model)
    return model


def udf(code: str, name: str = "f", **rest: bool) -> pubsub.MessageTransform:
    return pubsub.MessageTransform(javascript_udf=pubsub.JavaScriptUDF(function_name=name, code=code), **rest)


def compression(algorithm: int, mode: int) -> pubsub.MessageTransform:
    kind = pubsub.Compression(compression_algorithm=algorithm, compression_mode=mode)
    return pubsub.MessageTransform(compression=kind)


def asked_by(account: str) -> pubsub.MessageTransform:
    found = inference()
    found.ai_inference.service_account_email = account
    return found


def inference(endpoint: str = MODEL, **parameters: object) -> pubsub.MessageTransform:
    kind = pubsub.AIInference(endpoint=endpoint)
    kind.unstructured_inference.SetInParent()
    kind.unstructured_inference.parameters.update(parameters)
    return pubsub.MessageTransform(ai_inference=kind)


def message(data: bytes, **attributes: str) -> pubsub.PubsubMessage:
    return pubsub.PubsubMessage(data=data, attributes=attributes, ordering_key="k", message_id="7")


@with_transformer
async def test_transforms_follow_each_other_and_each_message_has_its_own_outcome(transformer: Transformer) -> None:
    first = udf(
        "function f(m, d) { if (m.data === 'drop') return null; if (m.data === 'bad') throw Error('bad');"
        " m.attributes.seen = d.message_id + d.ordering_key; m.data += '!'; return m; }"
    )
    off = udf("function g(m) { return null; }", "g", disabled=True)
    transforms = [first, off, compression(pubsub.Compression.ZLIB, pubsub.Compression.COMPRESS)]
    given_ = [message(data, a="1") for data in (b"one", b"drop", b"bad", b"\xff", b"two")]
    one, dropped, bad, binary, two = await transformer.apply(P, transforms, given_)
    assert isinstance(one, pubsub.PubsubMessage)
    assert isinstance(two, pubsub.PubsubMessage)
    assert (zlib.decompress(one.data), zlib.decompress(two.data)) == (b"one!", b"two!")
    assert dict(one.attributes) == {"a": "1", "seen": "7k"}
    assert (one.ordering_key, one.message_id) == ("k", "7")
    assert dropped is None
    assert str(bad) == "message_transforms[0]: Error: bad"
    assert "UTF-8" in str(binary)
    assert given_[0].data == b"one"


@pytest.mark.parametrize("algorithm", [pubsub.Compression.ZLIB, pubsub.Compression.ZSTD])
@given(data=st.binary(max_size=2_000))
def test_what_is_compressed_comes_back(algorithm: int, data: bytes) -> None:
    forth = pubsub.Compression(compression_algorithm=algorithm, compression_mode=pubsub.Compression.COMPRESS)
    back = pubsub.Compression(compression_algorithm=algorithm, compression_mode=pubsub.Compression.DECOMPRESS)
    small = compressed(data, forth)
    assert compressed(small, back) == data
    for spoiled in (small[:-1], small + b"x", b"no" + small):
        with pytest.raises(TransformError):
            compressed(spoiled, back)


@pytest.mark.parametrize("pack", [zlib.compress, zstandard.compress], ids=["zlib", "zstd"])
def test_a_bomb_is_not_decompressed(pack) -> None:
    algorithm = pubsub.Compression.ZLIB if pack is zlib.compress else pubsub.Compression.ZSTD
    back = pubsub.Compression(compression_algorithm=algorithm, compression_mode=pubsub.Compression.DECOMPRESS)
    assert len(compressed(pack(bytes(PUBLISH_REQUEST_BYTES_MAX)), back)) == PUBLISH_REQUEST_BYTES_MAX
    for size in (PUBLISH_REQUEST_BYTES_MAX + 1, 1 << 28):
        with pytest.raises(TransformError, match="larger than 10000000 bytes"):
            compressed(pack(bytes(size)), back)


@with_transformer
async def test_messages_that_grow_too_large_together_are_not_all_kept(
    transformer: Transformer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_transforms, "RESULTS_BYTES_MAX", 2_500)
    back = compression(pubsub.Compression.ZLIB, pubsub.Compression.DECOMPRESS)
    found = await transformer.apply(P, [back], [message(zlib.compress(bytes(1_000)))] * 5)
    assert [type(one) for one in found] == [pubsub.PubsubMessage] * 2 + [NotTried] * 3


@with_transformer
async def test_no_function_makes_a_message_larger_than_one_may_be(transformer: Transformer) -> None:
    (found,) = await transformer.apply(
        P, [udf(f"function f(m) {{ return {{data: 'x'.repeat({PUBLISH_REQUEST_BYTES_MAX + 1})}}; }}")], [message(b"a")]
    )
    assert "larger than" in str(found)


@with_transformer
async def test_a_model_is_asked_with_parameters_and_its_answer_added(transformer: Transformer) -> None:
    model = model_of(transformer)
    (found,) = await transformer.apply(
        P, [inference(depth=2, kind="short")], [message(b'{"text": "hi", "kind": "long"}')]
    )
    assert model.asked == [("http://127.0.0.1:9/predict", {"depth": 2, "kind": "long", "text": "hi"})]
    assert isinstance(found, pubsub.PubsubMessage)
    assert json.loads(found.data) == {"model_input": model.asked[0][1], "model_output": {"score": 0.5}}


@pytest.mark.parametrize(
    ("status", "answer", "data", "said"),
    [
        (500, b"{}", b"{}", "status 500"),
        (0, b"", b"{}", "connection refused"),
        (200, b"<html>", b"{}", "did not answer with JSON"),
        (200, b"{}", b"[1]", "not a JSON object"),
        (200, b"{}", b"text", "not a JSON object"),
        (200, b"{}", b"[" * 100_000, "not a JSON object"),
        (200, b"[" * 100_000, b"{}", "did not answer with JSON"),
        (200, b"{}", b'{"a": "\\ud800"}', "not valid Unicode"),
        (200, b'"\\ud800"', b"{}", "not valid Unicode"),
    ],
)
@with_transformer
async def test_what_a_model_cannot_answer_is_an_error(
    transformer: Transformer, *, status: int, answer: bytes, data: bytes, said: str
) -> None:
    model = model_of(transformer)
    model.status, model.answer = status, answer
    (found,) = await transformer.apply(P, [inference()], [message(data)])
    assert said in str(found)


@pytest.mark.parametrize(
    ("transforms", "field"),
    [
        ([pubsub.MessageTransform()], "message_transforms[0]"),
        ([udf("function f() {}", "")], "message_transforms[0].javascript_udf.function_name"),
        ([udf("function f() {}", "f();g")], "message_transforms[0].javascript_udf.function_name"),
        ([udf("function f() {}"), udf("function f() {}")], "message_transforms[1].javascript_udf.function_name"),
        ([udf("")], "message_transforms[0].javascript_udf.code"),
        ([udf("function f( {")], "message_transforms[0].javascript_udf.code"),
        ([udf("function f() {}" + " " * (CODE_BYTES_MAX - 14))], "message_transforms[0].javascript_udf.code"),
        ([compression(0, 1)], "message_transforms[0].compression.compression_algorithm"),
        ([compression(1, 0)], "message_transforms[0].compression.compression_mode"),
        ([inference("sentiment")], "message_transforms[0].ai_inference.endpoint"),
        ([asked_by("nobody")], "message_transforms[0].ai_inference.service_account_email"),
        ([compression(*KINDS[0])] * (TRANSFORMS_MAX + 1), "message_transforms"),
    ],
)
@with_transformer
async def test_a_bad_transform_is_refused_by_its_field(
    transformer: Transformer, *, transforms: list[pubsub.MessageTransform], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await check_transforms(T, transforms, transformer)
    assert refused.value.field == field


@with_transformer
async def test_good_transforms_are_taken_and_models_nobody_configured_are_not(transformer: Transformer) -> None:
    fits = "function f() {}"
    longest = udf(fits + " " * (CODE_BYTES_MAX - len(fits)))
    await check_transforms(T, [longest, inference(), *(compression(*kind) for kind in KINDS[:3])], transformer)
    with pytest.raises(FailedPrecondition, match="No address is configured"):
        await check_transforms(T, [inference("projects/p/locations/l/publishers/a/models/b")], transformer)


@with_transformer
async def test_a_model_at_an_endpoint_of_the_deployment_is_not_taken(transformer: Transformer) -> None:
    transformer.models.is_own = lambda url: url.startswith("http")
    with pytest.raises(FailedPrecondition, match="leads back to this deployment"):
        await check_transforms(T, [inference()], transformer)


@with_transformer
async def test_a_model_is_asked_as_an_account_while_that_is_not_refused(transformer: Transformer) -> None:
    model = model_of(transformer)
    refusals = {T: "PERMISSION_DENIED: ann has no rights any more."}
    transformer.models.acting_refusal = lambda of: refusals.get(of.name, "")
    given = [message(b'{"q": 1}')]
    for topic in (T, "projects/p/topics/other"):
        config = pubsub.Topic(message_transforms=[asked_by("a@b.example")]).SerializeToString()
        (found,) = await transformer.transformed(Topic(1, topic, config=config), given)
        assert isinstance(found, TransformError)
        assert ("no rights" in str(found)) == (topic == T), found
    assert not model.asked, "nothing signs here"
    config = pubsub.Topic(message_transforms=[inference()]).SerializeToString()
    (found,) = await transformer.transformed(Topic(1, T, config=config), given)
    assert isinstance(found, pubsub.PubsubMessage), "it is asked as nobody"


@with_transformer
async def test_a_model_is_asked_for_projects_that_may_alone(transformer: Transformer) -> None:
    transformer.models.may_use = lambda project, endpoint: (project, endpoint) == ("projects/good", MODEL)
    message = pubsub.PubsubMessage(data=b'{"q": 1}')
    (good,) = await transformer.apply("projects/good", [inference()], [message])
    assert isinstance(good, pubsub.PubsubMessage)
    (bad,) = await transformer.apply("projects/bad", [inference()], [message])
    assert "projects/bad may not use" in str(bad)
    with pytest.raises(PermissionDenied, match="may not use"):
        await check_transforms("projects/bad/topics/t", [inference()], transformer)
