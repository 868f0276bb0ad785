"""What to do about a failure: the second line under an error.

Place: under `errors`. Promise: it follows the command that failed and what it spoke to, not the code alone; where
no certain advice exists there is none. Every command it names exists (a test looks each of them up).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from syncpoint.base.model.errors import Code

CLUSTERS_ONLY = ("drain", "undrain", "constraints", "mitigation", "headroom")
_BOUNDS = "Correct the value; `syncpoint {command} --help` shows the format, `syncpoint docs limits` lists the bounds."

SERVER = {
    Code.INVALID_ARGUMENT: _BOUNDS,
    Code.OUT_OF_RANGE: _BOUNDS,
    Code.RESOURCE_EXHAUSTED: "A limit is reached or a disk is full: `syncpoint limits get`, `syncpoint disks list`.",
    Code.UNAVAILABLE: "The server at {endpoint} cannot do this now; try again. `syncpoint doctor` finds out more.",
    Code.DEADLINE_EXCEEDED: "The server at {endpoint} did not answer in time; check `syncpoint server describe`.",
    Code.PERMISSION_DENIED: "You need a role that allows this; `syncpoint iam roles` lists them.",
    Code.UNAUTHENTICATED: "The server at {endpoint} requires credentials: give --credentials FILE.",
    Code.INTERNAL: "This is a bug in the server; its output has details. Please report it.",
    Code.UNKNOWN: "Another program may be listening at {endpoint}; `syncpoint doctor` checks.",
    Code.ABORTED: "Another change came first; try again.",
    Code.CANCELLED: "Try again.",
    Code.DATA_LOSS: "`syncpoint disks list` shows which disk is bad; `syncpoint log verify` shows which data is "
    "intact.",
}
"""Of any call to the server at the endpoint in force."""

UNAVAILABLE = (
    (
        r"(.* does not answer: )?No connection to ",
        "Is a server running at {endpoint}? Start a server with `syncpoint serve`, or name another server with "
        "--endpoint or PUBSUB_EMULATOR_HOST; one that serves TLS needs --tls-ca, and "
        "--tls-cert where it asks for certificates. `syncpoint doctor` finds more.",
    ),
    (
        r"(.* does not answer: )?The connection was closed: frame of \d+ bytes",
        "The program at {endpoint} does not speak gRPC: it may be another program, or a port of Syncpoint that is not "
        "for clients. `syncpoint doctor` finds more.",
    ),
    (
        r"(.* does not answer: )?The (connection|channel|stream) (was|is) ",
        "There was no answer: the program at {endpoint} closed the connection. It may have stopped, or serve TLS, "
        "which needs --tls-ca, and --tls-cert where it asks for certificates. `syncpoint doctor` finds more.",
    ),
    (
        r".*(log cannot be written|outcome is unknown|disks)",
        "The server at {endpoint} is running, but its disks cannot store this: `syncpoint disks list` shows which "
        "and why.",
    ),
    (
        r".*\b([Ff]orwarder|[Cc]hain|[Rr]egions?|owner)\b",
        "The cluster at {endpoint} runs, but the process for this request is down; another one takes over "
        "within seconds, if there is one. Try again; `syncpoint cluster status` shows which processes are down.",
    ),
)
"""Beginnings of UNAVAILABLE messages, and what to do: to look for the server only where none was reached."""

RESOURCES = {
    Code.NOT_FOUND: (
        "{meant}Check the name and the project ({project}); `syncpoint {group} list{elsewhere}` shows what there is."
    ),
    Code.ALREADY_EXISTS: "`syncpoint {group} describe {name}` shows it, `syncpoint {group} update {name}` changes it.",
    Code.FAILED_PRECONDITION: (
        "`syncpoint {group} describe {name}` shows its state; this call requires another state."
    ),
}
"""Of topics, subscriptions, snapshots and schemas that the failure names."""

SCHEMA_EXISTS = "`syncpoint schemas describe {name}` shows it, `syncpoint schemas commit {name}` adds a revision."

SAID = (
    (
        r"Invalid data in message: Message failed schema validation",
        "`syncpoint topics describe` names the topic's schema; `syncpoint schemas validate-message` explains the "
        "mismatch.",
    ),
    (
        r"Schema associated with topic deleted",
        "`syncpoint topics update` sets another schema with --schema, or removes it with --clear-schema-settings.",
    ),
    (
        r"Quota exceeded for quota metric .* for consumer 'tenants/",
        "Projects of a tenant share its quota: `syncpoint tenants effective` shows it, an operator changes it.",
    ),
    (
        r"Quota exceeded for quota metric",
        "The operator sets quotas in the file of `syncpoint serve --auth`; `syncpoint docs security` names them.",
    ),
    (r"Invalid schema", "`syncpoint docs api` lists what a schema and its messages may contain."),
    (
        r"messages\[\d+\]: Message transform failed",
        "Nothing of this request is stored; `syncpoint topics describe` shows the topic's transforms.",
    ),
    (
        r"Invalid (label key|value of label)",
        "Keys and values of labels have at most 63 lowercase letters, digits, - and _; a key begins with a letter.",
    ),
    (
        r"The value for (default_)?ttl is too (small.* minimum value is 1s|large)",
        "A time to live is 1s to 3650d; see `syncpoint docs service-bus`.",
    ),
    (
        r"The value for ttl is too small",
        "A subscription's expiration is at least 1d, and at least its --message-retention-duration (7d).",
    ),
    (
        r"Resource not found \(resource=[^/\s]+@",
        "`syncpoint iam accounts list` lists a project's service accounts, `syncpoint iam accounts create` "
        "creates an account.",
    ),
    (r"Resource already exists in the project \(resource=[^/\s]+@", "`syncpoint iam accounts list` shows it."),
    (
        r".* must contain a token or a service account key",
        "`syncpoint iam accounts keys create` writes a key file; `syncpoint iam init` writes the owner's.",
    ),
    (
        r"The topic is suspended for sending",
        "`syncpoint topics update {name} --resume` resumes publishing.",
    ),
    (
        r"Messages are forwarded to ",
        "`syncpoint subscriptions create NAME --topic {name}` receives there;"
        " `subscriptions update --clear-forward` ends it.",
    ),
    (
        r"\S+ is a queue and has exactly one subscription",
        "`syncpoint subscriptions pull {name}` receives from it; for more subscriptions, create a topic.",
    ),
    (r"\S+ is a queue: its topic and its subscription", "`syncpoint queues delete {name}` deletes both."),
    (r"Queue not found: ", "{meant}Check the name and the project ({project}); `syncpoint queues list` shows them."),
    (
        r"\S+ has no dead-letter policy",
        "`syncpoint subscriptions update {name} --dead-letter-topic TOPIC` adds a policy.",
    ),
    (
        r"Resource not found \(resource=[^)]*/rules/",
        "`syncpoint rules list --subscription {name}` lists its rules.",
    ),
    (
        r"Resource already exists in the project \(resource=[^)]*/rules/",
        "`syncpoint rules list --subscription {name}` shows it, `syncpoint rules update` replaces it.",
    ),
    (
        r"rule\.(sql|action|correlation|parameters)\b",
        "`syncpoint docs service-bus` describes the language; `syncpoint rules test --filter ... --explain` tries "
        "a rule.",
    ),
    (r"filter: ", "`syncpoint docs api` describes the language of filters."),
    (r"message_transforms\[", "`syncpoint docs api` shows an example file for each kind of transform."),
    (
        r"No address is configured for ",
        "Configure model addresses with `syncpoint serve --model`, or `models` in a cluster's cluster.yaml.",
    ),
    (
        r"Invalid push endpoint given",
        "Endpoints must be https at public addresses; `syncpoint serve --dev` allows this machine, also over http, "
        "`syncpoint serve --push-network` other networks, and `push.networks` in a cluster's cluster.yaml both.",
    ),
    (
        r"This method is not supported for this subscription type",
        "`syncpoint subscriptions describe` shows where its messages go; `syncpoint subscriptions modify-push-config` "
        "with --push-endpoint '' switches from push to pull.",
    ),
)
"""Beginnings of messages with any code, and what to do."""

COMMANDS = {
    ("cursors", Code.NOT_FOUND): "Check the name and the project ({project}); `syncpoint cursors list` shows them.",
    ("drain", Code.NOT_FOUND): "`syncpoint cluster status` lists the processes.",
    ("undrain", Code.NOT_FOUND): "`syncpoint drain`, without a name, lists active drains.",
    ("constraints", Code.NOT_FOUND): "`syncpoint constraints list` shows all rules.",
    ("constraints", Code.ALREADY_EXISTS): (
        "`syncpoint constraints list` shows it; `syncpoint constraints delete` deletes it, so that you can create "
        "another."
    ),
    ("rules", Code.ALREADY_EXISTS): (
        "`syncpoint rules list` shows it: a `create` that ended in UNAVAILABLE may have created it, and then "
        "nothing is left to do. "
        "`syncpoint rules update` changes it."
    ),
    ("archive", Code.NOT_FOUND): (
        "Check the name and the project ({project}); `syncpoint topics list{elsewhere}` shows what there is."
    ),
}
"""Of one group's calls to the server."""

