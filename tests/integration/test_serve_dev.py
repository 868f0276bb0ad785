"""`syncpoint serve --dev`, `--region` and the pages for probes, with a server in a process of its own."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue

import pytest
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import FailedPrecondition
from google.cloud import pubsub_v1

from syncpoint.testing.server_process import ServerFailed, ServerProcess

pytestmark = [pytest.mark.shows("push"), pytest.mark.shows("cli")]


def get(server: ServerProcess, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://{server.endpoint}{path}", timeout=10) as answer:
        return answer.status, answer.read().decode()


class DevServer(ServerProcess):
    """With a folder of its own, which goes with it."""

    def command(self) -> list[str]:
        line = super().command()
        where = line.index("--data")
        return [*line[:where], *line[where + 2 :], "--dev"]


@pytest.fixture
def hook() -> Iterator[tuple[str, Queue[bytes]]]:
    """A web server of this machine, over http, and what was posted to it."""
    got: Queue[bytes] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_pushes_go_to_this_machine_over_http_and_nothing_is_left(
    hook: tuple[str, Queue[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = hook
    with DevServer() as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        topic, name = "projects/p/topics/orders", "projects/p/subscriptions/hook"
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=name, topic=topic, push_config={"push_endpoint": url})
        publisher.publish(topic, b"hello").result(30)
        pushed = json.loads(got.get(timeout=30))
        assert pushed["message"]["data"] == "aGVsbG8="
        assert [get(server, path)[0] for path in ("/", "/livez", "/healthz", "/readyz")] == [200] * 4
        assert get(server, "/")[1] == "Ok\n"
        subscriber.close()
        publisher.transport.close()
        shown = server.logs()
        folder = Path(shown.split("Serving ")[1].split(",")[0])
        assert folder.is_dir()
        assert "This folder is deleted when the server stops" in shown
        assert f"(console: http://{server.endpoint}/console/)" in shown
        server.terminate()
        assert not folder.exists()


def test_an_unknown_host_name_gets_no_page() -> None:
    """A page of another site that calls this machine by a name of its own learns nothing."""
    with ServerProcess() as server:
        asked = urllib.request.Request(f"http://{server.endpoint}/readyz", headers={"host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10)
        assert refused.value.code == 403
        refused.value.close()


def test_a_node_keeps_what_a_topic_says_about_regions(tmp_path: Path) -> None:
    def create(server: ServerProcess, topic: str, region: str) -> None:
        options = ClientOptions(api_endpoint=server.endpoint)
        publisher = pubsub_v1.PublisherClient(client_options=options)
        policy = {"allowed_persistence_regions": [region]}
        try:
            publisher.create_topic(request={"name": f"projects/p/topics/{topic}", "message_storage_policy": policy})
        finally:
            publisher.transport.close()

    with pytest.MonkeyPatch.context() as patch:
        with ServerProcess(tmp_path / "d", args=["--region", "eu"]) as server:
            patch.setenv("PUBSUB_EMULATOR_HOST", server.endpoint)
            create(server, "orders", "eu")
            with pytest.raises(FailedPrecondition, match="no server is in us; use a region of eu"):
                create(server, "others", "us")
        for args in ([], ["--region", "us"]):
            with pytest.raises(ServerFailed, match="orders may be stored in eu alone"):
                ServerProcess(tmp_path / "d", args=args).start()
        with ServerProcess(tmp_path / "d", args=["--region", "eu"]) as server:
            assert get(server, "/readyz")[0] == 200
