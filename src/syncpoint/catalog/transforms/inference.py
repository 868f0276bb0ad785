"""Asking a model about what a message holds, over HTTP.

Place: the operator configures the address of each endpoint name; a caller names an endpoint, never an address.
Promise: the message's data, a JSON object, is sent with the transform's parameters beside its fields (a field of the
message counts before a parameter of its name). What comes back is a JSON object `{"model_input": what was sent,
"model_output": the answer}`, the new data. Any other outcome than an answer of status 200 in time is an error; nothing
is repeated here, since the sender or receiver of the message does. A transform that names a service account has its
requests carry a token of it, for the model's address, for as long as the caller who set the transform may act as it.
Projects take turns at an endpoint, see `project_turns`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from google.protobuf.json_format import MessageToDict

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.project_turns import ProjectTurns
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.catalog.transforms.errors import TransformError, TryLater
from syncpoint.catalog.transforms.model_client import ModelClient
from syncpoint.wire.protobuf.messages import pubsub

ANSWER_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 10_000_000
TOGETHER_MAX: Final = 16  # requests to one endpoint at a time, of one project one less


ENDPOINT: Final = re.compile(
    r"projects/[^/\s]+/locations/[^/\s]+/(endpoints/[^/\s]+|publishers/[^/\s]+/models/[^/\s]+)"
)


def check_model(endpoint: str, url: str) -> None:
    """Raises `ValueError` with what is wrong with an endpoint name or its address."""
    if not ENDPOINT.fullmatch(endpoint):
        raise ValueError(
            f"{endpoint} must be projects/PROJECT/locations/LOCATION/endpoints/ENDPOINT"
            " or projects/PROJECT/locations/LOCATION/publishers/PUBLISHER/models/MODEL"
        )
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} must begin with https:// or http://")


class Ask(Protocol):
    """POST a JSON body to a URL: the status and body of the answer. `authorization`: of the header, if that is not
    empty. Raises `OSError` when none comes."""

    async def __call__(
        self, url: str, body: bytes, authorization: bytes, timeout_s: float, answer_bytes_max: int
    ) -> tuple[int, bytes]: ...


class Tokens(Protocol):
    """The header `authorization` of a request that comes from a service account. Raises `SyncpointError`."""

    def bearer(self, account: str, audience: str) -> bytes: ...


class Models:
    """`urls`: for each endpoint name (`projects/…/endpoints/…` or `projects/…/models/…`) where it is. `tokens`: None
    where nothing can be signed."""

    def __init__(self, urls: Mapping[str, str], ask: Ask | None = None) -> None:
        self._urls = urls
        self.client = ModelClient() if ask is None else ask
        self.tokens: Tokens | None = None
        self.may_use: Callable[[str, str], bool] = lambda project, endpoint: True
        """Whether a project may ask an endpoint now."""
        self.acting_refusal: Callable[[Topic | Subscription], str] = lambda record: ""
        """Why the transforms of a topic or subscription may not ask as the service account that they name."""
        self.is_own: Callable[[str], bool] = lambda url: False
        """Whether an address is one of this deployment itself, where nothing may be sent."""
        self.turns = {endpoint: ProjectTurns(TOGETHER_MAX) for endpoint in urls}

    def knows(self, endpoint: str) -> bool:
        return endpoint in self._urls

    def leads_back(self, endpoint: str) -> bool:
        """Whether its address is one of this deployment itself, as far as that shows."""
        return self.is_own(self._urls.get(endpoint, ""))

    async def infer(
        self, project: str, kind: pubsub.AIInference, data: bytes, *, of: Topic | Subscription | None = None
    ) -> bytes:
        """The new data. `project`: whose turn it is; `of`: whose transform it is. Raises `TransformError`."""
        if not self.may_use(project, kind.endpoint):
            raise TransformError(
                f"{project} may not use {kind.endpoint}; the operator can list it under `models` in the --auth file"
            )
        if kind.service_account_email and of is not None and (refusal := self.acting_refusal(of)):
            raise TransformError(refusal)
        url = self._urls.get(kind.endpoint)
        if url is None:
            raise TransformError(f"no address is configured for {kind.endpoint}")
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise TransformError("the data is not a JSON object")
        request = {**MessageToDict(kind.unstructured_inference.parameters), **fields}
        async with self.turns[kind.endpoint].turn(project):
            try:
                status, body = await self.client(
                    url, json.dumps(request).encode(), self._bearer(kind, url), ANSWER_S, ANSWER_BYTES_MAX
                )
            except OSError as error:
                raise TransformError(f"{kind.endpoint} does not answer: {error}") from None
        if status != 200:
            raise TransformError(f"{kind.endpoint} answered with status {status}")
        try:
            answer = json.loads(body)
            return json.dumps({"model_input": request, "model_output": answer}, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise TransformError("the data or the answer has text that is not valid Unicode") from None
        except (ValueError, RecursionError):
            raise TransformError(f"{kind.endpoint} did not answer with JSON") from None

    def _bearer(self, kind: pubsub.AIInference, url: str) -> bytes:
        account = kind.service_account_email
        if not account:
            return b""
        if self.tokens is None:
            raise TransformError("This server signs no tokens: no issuer is configured.")
        try:
            return self.tokens.bearer(account, url)
        except Unavailable as error:
            raise TryLater(error.message) from None
        except SyncpointError as error:
            raise TransformError(error.message) from None
