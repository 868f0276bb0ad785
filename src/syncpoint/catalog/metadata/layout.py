"""All keys of the metadata: what stands where, who writes and reads it, and how long it stays.

Place: what `storage.layout` is for disks. Whatever is stored in the metadata of a cluster, or of one node, has its key
from here and from nowhere else. A lifetime is "a lease" (deleted when its writer ends), "for ever", or what ends it.
What guards each write against arriving late is in `control/DESIGN.md`.
"""

from __future__ import annotations


class Prefix(str):
    """What all keys of one kind begin with."""

    __slots__ = ()

    def key(self, *parts: int | str) -> str:
        """The key of a name, of a number, or of several of them."""
        return self + "/".join(map(str, parts))

    def under(self, *parts: int | str) -> Prefix:
        """What the keys of this kind begin with that have these parts first."""
        return Prefix(f"{self.key(*parts)}/")

    def name(self, key: str) -> str:
        """What follows the prefix in a key."""
        return key[len(self) :]

    def number(self, key: str) -> int:
        """The number after the prefix in a key."""
        return int(key[len(self) :])

    def numbers(self, key: str) -> tuple[int, ...]:
        """The numbers after the prefix in a key."""
        return tuple(map(int, key[len(self) :].split("/")))


# -- the catalog -------------------------------------------------------------------------------------------------------

RECORDS = Prefix("catalog/records/")
"""KIND/NAME (of one node KIND/INCARNATION): a record. Written with every commit (`catalog_replica`, on a node
`mirror`). Read by all processes. Stays until the topic, subscription, snapshot or setting is deleted."""

HEAD = "catalog/head"
"""The revision and the highest incarnation. Written with every commit, on the condition that it is unchanged. Read by
all processes; a new source is registered before it is read (`control.registration`). For ever."""

CHANGE = "catalog/change"
"""The newest commit. Written with every commit. Its watch, in all processes, is the sequence of all commits. For ever,
of no use to a restored cluster."""

REVISION = "catalog/revision"
"""The revision of the copy that one node keeps. Written and read by `mirror`. Absent while the copy is rebuilt."""

# -- the cluster as a whole --------------------------------------------------------------------------------------------

UNIVERSE = "cluster/universe"
"""The number that message ids begin with. Written by the first process that joins, by an import, anew by a restore.
Read by all processes. For ever."""

SETTINGS = "cluster/settings"
"""What all processes must be given alike. Written by the first that joins, and by one node with workers at each start.
Read by all processes when they join. For ever."""

ACK_KEY = "cluster/ack-key"
"""The secret that ack ids are signed with. Written by the first process that joins, or by an import. Read by all
processes. For ever."""

FORMAT = "cluster/format"
"""The format that may be written. Written by the first process that joins, and by `syncpoint cluster finalize`. Read
and watched by all processes. For ever."""

LAST_BACKUP, LAST_RESTORE = "backup/last", "backup/restored"
"""When, and of what. Written by `backup`, for operators to look at. For ever, but of this store alone."""

# -- counters: never deleted, never the same number twice --------------------------------------------------------------

COUNTERS = Prefix("counter/")
"""All of the following. A restore lets them leap beyond everything that may stand on a disk."""

INCARNATION_COUNTER = COUNTERS.key("incarnation")
"""Of the records of the catalog. Drawn in blocks by every process (`catalog_replica`)."""

LOG_COUNTER = COUNTERS.key("log")
"""Of the logs of chains; message ids are made of them. Drawn by publish forwarders, and by an import."""

CHAIN_COUNTER = COUNTERS.key("chain")
"""Of chains. Drawn by the process that makes one: publish forwarders (`control.chain_creation`), an import, one node
with workers."""

KEY_COUNTER = COUNTERS.key("key")
"""Of data keys. Drawn by proxies (`proxy.data_keys`)."""

# -- processes ---------------------------------------------------------------------------------------------------------

MEMBERS = Prefix("members/")
"""NAME: a process, its roles and its address (`Member`). Written by the process itself. Read by all. A lease."""

LOADS = Prefix("load/")
"""NAME: what a process carries. Written by the process itself every two seconds. Read by routers, and by the admin
methods of drains. A lease."""

CLOCKS = Prefix("clocks/")
"""NAME: what time it is, and was for sure. Written by the process every minute. Read by all, so that time does not go
back anywhere. Removed by the others when it is a week old."""

# -- chains ------------------------------------------------------------------------------------------------------------

CHAINS = Prefix("chains/")
"""CHAIN: where it lies (`ChainRecord`). Written when it is made (`control.chain_creation`, an import, one node with
workers), and when its home gets another weight. Read by all processes. For ever."""

OWNERS = Prefix("owners/")
"""CHAIN: who has it open, in which epoch (`Owner`). Written and deleted by that publish forwarder
(`control.ownership_driver`). Read by all processes. A lease."""

