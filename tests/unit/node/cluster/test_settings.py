"""cluster.yaml: what it may say, and that mistakes are named."""

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.export.buckets import options_of
from syncpoint.node.cluster.settings import ClusterSettings, load, parse

GOOD = """
cluster: shop
metadata: {etcd: ["127.0.0.1:2379", "127.0.0.1:2381", "127.0.0.1:2383"]}
replication: {clusters: 3, disks: 3, placement: enforce, racks_min: 2}
classes:
  relaxed: {clusters: 1, disks: 3, durability: async}
sealing: {key_file: kek.bin}
processes:
  storage-c1: {roles: [storage], listen: "127.0.0.1:7001", cluster: c1, rack: k1, disks: {d1: disks/1, d2: /srv/2}}
  proxy-1: {roles: [proxy], listen: "127.0.0.1:7002", public: "127.0.0.1:8085", region: r1}
"""


def read(text: str, tmp_path: Path) -> ClusterSettings:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return load(path)


def test_metrics_go_to_a_collector(tmp_path: Path) -> None:
    export = read(f'{GOOD}metrics: {{otlp: "http://c:4318", interval_s: 15}}', tmp_path).metrics_export
    assert (export.otlp, export.interval_s) == ("http://c:4318", 15)
    assert read(GOOD, tmp_path).metrics_export.otlp == ""
    for wrong, field in (("{interval_s: 15}", "metrics.interval_s"), ("{otlp: 'c:4318'}", "metrics.otlp")):
        with pytest.raises(InvalidArgument, match=field):
            read(f"{GOOD}metrics: {wrong}", tmp_path)


def test_a_whole_file(tmp_path: Path) -> None:
    settings = read(GOOD, tmp_path)
    assert settings.name == "shop"
    assert len(settings.etcd) == 3
    assert settings.classes["default"].racks_min == 2
    relaxed = settings.classes["relaxed"]
    assert (relaxed.clusters, relaxed.disks, relaxed.durability, relaxed.placement) == (1, 3, "async", "enforce")
    assert settings.sealing_key_file == tmp_path / "kek.bin"
    storage = settings.process("storage-c1")
    assert storage.disks == {"d1": tmp_path / "disks/1", "d2": Path("/srv/2")}
    assert settings.process("proxy-1").public == "127.0.0.1:8085"


def test_members_of_etcd_are_spread_over_zones(tmp_path: Path) -> None:
    def zones(*names: str) -> ClusterSettings:
        return read(GOOD.replace('2383"]}', f'2383"], zones: [{", ".join(names)}]}}'), tmp_path)

    zones("a", "b", "c")
    with pytest.raises(InvalidArgument, match="a has 2 of 3 members of etcd: without it the others are no majority"):
        zones("a", "b", "a")
    with pytest.raises(InvalidArgument, match=r"metadata.zones.*3 members, 2 zones"):
        zones("a", "b")


def test_tls_and_weights(tmp_path: Path) -> None:
    tls = "tls: {ca: tls/ca.pem, certificate: 'tls/{name}.pem', key: /etc/key.pem, client_certificates: false}"
    settings = read(GOOD.replace("cluster: shop", tls).replace("region: r1", "weight: 2.5"), tmp_path)
    assert settings.tls is not None
    found = settings.tls.of("proxy-1")
    assert (found.ca, found.certificate) == (tmp_path / "tls/ca.pem", tmp_path / "tls/proxy-1.pem")
    assert (found.key, found.client_certificates) == (Path("/etc/key.pem"), False)
    assert settings.process("proxy-1").weight == 2.5
    assert settings.process("storage-c1").weight == 1.0
    assert read(GOOD, tmp_path).tls is None


