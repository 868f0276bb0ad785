"""Processes of a cluster die, hang and come back while official clients work: nothing is lost, and nobody notices much.

Every test breaks one thing under load; the histories of the clients are judged by the checkers of syncpoint.testing.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.official import bodies, eventually
from syncpoint.wire.protobuf.messages import admin, pubsub
from tests.kit.clusters import Load, note
from tests.kit.endpoint import Endpoint

pytestmark = pytest.mark.shows("failover")

ALL = (checkers.order_per_key, checkers.exactly_once)


def is_whole(cluster):
    """Whether every disk is live in every chain, and lacks nothing: what an earlier test has struck is back."""
    chains = [chain for disk in cluster.admin("ListDisks", admin.ListDisksRequest()).disks for chain in disk.chains]
    return bool(chains) and all(one.state == admin.Disk.OK and not one.under_replicated for one in chains)


def owner_of_everything_but(cluster, name):
    """Whether no chain is open at this process."""
    return all(chain.owner and chain.owner != name for chain in cluster.chains())


def test_a_killed_publish_forwarder_is_replaced(cluster):
    victim = "publish-forwarder-1"
    with Load(cluster) as load:
        cluster.local.kill(victim)
        begun = time.monotonic()
        eventually(lambda: owner_of_everything_but(cluster, victim), what="its chains are adopted")
        note(f"publish forwarder killed: chains adopted after {time.monotonic() - begun:.2f} s")
        load.flows(2.0)
    note(f"publish forwarder killed: gaps keyless, keyed {load.gaps} s, errors {len(load.errors)}")
    load.judge(*ALL, certain=True)
    assert max(load.gaps) < 10 + 3 * load.usual_gap


def test_a_paused_owner_that_wakes_up_acknowledges_nothing_more(cluster):
    victim = "publish-forwarder-2"
    with Load(cluster) as load:
        cluster.local.pause(victim)
        eventually(lambda: owner_of_everything_but(cluster, victim), what="its chains are adopted")
        load.flows(1.0)
        cluster.local.resume(victim)
        load.flows(3.0)
    note(f"publish forwarder paused: gaps keyless, keyed {load.gaps} s, errors {len(load.errors)}")
    load.judge(*ALL, checkers.unique_ids)
    assert max(load.gaps) < 20 + 3 * load.usual_gap


def test_a_killed_proxy_leaves_what_it_pushed_to_another(cluster, enter):
    """Everything arrives, each key in order, and all of it is acknowledged; what was under way may come twice."""
    space = enter(cluster.proxies[0])
    with Endpoint() as endpoint:
        endpoint.delay_s = 0.02
        topic, subscription = space.pair(push_config={"push_endpoint": endpoint.url}, enable_message_ordering=True)
        keys, count = ["a", "b", "c"], 60
        for number in range(count):
            space.publish(topic, b"%d" % number, key=keys[number % 3])

        def state():
            return cluster.admin("GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=subscription))

        arrived = [endpoint.next_body() for _ in range(10)]
        victim = state().push.pushed_by
        space.api.close()
        cluster.local.kill(victim)
        cluster.local.start(victim)
        seen = {one["message"]["message_id"] for one in arrived}
        while len(seen) < count:
            arrived.append(endpoint.next_body())
            seen.add(arrived[-1]["message"]["message_id"])
        eventually(lambda: state().backlog_messages == 0, what="everything is acknowledged")
        for key in keys:
            first = dict.fromkeys(
                base64.b64decode(one["message"]["data"]) for one in arrived if one["message"]["orderingKey"] == key
            )
            assert list(first) == sorted(first, key=int)


def test_a_killed_proxy_leaves_what_it_exported_to_another(cluster, enter):
    """In the middle of a file. Everything is in files, as often as a file that was stored and not acknowledged."""
    space = enter(cluster.proxies[0])
    bucket = cluster.local.folder / "bucket" / space.project
    config = {"bucket": "archive", "filename_prefix": f"{space.project}/", "max_messages": 1_000}
    topic, subscription = space.pair(cloud_storage_config=config)
    sent = [b"%d" % number for number in range(1_500)]
    for at in range(0, 1_500, 500):
        space.publish(topic, *sent[at : at + 500])

    def export():
        request = admin.GetSubscriptionStateRequest(subscription=subscription)
        return cluster.admin("GetSubscriptionState", request).export

    def written():
        files = [path.read_bytes() for path in bucket.glob("*") if not path.name.startswith(".")]
        return Counter(line for one in files for line in one.split(b"\n"))

    eventually(lambda: export().files == 1 and export().held == 500, what="one file is stored, another one begun")
    victim = export().exported_by
    space.api.close()
    cluster.local.kill(victim)
    cluster.local.start(victim)
    after = enter(cluster.proxies[0])
    more = [b"more %d" % number for number in range(500)]
    eventually(lambda: after.publish(topic, *more), what="the topic takes messages")
    eventually(lambda: len(written()) >= 2_000, 90, "what it held is lent again, and stored")
    assert set(written()) == {*sent, *more}
    assert sum(written().values()) <= 3_500


def test_a_killed_subscribe_forwarder_gives_its_messages_to_others(cluster, enter):
    """What it had lent and was not acknowledged comes again, on the streams the clients already have."""
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair(ack_deadline_seconds=600)
    streams = [space.stream(subscription) for _ in range(2)]
    sent = [b"%d" % number for number in range(50)]
    space.publish(topic, *sent)
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 50)
    for victim in ("subscribe-forwarder-1", "subscribe-forwarder-2"):
        cluster.local.kill(victim)
        cluster.local.start(victim)
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 100, what="every message comes again")
    assert {body for stream in streams for body in stream.bodies} == set(sent)
    assert [stream.status for stream in streams] == [None, None]
    for stream in streams:
        stream.acknowledge(*stream.messages)
    eventually(lambda: not space.peek(subscription), what="the acknowledgements count")


def test_subscribe_forwarders_die_under_load(cluster):
    with Load(cluster) as load:
        for victim in cluster.names("subscribe-forwarder"):
            cluster.local.kill(victim)
            note(f"subscribe forwarder killed: delivery again after {load.flows(1.5):.2f} s")
            cluster.local.start(victim)
            load.flows(1.0)
    load.judge(*ALL, certain=True)


def test_a_killed_proxy_is_left_for_another(cluster):
    """Clients that call the other one notice nothing; those of the dead one go on when it is back."""
    with Load(cluster) as load:
        cluster.local.kill("proxy-1")
        time.sleep(1.0)
        cluster.local.start("proxy-1")
        load.flows(2.0)
    load.judge(*ALL)


def test_what_a_killed_proxy_had_on_its_way_is_delivered_by_another_at_once(cluster, enter):
    """The stream behind the client's ends with the proxy: what no client said to have received is free again."""
    space, other = (enter(proxy) for proxy in cluster.proxies)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    sent = [b"%d" % number for number in range(50)]
    space.publish(topic, *sent)
    eventually(lambda: len(stream.messages) >= 50)
    again = other.stream(subscription, stream_ack_deadline_seconds=600)
    cluster.local.kill("proxy-1")
    eventually(lambda: len(again.messages) >= 50, 60, "every message comes again")
    assert set(again.bodies) == set(sent)
    again.acknowledge(*again.messages)
    cluster.local.start("proxy-1")
    eventually(lambda: not other.peek(subscription), what="the acknowledgements count")