EPOCHS = Prefix("epochs/")
"""CHAIN: the epoch of the newest claim. Written with each claim. Read by the process that claims next. For ever, only
grows; a restore lets it leap."""

KNOWN_DISKS = Prefix("disks/")
"""CHAIN: the identities of its disks when it was last opened. Written and read by its owner (`publish.known_disks`).
For ever."""

OPEN = Prefix("open/")
"""TOPIC/CHAIN: the chain may hold something of the topic. Written by the chain's owner before the first publish. Read
by processes that must ask every chain of a topic, watched by subscribe forwarders. Removed by the chain's owner when
nothing is left."""

# -- routing -----------------------------------------------------------------------------------------------------------

ASSIGNMENTS = Prefix("assign/")
"""Both of the following. Written by routers; by a proxy where there is none and no router answers; by the process that
adopts a lost topic. Read by routers, proxies and publish forwarders. Removed by routers after the topic or
subscription. A restore lets their epochs leap."""

ASSIGNED_TOPICS = ASSIGNMENTS.under("topics")
"""TOPIC: the chains that take its messages (`TopicAssignment`)."""

ASSIGNED_SUBSCRIPTIONS = ASSIGNMENTS.under("subscriptions")
"""SUBSCRIPTION: the members that share its clients (`SubscriptionAssignment`)."""

DRAINS = Prefix("drains/")
"""TARGET: takes nothing new. Written and removed by operators (`control.operations`). Read by all processes."""

CONSTRAINTS = Prefix("constraints/")
"""NAME: a routing rule. Written and removed by operators (`control.operations`). Read by routers and proxies."""

MITIGATION_PAUSED = "mitigation/paused"
"""There while mitigation changes nothing, with an operator's comment. Written and removed by `api.mitigation_admin`.
Read by the router that leads."""

MITIGATION_STATUS = "mitigation/status"
"""How processes are, and the newest decisions. Written by the router that leads (`mitigation.mitigation_driver`). Read
by `api.mitigation_admin` and by who leads next. For ever."""

OPERATIONS = "operations/changes"
"""How many drains and rules were changed. Written with every such change, on the condition that it is unchanged. Read
by `control.operations`. For ever."""

ROLLOUTS = Prefix("rollout/")
"""All of the following. A restore removes them: what runs then is not what they say."""

ROLLOUT_STATE = ROLLOUTS.key("state")
"""How far the newest rollout is, as JSON (`rollout.progress`). Written by its controller, on the condition that it is
unchanged. Read by `syncpoint rollout` and the console. Until the next one begins."""

ROLLOUT_CONTROLLER = ROLLOUTS.key("controller")
"""Who drives it. Written by a controller when there is none. A lease."""

ROLLOUT_ABORT = ROLLOUTS.key("abort")
"""Who wants it undone, and why. Written by `syncpoint rollout abort`, read by the controller. Until another begins."""

USED = Prefix("used/")
"""SUBSCRIPTION: when it was last in use. Written every hour by the process that serves it (`control.usage_reports`).
Read by `control.expiry`, which removes it after the subscription."""

# -- pipelines ---------------------------------------------------------------------------------------------------------

QUERY_HOMES = Prefix("pipelines/queries/")
"""QUERY, quoted: the chain in whose log its epochs are. Written by the proxy that first learns of it, on the condition
that it is absent, and by a chain that finds a query in its log without one. Read by proxies and by that chain. Removed
by the chain when it forgets the query, a month after its last use."""

LINK_HOMES = Prefix("pipelines/links/")
"""LINK, quoted: the same of a link. Written together with that of its query. For ever."""

# -- sealed messages ---------------------------------------------------------------------------------------------------

KEYS = Prefix("keys/")
"""All of the following. Written and read by proxies (`proxy.data_keys`), removed by `proxy.key_admin` when nothing of
the topics is stored any more. A restore removes none: without its key a message on the disks is lost."""

TOPIC_KEYS = KEYS.under("topics")
"""TOPIC: the number of the data key in use."""

DATA_KEYS = KEYS.under("data")
"""KEY: a data key, wrapped."""

LENT_KEYS = KEYS.under("lent")
"""KEY/TOPIC: another topic got messages that are sealed with it."""

# -- one node ----------------------------------------------------------------------------------------------------------

NODE_UNIVERSE = "identity/universe"
"""As `UNIVERSE`. This and the following: written at the first start, or from the disks where the folder was lost; read
at every start. For ever."""

NODE_LOG_FLOOR = "identity/log_counter_floor"
"""The highest counter of a log so far. Written with every new log."""

NODE_DISKS = Prefix("identity/disks/")
"""PATH, in hexadecimal: the identity of the disk there. Removed when the disk is."""

NOT_BACKED_UP = (MEMBERS, OWNERS, LOADS, ROLLOUTS, Prefix("backup/"), CHANGE)
"""Gone with processes, or of no use later. All other keys are backed up, also those that a later version added."""
