"""Options: names, aliases, kinds, and that secrets are neither taken nor repeated."""

import pickle

import pytest

from pyspark_pubsub.errors import OptionError
from pyspark_pubsub.options import OPTIONS, READ, WRITE, Options
from pyspark_pubsub.rpc import read_token

LEAST = {"endpoint": "localhost:8085", "topic": "projects/p/topics/t"}


def reading(**more: str) -> Options:
    return Options(LEAST | more, READ)


def test_defaults_are_of_their_kind_and_every_option_has_a_meaning():
    options = reading()
    assert options["startingPosition"] == "earliest"
    assert options["fetchBytes"] == 4 << 20
    assert options["failOnDataLoss"] is True
    assert all(option.meaning for option in OPTIONS)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"maxOffsetsPerTrigger": "12"}, "maxRowsPerTrigger", 12),
        ({"kafka.group.id": "g"}, "cursor", "g"),
        ({"startingOffsets": "latest"}, "startingPosition", "latest"),
        ({"maxBytesPerTrigger": "64m"}, "maxBytesPerTrigger", 64 << 20),
        ({"maxTriggerDelay": "15m"}, "maxTriggerDelay", 900.0),
        ({"maxTriggerDelay": "500ms"}, "maxTriggerDelay", 0.5),
        ({"columns": " data, offset "}, "columns", ("data", "offset")),
        ({"FAILONDATALOSS": "False"}, "failOnDataLoss", False),
    ],
)
def test_values_and_the_names_of_kafka(given, name, value):
    assert reading(**given)[name] == value


def test_kafka_users_need_to_change_nothing_but_the_format():
    options = Options({"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t", "project": "p"}, READ)
    assert options.access.endpoints == ("a:1", "b:2")
    assert options["topic"] == "projects/p/topics/t"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxRowPerTrigger": "1"}, "did you mean maxRowsPerTrigger"),
        ({"path": "x"}, "use the option topic|use the option `topic`"),
        ({"maxRowsPerTrigger": "-1"}, "whole number from 0"),
        ({"fetchBytes": "1"}, "from 1024 to"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
        ({"maxRowsPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "mean the same"),
        ({"subscription": "projects/p/subscriptions/s"}, "one of the options topic and subscription"),
        ({"link": "l"}, "for writers only"),
        ({"topic": "t"}, "projects/PROJECT/topics/NAME"),
        ({"topic": "projects/p/topics/a,projects/p/topics/b"}, "takes one name"),
        ({"endpoint": "localhost"}, "HOST:PORT"),
        ({"endpoint": ""}, "endpoint is missing"),
        ({"tls.cert": "c.pem"}, "tls.cert and tls.key together"),
        ({"token.file": "f", "token.env": "V"}, "one of token.file, token.env and token.command"),
        ({"tls": "false", "tls.ca": "ca.pem"}, "does not go with"),
    ],
)
def test_what_is_wrong_is_said(given, says):
    with pytest.raises(OptionError, match=says):
        reading(**given)


def test_readers_options_are_not_for_writers():
    with pytest.raises(OptionError, match="for readers only"):
        Options(LEAST | {"startingPosition": "latest"}, WRITE)


@pytest.mark.parametrize("key", ["token", "password", "tls.password", "kafka.sasl.jaas.config", "authToken"])
def test_a_secret_given_as_an_option_is_refused_and_not_repeated(key):
    with pytest.raises(OptionError) as caught:
        reading(**{key: "s3cret-value"})
    assert "s3cret" not in str(caught.value)


def test_tokens_are_read_where_they_are_named_and_are_in_no_text(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("s3cret-value\n")
    options = reading(**{"token.file": str(file)})
    assert read_token(options.access) == "s3cret-value"
    assert "s3cret" not in repr(options.access) + repr(pickle.dumps(options.access))
    monkeypatch.setenv("PUBSUB_TEST_TOKEN", "s3cret-other")
    assert read_token(reading(**{"token.env": "PUBSUB_TEST_TOKEN"}).access) == "s3cret-other"
    monkeypatch.setenv("PUBSUB_TEST_TOKEN", "s3cret\nsplit")
    with pytest.raises(OptionError, match="one line") as caught:
        read_token(reading(**{"token.env": "PUBSUB_TEST_TOKEN"}).access)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        read_token(reading(**{"token.file": str(tmp_path / "none")}).access)