def test_without_any_router_everything_goes_on(cluster):
    with Load(cluster) as load:
        for name in cluster.names("router"):
            cluster.local.kill(name)
        load.flows(3.0)
        late = load.create("late")
        load.names["late"] = late
        api, got = load.api, []

        def received():
            fresh = api.pull({"subscription": late, "max_messages": 100}, timeout=5).received_messages
            for one in fresh:
                load.history.delivered(late, "late", one.message.message_id, one.message.data, one.message.ordering_key)
                got.append(one)
            if fresh:
                api.acknowledge({"subscription": late, "ack_ids": [one.ack_id for one in fresh]})
            return len(got) > 100

        eventually(received, what="a subscription created in the meantime is served")
        del load.names["late"]
        api.delete_subscription({"subscription": late})
        load.history.creations = [one for one in load.history.creations if one.subscription != late]
        load.flows(1.0)
    load.judge(*ALL, certain=True)


def test_one_storage_process_is_missed_by_nobody(cluster):
    eventually(lambda: is_whole(cluster), 60, "every disk is live in every chain")
    with Load(cluster) as load:
        cluster.local.kill("storage-c1")
        load.flows(3.0)
        cluster.local.start("storage-c1")
        load.flows(1.0)
        cluster.local.pause("storage-c2")
        load.flows(3.0)
        cluster.local.resume("storage-c2")
        load.flows(1.0)
    note(f"one storage process killed, then one paused: gaps {load.gaps} s")
    load.judge(*ALL, certain=True)
    assert max(load.gaps) < 5 + 3 * load.usual_gap