_RESOURCE = re.compile(r"projects/([^/\s]+)/(topics|subscriptions|snapshots|schemas)/([^/\s)\].:;,]+)")


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """What failed. `called`: the command had begun to speak to the server at `endpoint`."""

    code: Code
    message: str
    command: tuple[str, ...] = ()
    called: bool = False
    endpoint: str = ""
    project: str = ""
    about_settings: bool = False  # the message is about cluster.yaml
    meant: str = ""  # a resource that exists and whose name is much like the one that was given
    missing: str = ""  # the permission that the caller has not, and on what


def resource_of(message: str) -> tuple[str, str, str] | None:
    """The project, collection and id of the topic, subscription, snapshot or schema that a message names."""
    about = _RESOURCE.search(message)
    return (about[1], about[2], about[3]) if about else None


def advice(failed: CheckFailed) -> str:
    """The second line; empty where none is certain."""
    if failed.about_settings:
        return "`syncpoint docs operations` explains every key of cluster.yaml."
    found = _found(failed)
    return found.format(**_words(failed)) if found else ""


def _found(failed: CheckFailed) -> str:
    group = failed.command[0] if failed.command else ""
    for pattern, text in SAID:
        if re.match(pattern, failed.message):
            return text
    if not failed.called:
        return ""
    if failed.missing:
        return "You need {missing}; `syncpoint iam roles` lists the roles that include it; an owner can grant them."
    if failed.code is Code.UNIMPLEMENTED:
        return _not_served(failed, group)
    if (group, failed.code) in COMMANDS:
        return COMMANDS[group, failed.code]
    if failed.code is Code.UNAVAILABLE:
        known = (text for pattern, text in UNAVAILABLE if re.match(pattern, failed.message))
        return next(known, SERVER[failed.code])
    if failed.code in RESOURCES:
        about = _RESOURCE.search(failed.message)
        if about and about[2] == "schemas" and failed.code is Code.ALREADY_EXISTS:
            return SCHEMA_EXISTS
        return RESOURCES[failed.code] if about else ""
    return SERVER.get(failed.code, "")


def _not_served(failed: CheckFailed, group: str) -> str:
    if "is not implemented" not in failed.message:
        return "Another program may be listening at {endpoint}; `syncpoint doctor` checks."
    if group in CLUSTERS_ONLY:
        return "Only clusters support this; {endpoint} is a single server."
    from syncpoint.wire.protobuf import methods  # not with every command

    if any(one.prefix in failed.message for one in (methods.LOG_READER, methods.EPOCH_WRITER, methods.ACK_EXCHANGE)):
        return "The server's version does not support data pipelines."
    return "Syncpoint does not support this yet; `syncpoint docs api` lists the supported API."


def _words(failed: CheckFailed) -> dict[str, str]:
    about = _RESOURCE.search(failed.message)
    project = failed.project or "not set"
    group = failed.command[0] if failed.command else ""
    return {
        "command": " ".join(failed.command),
        "group": about[2] if about else group,
        "name": about[3] if about else "NAME",
        "project": about[1] if about else project,
        "elsewhere": f" --project {about[1]}" if about and about[1] != project.removeprefix("projects/") else "",
        "endpoint": failed.endpoint,
        "meant": f"Did you mean {failed.meant!r}? " if failed.meant else "",
        "missing": failed.missing,
    }
