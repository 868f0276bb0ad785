"""What message transforms a topic or a subscription may have, judged when they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, PermissionDenied, Unavailable
from syncpoint.base.model.names import SERVICE_ACCOUNT
from syncpoint.catalog.transforms.errors import SandboxUnavailable, TransformError
from syncpoint.catalog.transforms.inference import ENDPOINT
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.sandbox import Function
from syncpoint.wire.protobuf.messages import pubsub

TRANSFORMS_MAX: Final = 5
CODE_BYTES_MAX: Final = 20 << 10
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,99}")


async def check_transforms(name: str, transforms: Sequence[pubsub.MessageTransform], transformer: Transformer) -> None:
    """`name`: of the topic or subscription that is to have them, not checked. Raises `InvalidArgument` naming the
    field; `FailedPrecondition` for a model whose address nobody configured; `Unavailable` when code cannot be compiled
    now.
    """
    if len(transforms) > TRANSFORMS_MAX:
        raise InvalidArgument("message_transforms", f"must not have more than {TRANSFORMS_MAX} transforms")
    names: set[str] = set()
    project = "/".join(name.split("/")[:2])
    for index, transform in enumerate(transforms):
        place = f"message_transforms[{index}]"
        match transform.WhichOneof("transform"):
            case "javascript_udf":
                function = transform.javascript_udf
                if function.function_name in names:
                    raise InvalidArgument(
                        f"{place}.javascript_udf.function_name", "must be unique among the transforms"
                    )
                names.add(function.function_name)
                await _check_function(project, function, transformer, f"{place}.javascript_udf")
            case "compression":
                kind = transform.compression
                if kind.compression_algorithm not in (pubsub.Compression.ZLIB, pubsub.Compression.ZSTD):
                    raise InvalidArgument(f"{place}.compression.compression_algorithm", "must be ZLIB or ZSTD")
                if kind.compression_mode not in (pubsub.Compression.COMPRESS, pubsub.Compression.DECOMPRESS):
                    raise InvalidArgument(f"{place}.compression.compression_mode", "must be COMPRESS or DECOMPRESS")
            case "ai_inference":
                _check_inference(project, transform.ai_inference, transformer, f"{place}.ai_inference")
            case _:
                raise InvalidArgument(place, "one of javascript_udf, compression and ai_inference must be set")


async def _check_function(project: str, function: pubsub.JavaScriptUDF, transformer: Transformer, place: str) -> None:
    if not _NAME.fullmatch(function.function_name):
        raise InvalidArgument(f"{place}.function_name", "must be the name of a JavaScript function")
    if not function.code or "\0" in function.code:
        raise InvalidArgument(f"{place}.code", "must be set to JavaScript code without NUL characters")
    if len(function.code.encode()) > CODE_BYTES_MAX:
        raise InvalidArgument(f"{place}.code", f"must not be longer than {CODE_BYTES_MAX} bytes")
    try:
        await transformer.sandbox.check(project, Function(function.function_name, function.code))
    except TransformError as error:
        raise InvalidArgument(f"{place}.code", str(error)) from None
    except SandboxUnavailable as error:
        raise Unavailable(f"The code cannot be checked now: {error}. Try again.") from None


def _check_inference(project: str, kind: pubsub.AIInference, transformer: Transformer, place: str) -> None:
    if not ENDPOINT.fullmatch(kind.endpoint):
        raise InvalidArgument(
            f"{place}.endpoint",
            "must be projects/PROJECT/locations/LOCATION/endpoints/ENDPOINT"
            " or projects/PROJECT/locations/LOCATION/publishers/PUBLISHER/models/MODEL",
        )
    if not kind.HasField("unstructured_inference"):
        raise InvalidArgument(f"{place}.unstructured_inference", "must be set")
    if kind.service_account_email and not SERVICE_ACCOUNT.fullmatch(kind.service_account_email):
        raise InvalidArgument(f"{place}.service_account_email", "must be the address of a service account")
    if not transformer.models.may_use(project, kind.endpoint):
        raise PermissionDenied(
            f"{project} may not use {kind.endpoint}. Ask the operator to list the project under `models` in the --auth"
            " file."
        )
    if not transformer.models.knows(kind.endpoint):
        raise FailedPrecondition(f"No address is configured for {kind.endpoint}. The operator can add one.")
    if transformer.models.leads_back(kind.endpoint):
        raise FailedPrecondition(
            f"The address configured for {kind.endpoint} leads back to this deployment, which is not allowed. Ask the"
            " operator to correct it."
        )