def test_a_storage_process_that_is_back_makes_up_for_one_that_hangs(cluster):
    """It was given up, and may take no new name while the other one is silent: chains are opened anew with it."""

    def given_up():
        found = cluster.admin("ListDisks", admin.ListDisksRequest()).disks
        chains = [chain for one in found if one.path.startswith("storage-c1/") for chain in one.chains]
        return chains and all(chain.reason for chain in chains)

    eventually(lambda: is_whole(cluster), 60, "every disk is live in every chain")
    with Load(cluster) as load:
        cluster.local.kill("storage-c1")
        eventually(given_up, 60, "its disks are given up in every chain")
        cluster.local.pause("storage-c2")
        cluster.local.start("storage-c1")
        note(f"one storage process came back as another one hung: publishes again after {load.flows(0.0, 120.0):.1f} s")
        cluster.local.resume("storage-c2")
        load.flows(1.0)
    load.judge(*ALL)


def test_without_a_majority_of_clusters_acks_wait(cluster, enter):
    """Two of three are down: a publish is neither confirmed nor refused; one is back: it is confirmed."""
    eventually(lambda: is_whole(cluster), 60, "every disk is live in every chain")
    space = enter(cluster.proxies[0])
    topic, subscription = space.pair()
    space.publish(topic, b"before")
    for name in ("storage-c1", "storage-c2"):
        cluster.local.kill(name)
    waiting = [
        space.api.publish.future({"topic": topic, "messages": [{"data": b"%d" % n}]}, timeout=60) for n in range(3)
    ]
    time.sleep(4.0)
    assert not any(one.done() for one in waiting)
    cluster.local.start("storage-c2")
    begun = time.monotonic()
    ids = [one.result(timeout=40).message_ids[0] for one in waiting]
    note(f"two clusters were down: acks {time.monotonic() - begun:.2f} s after one was back")
    got = space.pull(subscription, 4, ack=True)
    assert set(bodies(got)) == {b"before", b"0", b"1", b"2"}
    assert set(ids) <= {one.message.message_id for one in got}


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_each_id_is_stored_once_and_forwarded_once_whoever_dies(cluster, enter, fault):
    """The chain that takes a topic without duplicates loses its owner, then the proxy that forwards it dies."""
    space = enter(cluster.proxies[0])
    topic, kept = space.topic("once"), space.topic("kept")
    onwards, reader = space.subscription(topic, "onwards"), space.subscription(kept, "reader")
    window = {"topic": topic, "duplicate_detection_window": {"seconds": 600}}
    asked = admin.UpdateTopicOptionsRequest(options=window, update_mask={"paths": ["duplicate_detection_window"]})
    cluster.admin("UpdateTopicOptions", asked)
    to = {"subscription": onwards, "forward_to": kept}
    asked = admin.UpdateSubscriptionOptionsRequest(options=to, update_mask={"paths": ["forward_to"]})
    cluster.admin("UpdateSubscriptionOptions", asked)
    answered, done = defaultdict(set), threading.Event()

    def publish(number):
        name, rounds = f"id {number}", 0
        message = pubsub.PubsubMessage(data=name.encode(), attributes={"sys.MessageId": name})
        request = pubsub.PublishRequest(topic=topic, messages=[message])
        while not done.is_set() or rounds < 3:
            try:
                with Client(cluster.proxies[(number + rounds) % 2], timeout_s=20.0) as client:
                    answered[name].update(client.call("Publisher.Publish", request).message_ids)
                rounds += 1
            except SyncpointError:
                time.sleep(0.2)

    def state():
        return cluster.admin("GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=onwards))

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(publish, number) for number in range(8)]
        eventually(lambda: len(answered) == 8 and state().forward.forwarded, what="ids are published and forwarded")
        (chain,) = {one.chain for one in state().sources if one.next_offset}
        owner = next(one.owner for one in cluster.chains() if one.number == chain)
        getattr(cluster.local, fault)(owner)
        eventually(lambda: owner_of_everything_but(cluster, owner), what="its chains are adopted")
        if fault == "pause":
            cluster.local.resume(owner)
        victim = eventually(lambda: state().forward.forwarded_by, what="it is forwarded")
        cluster.local.kill(victim)
        cluster.local.start(victim)
        work += [pool.submit(publish, number) for number in range(8, 24)]
        done.set()
        for one in work:
            one.result(120)
    assert {len(ids) for ids in answered.values()} == {1}, "all publishes of an id have one answer"
    after = enter(cluster.proxies[0])
    eventually(lambda: state().backlog_messages == 0, 60, "all of it is forwarded")
    got = Counter(one.message.data for one in after.pull(reader, 24, within=60, ack=True))
    assert got == Counter(f"id {number}".encode() for number in range(24))
    assert not after.peek(reader)


