"""REST as schemathesis makes it up from our OpenAPI document: answered, and never by a failure of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from syncpoint.testing.server_process import ServerProcess

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 4
"""Of each operation; each is asked for as it is, and again with the names of what there is in its path."""
NAMES = {"projectsId": "fuzz", "topicsId": "topic", "subscriptionsId": "mail", "schemasId": "form"}
REFUSED = {400, 404, 405, 409, 429}
OVER = 504
"""The 0.2 s that each call is given were not enough, on a busy machine."""


@seed(1)
@settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(data=st.data())
def ask(session: requests.Session, base: str, operation: Any, data: Any) -> None:
    case = data.draw(operation.as_strategy())
    for named in (False, True):
        if named:
            case.path_parameters = {
                name: NAMES.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
        answer = case.call(base_url=base, session=session, headers={"x-server-timeout": "0.2"}, timeout=20)
        assert answer.status_code == 200 or answer.status_code in REFUSED | {501, OVER}, case.as_curl_command()
        content = answer.json()
        if answer.status_code != 200:
            assert content["error"]["code"] == answer.status_code
            assert content["error"]["message"]


def test_requests_as_the_document_describes_them(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, requests.Session() as session:
        base = f"http://{server.endpoint}"
        session.put(f"{base}/v1/projects/fuzz/topics/topic", json={}).raise_for_status()
        made = {"topic": "projects/fuzz/topics/topic"}
        session.put(f"{base}/v1/projects/fuzz/subscriptions/mail", json=made).raise_for_status()
        document = session.get(f"{base}/openapi.json").json()
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = found.ok()
            if operation.method != "delete":
                ask(session, base, operation)
        for kind in ("topics/topic", "subscriptions/mail"):
            session.delete(f"{base}/v1/projects/fuzz/{kind}").raise_for_status()
