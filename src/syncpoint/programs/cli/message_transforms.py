"""Message transforms on the command line: read from a file, as `gcloud` reads them, and tried on a message.

Place: under `topics` and `subscriptions`, and `syncpoint message-transforms`. They are tried by this program itself, in
the sandbox that the server has: nothing is published, and without --topic and --subscription no server is contacted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import names
from syncpoint.programs.cli.output import inform, print_answer, show
from syncpoint.programs.cli.resources import ResourceGroup
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.streaming import data_text
from syncpoint.programs.cli.values import parse_pairs

file_option = click.option(
    "--message-transforms-file",
    "transforms_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Message transforms: a list in YAML or JSON (`syncpoint docs api`).",
)
clear_option = click.option(
    "--clear-message-transforms", "clear_transforms", is_flag=True, help="Remove all message transforms."
)


def read_transforms(path: Path | None) -> list[Any]:
    """The MessageTransforms of a file; none without one. Raises `click.UsageError` that names what is wrong."""
    if path is None:
        return []
    import yaml
    from google.protobuf import json_format

    from syncpoint.base.model.yaml_text import load_yaml
    from syncpoint.wire.protobuf.messages import pubsub

    try:
        content = load_yaml(path.read_text())
        if isinstance(content, dict):
            content = content.get("messageTransforms", [content])
        if not isinstance(content, list):
            raise click.UsageError(f"{path}: expected a list of transforms.")
        return [json_format.ParseDict(one, pubsub.MessageTransform()) for one in content]
    except (yaml.YAMLError, json_format.ParseError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def changed_transforms(path: Path | None, clear: bool) -> list[Any] | None:
    """What an update makes of them; None: they stay."""
    if path is not None and clear:
        raise click.UsageError("--message-transforms-file and --clear-message-transforms cannot be combined.")
    return read_transforms(path) if path is not None or clear else None


@click.group("message-transforms", cls=ResourceGroup)
def message_transforms() -> None:
    """Test and validate message transforms."""


@message_transforms.command()
@file_option
@with_settings
def validate(settings: Settings, transforms_file: Path | None) -> None:
    """Check whether the transforms of a file are valid.

    \b
    Example:
      syncpoint message-transforms validate --message-transforms-file double.yaml
    """
    import asyncio

    if transforms_file is None:
        raise click.UsageError("Give --message-transforms-file.")
    transforms = read_transforms(transforms_file)
    asyncio.run(_tried(transforms, None, check=True))
    inform("The transforms are valid.")


@message_transforms.command()
@click.argument("text", required=False)
@click.option("--message", metavar="TEXT", help="The data, as TEXT; `-` reads it from standard input.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE,...", help="Attributes of the message.")
@click.option("--ordering-key", default="", metavar="KEY", help="Ordering key of the message.")
@file_option
@click.option("--topic", shell_complete=names("topics"), help="Test this topic's transforms.")
@click.option("--subscription", shell_complete=names("subscriptions"), help="Test this subscription's transforms.")
@with_settings
def test(
    settings: Settings,
    text: str | None,
    message: str | None,
    attributes: tuple[str, ...],
    ordering_key: str,
    transforms_file: Path | None,
    topic: str | None,
    subscription: str | None,
) -> None:
    """Test transforms on a message, without publishing it: show what each of them makes of it. Exit code 1 if one
    fails. Models are asked by servers only, so that the test ends before them.

    \b
    Examples:
      syncpoint message-transforms test '{"n": 21}' --message-transforms-file double.yaml
      syncpoint message-transforms test --message - --topic orders --attribute region=eu <order.json
    """
    import asyncio

    from syncpoint.wire.protobuf.messages import pubsub

    if sum(one is not None for one in (transforms_file, topic, subscription)) != 1:
        raise click.UsageError("Give one of --message-transforms-file, --topic and --subscription.")
    if text is not None and message is not None:
        raise click.UsageError("Give the message once: TEXT or --message.")
    text = (message or "") if text is None else text
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    pairs = parse_pairs(attributes, "--attribute")
    tried = pubsub.PubsubMessage(data=data, attributes=pairs, ordering_key=ordering_key)
    if transforms_file is not None:
        transforms: Sequence[Any] = read_transforms(transforms_file)
    else:
        with settings.client() as client:
            kind = "topics" if topic is not None else "subscriptions"
            if topic is not None:
                name = settings.name("topics", topic)
                found = client.call("Publisher.GetTopic", pubsub.GetTopicRequest(topic=name))
            else:
                name = settings.name("subscriptions", subscription or "")
                found = client.call("Subscriber.GetSubscription", pubsub.GetSubscriptionRequest(subscription=name))
                tried.message_id = "1"  # a message that is delivered has both
                tried.publish_time.GetCurrentTime()
        transforms = found.message_transforms
        if not transforms:
            raise Problem(
                f"[{name}] has no transforms", f"Set them with `syncpoint {kind} update --message-transforms-file`."
            )
    steps = asyncio.run(_tried(transforms, tried, check=transforms_file is not None))
    print_answer(
        settings.format,
        [{"transform": name, "result": result, **({"message": made} if made else {})} for name, result, made in steps],
        ["TRANSFORM", "RESULT", "DATA", "ATTRIBUTES"],
        [
            [name, result, data_text(made.data) if made else "", show(dict(made.attributes)) if made else ""]
            for name, result, made in steps
        ],
    )
    if steps and steps[-1][1].startswith("failed"):
        raise click.exceptions.Exit(1)


async def _tried(transforms: Sequence[Any], message: Any, *, check: bool) -> list[tuple[str, str, Any]]:
    """What each transform that is not disabled makes of a message, until one drops it or fails: its name, the result in
    a word, and the message. Without a message they are only checked. Raises `SyncpointError`.
    """
    from syncpoint.base.model.errors import Unavailable
    from syncpoint.catalog.transforms.definitions import check_transforms
    from syncpoint.catalog.transforms.errors import SandboxUnavailable, TransformError
    from syncpoint.catalog.transforms.message_transforms import Transformer

    # No model is asked here; that a server has its address cannot be checked.
    transformer = Transformer.of({one.ai_inference.endpoint: "http://localhost" for one in transforms})
    steps: list[tuple[str, str, Any]] = []
    try:
        if check:
            await check_transforms("projects/tried/topics/tried", transforms, transformer)
        for transform in transforms if message is not None else ():
            if transform.disabled:
                continue
            kind = transform.WhichOneof("transform")
            name = transform.javascript_udf.function_name if kind == "javascript_udf" else str(kind)
            if kind == "ai_inference":
                steps.append((name, "not tested: only a server asks models", None))
                break
            (outcome,) = await transformer.apply("projects/tried", [transform], [message])
            if isinstance(outcome, TransformError):
                steps.append((name, f"failed: {str(outcome).removeprefix('message_transforms[0]: ')}", None))
                break
            if outcome is None:
                steps.append((name, "dropped", None))
                break
            message = outcome
            steps.append((name, "transformed", message))
    except SandboxUnavailable as error:
        raise Unavailable(f"The transforms cannot be tested now: {error}. Try again.") from None
    finally:
        await transformer.close()
    return steps