@pytest.mark.parametrize("role", ["publish-forwarder", "subscribe-forwarder"])
def test_letters_are_made_once_whoever_dies(cluster, enter, role):
    """Messages go round a ring of two forwards and become letters after four hops, while processes are killed."""
    space, count = enter(cluster.proxies[0]), 120
    one, two, dead = space.topic("one"), space.topic("two"), space.topic("dead")
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    letters = space.subscription(dead, "letters", ack_deadline_seconds=600)
    rings = [
        (space.subscription(one, "there", dead_letter_policy=policy), two),
        (space.subscription(two, "back", dead_letter_policy=policy), one),
    ]
    for subscription, to in rings:
        options = {"subscription": subscription, "forward_to": to}
        asked = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask={"paths": ["forward_to"]})
        cluster.admin("UpdateSubscriptionOptions", asked)
    for number in range(0, count, 10):
        space.publish(one, *[b"%d" % at for at in range(number, number + 10)])

    def state(name):
        return cluster.admin("GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=name))

    eventually(lambda: state(letters).backlog_messages, 60, "letters are made")
    for victim in cluster.names(role)[:2]:
        cluster.local.kill(victim)
        if role == "publish-forwarder":
            eventually(lambda victim=victim: owner_of_everything_but(cluster, victim), 40, "its chains are adopted")
        cluster.local.start(victim)
    got = Counter(one.message.data for one in space.pull(letters, count, within=120, ack=True))
    assert got == Counter(b"%d" % number for number in range(count))
    eventually(lambda: not any(state(name).backlog_messages for name, _ in rings), 60, "nothing is left of the ring")
    assert not space.pull_once(letters, wait=3.0)
