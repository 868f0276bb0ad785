"""Clients and names that scenarios of the official Python client use, and what these share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.subscriber import SubscriberClient

PROJECT = os.environ.get("CLIENT_PROJECT") or f"p{time.time_ns():x}"
SECONDS = 60
REST = os.environ.get("PUBSUB_TRANSPORT") == "rest"


class Skip(Exception):
    """This version of the client has no such feature."""


def want(holds: object, what: object) -> None:
    if not holds:
        raise AssertionError(what)


def over_rest(client: Any) -> Any:
    """A generated client that calls by REST."""
    host = os.environ["PUBSUB_EMULATOR_HOST"]
    transport = client.get_transport_class("rest")
    return client(transport=transport(host=host, credentials=AnonymousCredentials(), url_scheme="http"))


class Space:
    """Clients, and names with the scenario in them."""

    def __init__(self) -> None:
        self.publisher = over_rest(PublisherClient) if REST else pubsub_v1.PublisherClient()
        self.subscriber = over_rest(SubscriberClient) if REST else pubsub_v1.SubscriberClient()
        self.prefix = ""
        self.end = 0.0

    def name(self, kind: str, short: str) -> str:
        return f"projects/{PROJECT}/{kind}/{self.prefix}-{short}"

    def topic(self, short: str = "topic", **fields: Any) -> str:
        return self.publisher.create_topic(request={"name": self.name("topics", short), **fields}).name

    def sub(self, topic: str, short: str = "sub", **fields: Any) -> str:
        name = self.name("subscriptions", short)
        request = {"name": name, "topic": topic, "ack_deadline_seconds": 10, **fields}
        return self.subscriber.create_subscription(request=request).name

    def pair(self, **fields: Any) -> tuple[str, str]:
        topic = self.topic()
        return topic, self.sub(topic, **fields)

    def send(self, topic: str, data: bytes, **attributes: str) -> str:
        if REST:
            messages = [{"data": data, "attributes": attributes}]
            return str(self.publisher.publish(request={"topic": topic, "messages": messages}).message_ids[0])
        return str(self.publisher.publish(topic, data, **attributes).result(SECONDS))

    def bodies(self, topic: str, *bodies: str) -> list[str]:
        if REST:
            return [self.send(topic, body.encode()) for body in bodies]
        futures = [self.publisher.publish(topic, body.encode()) for body in bodies]
        return [future.result(SECONDS) for future in futures]

    def pull_once(self, sub: str, wait: float = 4.0) -> list[Any]:
        request = {"subscription": sub, "max_messages": 100}
        try:
            return list(self.subscriber.pull(request=request, timeout=wait).received_messages)
        except (exceptions.DeadlineExceeded, requests.Timeout):
            return []

    def pull(self, sub: str, count: int) -> list[Any]:
        got: list[Any] = []
        while len(got) < count:
            want(time.monotonic() < self.end, f"{len(got)} of {count} messages came")
            got += self.pull_once(sub)
        return got

    def ack(self, sub: str, got: list[Any]) -> None:
        ids = [one.ack_id for one in got]
        self.subscriber.acknowledge(request={"subscription": sub, "ack_ids": ids})

    def deadline(self, sub: str, one: Any, seconds: int) -> None:
        request = {"subscription": sub, "ack_ids": [one.ack_id], "ack_deadline_seconds": seconds}
        self.subscriber.modify_ack_deadline(request=request)

    def receive(self, sub: str, each: Callable[[Any], object], **options: Any) -> None:
        """Receive until `each` returns something true; what it raises is raised here."""
        streams()
        done = threading.Event()
        errors: list[BaseException] = []

        def callback(message: Any) -> None:
            try:
                if each(message):
                    done.set()
            except BaseException as error:
                errors.append(error)
                done.set()

        future = self.subscriber.subscribe(sub, callback=callback, **options)
        try:
            while not done.wait(0.2):
                want(not future.done(), f"the stream ended: {future.exception() if future.done() else None}")
                want(time.monotonic() < self.end, "not everything came in time")
        finally:
            future.cancel()
        if errors:
            raise errors[0]


def streams() -> None:
    if REST:
        raise Skip("REST has no streaming pull")


def refused(kind: type[BaseException], call: Callable[[], object]) -> None:
    if REST:
        kind = kind.__mro__[1]  # its client knows errors by their HTTP code alone
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def needs(message: str, field: str) -> Any:
    """A message type of the API that has this field in this version; Skip when not."""
    found = getattr(pubsub_v1.types, message, None)
    if found is None or (field and field not in found.meta.fields):
        raise Skip(f"the client has no {message}{'.' if field else ''}{field}")
    return found
