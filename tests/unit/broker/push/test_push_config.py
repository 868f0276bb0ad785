"""What a push_config may say."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.push_config import Endpoint, check_push_config, endpoint_of, push_config_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

STRICT, DEVELOPMENT = Vetting(), Vetting(networks(["loopback"]))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://e.example", Endpoint("https", "e.example", 443, "/")),
        ("https://E.Example:8443/a/b?c=d&e", Endpoint("https", "e.example", 8443, "/a/b?c=d&e")),
        ("https://xn--bcher-kva.example/", Endpoint("https", "xn--bcher-kva.example", 443, "/")),
        ("https://8.8.8.8/x", Endpoint("https", "8.8.8.8", 443, "/x")),
        ("https://[2606:4700::1111]:444/", Endpoint("https", "2606:4700::1111", 444, "/")),
    ],
)
def test_endpoints(url: str, endpoint: Endpoint) -> None:
    assert endpoint_of(url, STRICT) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "e.example", "//e.example/", "ftp://e.example/", "unix:/run/x.sock", "file:///etc/passwd", "http://e.example/",
        "https://", "https:///x", "https://user@e.example/", "https://e.example@127.0.0.1/", "https://e.example#f",
        "https://e.example:0/", "https://e.example:99999/", "https://e.example:x/", "https://e.example:/",
        "https://e .example/", "https://e.example/a\r\nHost: x", "https://e.example\\@127.0.0.1/", "https://bücher.example/",
        "https://127.0.0.1/", "https://localhost/", "https://[::1]/", "https://0.0.0.0/", "https://169.254.169.254/",
        "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://0x7f.1/",
        "https://[::ffff:10.0.0.1]/", "https://[fd00::8]/", "https://[fe80::1%25eth0]/", "https://10.0.0.1/",
        "https://-e.example/", "https://e..example/", "https://" + "e" * 64 + ".example/",
        "https://e.example/" + "x" * 2048,
    ],
)  # fmt: skip
def test_what_is_no_endpoint(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        endpoint_of(url, STRICT)
    assert refused.value.field == "push_config.push_endpoint"
    assert "\r" not in refused.value.message


def test_http_is_for_programs_on_this_machine_and_only_if_the_operator_says_so() -> None:
    for url in ("http://localhost:8080/push", "http://127.0.0.1:1/", "http://[::1]:2/"):
        assert endpoint_of(url, DEVELOPMENT).scheme == "http"
        with pytest.raises(InvalidArgument):
            endpoint_of(url, STRICT)
    for url in ("http://e.example/", "http://10.0.0.1/", "http://localhost.example/"):
        with pytest.raises(InvalidArgument):
            endpoint_of(url, DEVELOPMENT)


def test_attributes() -> None:
    config = pubsub.PushConfig(push_endpoint="https://e.example/")
    check_push_config(config, STRICT)
    assert dict(config.attributes) == {"x-goog-version": "v1"}
    config.attributes["x-goog-version"] = "v1beta1"
    check_push_config(config, STRICT)
    assert dict(config.attributes) == {"x-goog-version": "v1beta1"}
    for name, value in (("x-goog-version", "v2"), ("other", "v1")):
        with pytest.raises(InvalidArgument, match="supported"):
            check_push_config(pubsub.PushConfig(push_endpoint="https://e.example/", attributes={name: value}), STRICT)


def test_tokens_name_an_account() -> None:
    config = pubsub.PushConfig(push_endpoint="https://e.example/")
    config.oidc_token.SetInParent()
    with pytest.raises(InvalidArgument, match="service_account_email"):
        check_push_config(config, STRICT)
    config.oidc_token.service_account_email = "pusher@p.example"
    config.oidc_token.audience = "https://e.example"
    check_push_config(config, STRICT)
    config.oidc_token.audience = "a\nb"
    with pytest.raises(InvalidArgument, match="audience"):
        check_push_config(config, STRICT)


def test_without_an_endpoint_it_means_pull() -> None:
    config = pubsub.PushConfig(attributes={"x-goog-version": "v1"})
    check_push_config(config, STRICT)
    assert config == pubsub.PushConfig()
    config.no_wrapper.write_metadata = True
    with pytest.raises(InvalidArgument, match="push_endpoint"):
        check_push_config(config, STRICT)


def test_what_is_pushed() -> None:
    def record(*, detached: bool = False, endpoint: str = "https://e.example/") -> Subscription:
        message = pubsub.Subscription(push_config=pubsub.PushConfig(push_endpoint=endpoint))
        config = message.SerializeToString()
        return Subscription(1, "projects/p/subscriptions/s", 1, "projects/p/topics/t", config=config, detached=detached)

    found = push_config_of(record())
    assert found is not None
    assert found.push_endpoint == "https://e.example/"
    assert push_config_of(record(detached=True)) is None
    assert push_config_of(record(endpoint="")) is None
