"""What the commands of all kinds of resources share: `list`, `describe`, `delete`, and the options of labels.

Place: under `topics`, `subscriptions`, `snapshots` and `schemas`, each of which names its kind once, and in a table
those of its options that Google's interface has no fields for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from syncpoint.programs.cli.errors import for_each
from syncpoint.programs.cli.help_text import Group, with_examples
from syncpoint.programs.cli.names import listing, names
from syncpoint.programs.cli.output import inform, print_message, print_messages
from syncpoint.programs.cli.settings import Settings, with_settings

labels_option = click.option("--labels", multiple=True, metavar="KEY=VALUE,...", help="Labels to set.")
limit_option = click.option("--limit", type=click.IntRange(min=1), help="Maximum number to list.")


def label_changes(command: Any) -> Any:
    """The options by which labels are changed; see `values.change_labels`."""
    command = click.option("--clear-labels", is_flag=True, help="Remove all labels first.")(command)
    command = click.option("--remove-labels", multiple=True, metavar="KEY,...", help="Labels to remove.")(command)
    return click.option("--update-labels", multiple=True, metavar="KEY=VALUE,...", help="Labels to set.")(command)


def require_change(paths: Iterable[str]) -> None:
    """Refuse an update that changes nothing."""
    if not list(paths):
        raise click.UsageError("Nothing to change; `--help` lists the settings.")


IAM_HABITS = {
    "add-iam-policy-binding": "Add grants with `syncpoint iam policy add {collection}/NAME`.",
    "remove-iam-policy-binding": "Remove grants with `syncpoint iam policy remove {collection}/NAME`.",
    "get-iam-policy": "Read policies with `syncpoint iam policy get {collection}/NAME`.",
    "set-iam-policy": "Replace policies with `syncpoint iam policy set {collection}/NAME FILE`.",
}
"""What gcloud has in the group of each kind of resource, and this command line has under `iam`."""


NAMES_OF_TOPICS = frozenset({"records_topic", "forward_to"})


class ResourceGroup(Group):
    """The commands of one kind of resource; a word that is none of them is answered with what was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(word, self.commands, 1)
            hint = IAM_HABITS.get(word, "").format(collection=self.name) or (
                f"Did you mean {close[0]!r}?" if close else ""
            )
            ctx.fail(f"No such command {word!r}. {hint}".rstrip())
        return super().resolve_command(ctx, args)


@dataclass(frozen=True)
class Kind:
    """A kind of resources. `word`: one of them, such as `topic`; `service`: whose methods they are changed by; `field`:
    what requests call its name; `example`: a name in its commands' help.
    """

    word: str
    service: str
    field: str
    example: str

    @property
    def collection(self) -> str:
        return self.word + "s"

    def call(self, client: Any, verb: str, name: str) -> Any:
        """Call a method that takes nothing but a name: Get or Delete."""
        from syncpoint.wire.protobuf.messages import pubsub

        method = verb + self.word.capitalize()
        return client.call(f"{self.service}.{method}", getattr(pubsub, method + "Request")(**{self.field: name}))

    def add_list(self, group: click.Group, columns: list[tuple[str, str]]) -> None:
        """`list`: those of a project."""

        text = f"List the {self.collection} of a project."

        @group.command(
            "list", help=with_examples(text, f"{self.collection} list", f"{self.collection} list --limit 10")
        )
        @limit_option
        @with_settings
        def list_all(settings: Settings, limit: int | None) -> None:
            with settings.client() as client:
                found = list(islice(listing(client, settings, self.collection), limit))
            print_messages(found, settings.format, columns)

    def add_describe(self, group: click.Group, text: str) -> None:
        """`describe`: one of them as it is. `text`: help of the command."""

        @group.command(help=with_examples(text, f"{self.collection} describe {self.example}"))
        @click.argument(self.word, shell_complete=names(self.collection))
        @with_settings
        def describe(settings: Settings, **given: str) -> None:
            with settings.client() as client:
                found = self.call(client, "Get", settings.name(self.collection, given[self.word]))
            print_message(found, settings.format)

    def add_delete(self, group: click.Group, text: str) -> None:
        """`delete`: some of them. `text`: help of the command."""

        @group.command(help=with_examples(text, f"{self.collection} delete {self.example}"))
        @click.argument(self.word, nargs=-1, required=True, shell_complete=names(self.collection))
        @with_settings
        def delete(settings: Settings, **given: tuple[str, ...]) -> None:
            with settings.client() as client:

                def one(name: str) -> None:
                    self.call(client, "Delete", name)
                    inform(f"Deleted {self.word} [{name}].")

                for_each([settings.name(self.collection, short) for short in given[self.word]], one)


class OwnOptions:
    """Syncpoint's own options of a kind of resources. `fields`: the field that each option of a command sets, and that
    `--clear-OPTION` clears.
    """

    def __init__(self, kind: Kind, **fields: str) -> None:
        self._kind, self._fields = kind, fields

    def take(self, settings: Settings, chosen: dict[str, Any]) -> dict[str, Any]:
        """Move what a command was given of them out of `chosen`: values by fields, None for those to be cleared."""
        from syncpoint.wire.protobuf.messages import well_known

        changed: dict[str, Any] = {}
        for option, field in self._fields.items():
            value, clear = chosen.pop(option, None), chosen.pop(f"clear_{option}", False)
            if clear:
                changed[field] = None
            elif isinstance(value, tuple):
                changed[field] = well_known.Duration(seconds=value[0], nanos=value[1])
            elif value is not None:
                changed[field] = settings.name("topics", value) if value and field in NAMES_OF_TOPICS else value
        return changed

    def change(self, client: Any, name: str, changed: dict[str, Any], **flags: bool) -> None:
        """Change one resource. `flags`: further fields of the request."""
        from syncpoint.wire.protobuf.messages import admin

        word = self._kind.word
        kind = f"{word.capitalize()}Options"
        options = getattr(admin, kind)(**{word: name}, **changed)
        request = getattr(admin, f"Update{kind}Request")(options=options, **flags)
        request.update_mask.paths.extend(changed)
        client.call(f"Admin.Update{kind}", request)
