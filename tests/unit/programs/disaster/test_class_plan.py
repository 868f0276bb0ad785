"""Declared classes against a federation's links: what is missing, what must not be, and the file that would do."""

import pytest

from syncpoint.programs.disaster.class_plan import Declared, plan_classes
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import FederatedCluster, FieldChange, parse

pytestmark = pytest.mark.shows("disaster-classes")

P = "projects/shop"


def link(source, target, **more):
    ends = (FederatedCluster(name, f"{name}:1") for name in (source, target))
    return FederationLink(f"shop.{source}-{target}", "all-active", *ends, "shop", "shop", **more)


def plan(one, links=(), **sites):
    declared = {site: Declared(*given) for site, given in sites.items()} or {"eu": Declared(one), "us": Declared(one)}
    return plan_classes({P: declared}, links)


def test_geo_needs_links_both_ways() -> None:
    found = plan("geo", [link("eu", "us")])
    assert found.amiss == [f"{P}: no link brings every message unchanged from us to eu"]
    assert plan("geo", [link("eu", "us"), link("us", "eu")]).amiss == []
    assert plan("local").amiss == []


@pytest.mark.parametrize(
    "less", [{"topics": ("orders",)}, {"change": FieldChange(where="1 = 0")}, {"rename": "copy-{topic}"}]
)
def test_a_link_of_some_messages_is_not_enough(less) -> None:
    found = plan("geo", [link("eu", "us", **less), link("us", "eu")])
    assert found.amiss == [f"{P}: no link brings every message unchanged from eu to us"]


def test_geo_acks_needs_acknowledgements() -> None:
    found = plan("geo-acks", [link("eu", "us"), link("us", "eu", acks=True)])
    assert found.amiss == [f"{P}: the link shop.eu-us does not exchange acknowledgements"]


def test_a_way_over_a_third_site_is_a_way() -> None:
    ring = [link("eu", "us"), link("us", "ap"), link("ap", "eu")]
    assert plan("geo", ring, eu=("geo",), us=("geo",), ap=("geo",)).amiss == []


def test_billing_has_one_writer_and_no_link_back() -> None:
    sites = {"eu": ("billing", "here"), "us": ("billing", "elsewhere")}
    assert plan("billing", [link("eu", "us")], **sites).amiss == []
    found = plan("billing", [link("eu", "us"), link("us", "eu")], **sites)
    assert found.amiss == [f"{P}: the link shop.us-eu would be a second writer at eu"]
    for writer, told in (("here", "eu, us"), ("elsewhere", "none")):
        both = {"eu": ("billing", writer), "us": ("billing", writer)}
        assert plan("billing", **both).amiss == [f"{P}: exactly one site must take publishes, not {told}"]


def test_sites_that_disagree_and_lone_sites_are_named() -> None:
    found = plan("", eu=("geo",), us=("dual",))
    assert found.amiss == [f"{P}: its sites declare different classes: eu: geo, us: dual"]
    assert plan("", eu=("geo",)).amiss == [f"{P}: geo is declared at eu alone; declare it at a second site"]


@pytest.mark.parametrize(
    "sites",
    [
        {"eu": ("geo",), "us": ("geo",), "ap": ("geo",)},
        {"eu": ("geo-acks",), "us": ("geo-acks",)},
        {"eu": ("billing", "here"), "us": ("billing", "elsewhere"), "ap": ("billing", "elsewhere")},
    ],
)
def test_the_file_that_is_written_is_what_is_needed(sites, tmp_path) -> None:
    clusters = {name: {"endpoint": f"{name}.example:8085"} for name in sites}
    file = parse({"version": 1, "clusters": clusters, "namespaces": plan("", **sites).namespaces()}, tmp_path)
    assert plan("", links_of(file), **sites).amiss == []