def test_buckets_and_where_their_secrets_are(tmp_path: Path) -> None:
    text = """
buckets:
  near: folder
  far:
    url: s3://ours/below
    region: r1
    options: {endpoint_url: "https://s3.example", secret: "@secret", key: $S3_KEY_OF_TESTS, client_kwargs: {a: 1}}
"""
    settings = read(GOOD + text, tmp_path)
    (_, near), (_, far) = settings.buckets
    assert (near.url, far.url, far.region) == (f"file://{tmp_path}/folder", "s3://ours/below", "r1")
    with pytest.raises(ValueError, match=r"no variable S3_KEY_OF_TESTS|cannot be read"):
        options_of(far)
    (tmp_path / "secret").write_text("hidden\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("S3_KEY_OF_TESTS", "mine")
        found = options_of(far)
    assert (found["secret"], found["key"], found["client_kwargs"]) == ("hidden", "mine", {"a": 1})
    assert "hidden" not in repr(settings)
    for wrong in ("{url: x, other: y}", "{url: x, options: y}", "nowhere://x"):
        with pytest.raises(InvalidArgument, match="buckets"):
            read(GOOD + f"buckets: {{b: {wrong if '{' in wrong else repr(wrong)}}}", tmp_path)


def test_a_process_that_is_not_in_the_file_needs_a_role(tmp_path: Path) -> None:
    settings = read(GOOD, tmp_path)
    assert settings.process("worker-7", ("router",)).roles == ("router",)
    with pytest.raises(InvalidArgument, match="no roles"):
        settings.process("worker-7")
    with pytest.raises(InvalidArgument, match="needs `cluster` and `disks`"):
        settings.process("worker-7", ("storage",))


def test_the_fingerprint_is_about_what_all_must_agree_on(tmp_path: Path) -> None:
    settings = read(GOOD, tmp_path)
    assert read(GOOD.replace("7002", "7999"), tmp_path).digest() == settings.digest()
    assert read(GOOD.replace("disks: 3, placement", "disks: 5, placement"), tmp_path).digest() != settings.digest()
    assert read(GOOD.replace("sealing: {key_file: kek.bin}\n", ""), tmp_path).digest() != settings.digest()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("clusters: 3, disks: 3", "clusters: 2, disks: 3"), "replication.clusters"),
        (("clusters: 3, disks: 3", "clusters: 3, disks: 4"), "replication.disks"),
        (("placement: enforce", "placement: perhaps"), "placement"),
        (("durability: async", "durability: soon"), "durability"),
        (("roles: [proxy]", "roles: [waiter]"), "waiter"),
        (('listen: "127.0.0.1:7001"', "listen: here"), "HOST:PORT"),
        (("cluster: shop", "clusters: shop"), "unknown: clusters"),
        (("racks_min: 2", "rack_min: 2"), "unknown: rack_min"),
        (("cluster: shop", "tls: {ca: a.pem, key: k.pem}"), "`certificate`, `key` and `ca` must be set"),
        (("cluster: shop", "tls: {ca: a, key: k, certificate: c, verify: no}"), "unknown: verify"),
        (("cluster: shop", "tls: {ca: a, key: k, certificate: c, client_certificates: 1}"), "true or false"),
        (("region: r1", "tls_cert: a.pem"), "both `tls_cert` and `tls_key`"),
        (("region: r1", "tls_client_ca: a.pem"), "both `tls_cert` and `tls_key`"),
        (("region: r1", "weight: 0"), "above 0"),
        (("region: r1", "weight: heavy"), "a number"),
        (('metadata: {etcd: ["127.0.0.1:2379", "127.0.0.1:2381", "127.0.0.1:2383"]}', "metadata: {}"), "etcd"),
    ],
)
def test_mistakes_are_named(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    assert change[0] in GOOD
    with pytest.raises(InvalidArgument, match=words):
        read(GOOD.replace(*change), tmp_path)


def test_where_topics_are_split(tmp_path: Path) -> None:
    """The usual value is not in the fingerprint: versions that do not know the key join all the same."""
    usual = read(GOOD, tmp_path)
    same, other = (read(f"split_at: {value}\n{GOOD}", tmp_path) for value in (120_000, 5_000))
    assert (usual.split_at, other.split_at) == (120_000, 5_000)
    assert usual.digest() == same.digest() != other.digest()
    with pytest.raises(InvalidArgument, match="split_at"):
        read(f"split_at: 0\n{GOOD}", tmp_path)


def test_what_is_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="YAML"):
        read("a: [b", tmp_path)
    with pytest.raises(InvalidArgument, match="mapping"):
        parse(["a"])


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"auth": "gone"}, "auth"),
        ({"sealing": {"key_file": "gone"}}, "sealing.key_file"),
        ({"metadata": {"etcd": ["h:1"], "user": "u", "password_file": "gone"}}, "metadata.password_file"),
        ({"metadata": {"etcd": ["h:1"], "ca_file": "gone"}}, "metadata.ca_file"),
    ],
)
def test_a_file_that_a_process_needs_is_named_with_its_key(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    settings = parse({"metadata": {"etcd": ["h:1"]}, **change}, tmp_path)
    with pytest.raises(InvalidArgument, match=f"cluster.yaml: {key}: {tmp_path}/gone cannot be used: No such file"):
        settings.check_files(("proxy",))
    (tmp_path / "gone").write_text("")
    settings.check_files(("proxy",))
    if "metadata" not in change:
        parse({"metadata": {"etcd": ["h:1"]}, **change}, tmp_path / "elsewhere").check_files(("storage",))
