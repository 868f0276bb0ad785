"""IAMPolicy and ServiceAccounts over a control plane: what is stored, refused and deleted along."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from syncpoint.base.model.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from syncpoint.catalog.access.accounts import AccountNames, Accounts
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.catalog.access.policy import PREFIX, Policies
from syncpoint.front.api.accounts import AccountsService
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.iam import IamService
from syncpoint.wire.protobuf.messages import accounts, iam, pubsub
from syncpoint.wire.transport.memory import MemoryCall

TOPIC = "projects/a/topics/one"
EMAIL = "app@a.example"
CALL = MemoryCall(b"", {}, None, lambda error: None)


def pem(key=None) -> str:
    key = key or ec.generate_private_key(ec.SECP256R1())
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


run = asyncio.run


@pytest.fixture
def iam_service(plane):
    return IamService(plane, Policies(plane.catalog))


def test_a_policy_is_set_read_and_gone_with_its_topic(plane, iam_service) -> None:
    run(CatalogService(plane).create_topic(pubsub.Topic(name=TOPIC)))
    binding = iam.Binding(role="roles/pubsub.publisher", members=["allUsers"])
    stored = run(iam_service.set_policy(iam.SetIamPolicyRequest(resource=TOPIC, policy=iam.Policy(bindings=[binding]))))
    assert run(iam_service.get_policy(iam.GetIamPolicyRequest(resource=TOPIC))) == stored
    stale = iam.Policy(etag=b"other")
    with pytest.raises(Aborted):
        run(iam_service.set_policy(iam.SetIamPolicyRequest(resource=TOPIC, policy=stale)))
    run(CatalogService(plane).delete_topic(pubsub.DeleteTopicRequest(topic=TOPIC)))
    assert plane.catalog.settings_named(PREFIX) == []
    with pytest.raises(NotFound):
        run(iam_service.get_policy(iam.GetIamPolicyRequest(resource=TOPIC)))


def test_without_authentication_everybody_has_every_permission_of_what_exists(plane, iam_service) -> None:
    asked = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=["pubsub.topics.get", "pubsub.topics.publish"])
    assert iam_service.test(CALL, asked).permissions == [], "not NOT_FOUND, as with the real service"
    run(CatalogService(plane).create_topic(pubsub.Topic(name=TOPIC)))
    assert iam_service.test(CALL, asked).permissions == asked.permissions
    asked.permissions.append("pubsub.*")
    with pytest.raises(InvalidArgument, match="not valid for this resource"):
        iam_service.test(CALL, asked)


def test_accounts_and_their_keys_come_and_go(plane) -> None:
    service = AccountsService(plane)
    created = run(service.create(CALL, accounts.CreateServiceAccountRequest(project="projects/a", email=EMAIL)))
    with pytest.raises(AlreadyExists):
        run(service.create(CALL, accounts.CreateServiceAccountRequest(project="projects/b", email=EMAIL)))
    listed = run(service.list(accounts.ListServiceAccountsRequest(project="projects/a")))
    assert list(listed.accounts) == [created]
    assert not run(service.list(accounts.ListServiceAccountsRequest(project="projects/b"))).accounts
    public = pem()
    key = run(service.add_key(accounts.AddServiceAccountKeyRequest(email=EMAIL, public_key=public)))
    with pytest.raises(AlreadyExists):
        run(service.add_key(accounts.AddServiceAccountKeyRequest(email=EMAIL, public_key=f"\n{public}\n")))
    assert list(run(service.list_keys(accounts.ListServiceAccountKeysRequest(email=EMAIL))).keys) == [key]
    gone = accounts.DeleteServiceAccountKeyRequest(email=EMAIL, id=key.id)
    run(service.delete_key(gone))
    with pytest.raises(NotFound):
        run(service.delete_key(gone))
    run(service.delete(accounts.DeleteServiceAccountRequest(email=EMAIL)))
    with pytest.raises(NotFound):
        run(service.list_keys(accounts.ListServiceAccountKeysRequest(email=EMAIL)))


@pytest.mark.parametrize(
    "key",
    [
        "", "no key", "x" * 5000, pem(ed25519.Ed25519PrivateKey.generate()),
        pem(ec.generate_private_key(ec.SECP384R1())),
    ],
)  # fmt: skip
def test_keys_that_no_token_could_be_checked_with_are_refused(plane, key: str) -> None:
    service = AccountsService(plane)
    run(service.create(CALL, accounts.CreateServiceAccountRequest(project="projects/a", email=EMAIL)))
    with pytest.raises(InvalidArgument):
        run(service.add_key(accounts.AddServiceAccountKeyRequest(email=EMAIL, public_key=key)))


@pytest.mark.parametrize("email", ["", "app", "App@a.example", "a b@c.d", "../x@y.z", "a@b\n"])
def test_addresses_have_one_form(plane, email: str) -> None:
    with pytest.raises(InvalidArgument):
        run(
            AccountsService(plane).create(CALL, accounts.CreateServiceAccountRequest(project="projects/a", email=email))
        )


class Caller:
    """Who may do what is said, on the server alone."""

    def __init__(self, *held: str) -> None:
        self.held = held

    def holds(self, call: MemoryCall, permission: str, resource: str) -> bool:
        return resource == SERVER and permission in self.held


OWN = "app@a.iam.corp.example"
NAMES = AccountNames("corp.example", frozenset({"root@z.example"}), frozenset({"login.example"}))
TAKEN = (
    "root@z.example", "any@login.example", "any@login.example.", "pubsub@syncpoint.internal",
    "other@syncpoint.internal",
)  # fmt: skip
OTHERS = ("app@b.iam.corp.example", "app@aa.iam.corp.example", "app@iam.corp.example")


def created(plane, email: str, *held: str, project: str = "projects/a"):
    service = AccountsService(plane, Accounts(plane.catalog, lambda: NAMES), Caller(*held))
    return run(service.create(CALL, accounts.CreateServiceAccountRequest(project=project, email=email)))


def test_a_project_makes_accounts_with_addresses_of_its_own(plane) -> None:
    made = created(plane, OWN)
    assert (made.email, made.project, len(made.unique_id)) == (OWN, "projects/a", 21)
    assert made.unique_id != created(plane, "second@a.iam.corp.example").unique_id
    assert created(plane, "dotted@b.c.iam.corp.example", project="projects/b.c").project == "projects/b.c"


@pytest.mark.parametrize("email", [*TAKEN, *OTHERS, "partner@p.example", "app@a.iam.corp.example.", "a@a.iam.other.x"])
def test_an_address_of_others_is_made_by_no_project(plane, email: str) -> None:
    with pytest.raises(InvalidArgument, match=r"NAME@a\.iam\.corp\.example"):
        created(plane, email)
    assert not plane.catalog.settings_named("service-account:")


@pytest.mark.parametrize("project", ["projects/A", "projects/a_", "projects/x:a"])
def test_a_project_whose_name_only_resembles_has_not_the_address(plane, project: str) -> None:
    with pytest.raises(InvalidArgument):
        created(plane, OWN, project=project)


def test_an_operator_makes_accounts_with_any_address_that_is_free(plane) -> None:
    for email in (*TAKEN, *OTHERS[:2]):
        with pytest.raises(InvalidArgument):
            created(plane, email, "iam.serviceAccounts.create")
    created(plane, OWN)
    created(plane, "partner@p.example", "iam.serviceAccounts.create")
    service = AccountsService(plane, Accounts(plane.catalog, lambda: NAMES), Caller())
    (foreign,) = run(service.list(accounts.ListServiceAccountsRequest(foreign=True))).accounts
    assert (foreign.email, foreign.project, foreign.reserved) == ("partner@p.example", "projects/a", False)


def test_an_account_whose_address_the_configuration_uses_gets_no_key_and_is_listed(plane) -> None:
    service = AccountsService(plane, Accounts(plane.catalog, lambda: NAMES), Caller())
    run(AccountsService(plane).create(CALL, accounts.CreateServiceAccountRequest(project="projects/a", email=TAKEN[0])))
    with pytest.raises(InvalidArgument, match="in the server's configuration"):
        run(service.add_key(accounts.AddServiceAccountKeyRequest(email=TAKEN[0], public_key=pem())))
    (listed,) = run(service.list(accounts.ListServiceAccountsRequest(project="projects/a", foreign=True))).accounts
    assert listed.reserved
    run(service.delete(accounts.DeleteServiceAccountRequest(email=TAKEN[0])))


def test_grants_to_an_account_end_with_it(plane, iam_service) -> None:
    run(CatalogService(plane).create_topic(pubsub.Topic(name=TOPIC)))
    member = f"serviceAccount:{EMAIL}"

    def grant() -> list[str]:
        policy = run(iam_service.get_policy(iam.GetIamPolicyRequest(resource=TOPIC)))
        policy.bindings.add(role="roles/pubsub.publisher", members=[member])
        stored = run(iam_service.set_policy(iam.SetIamPolicyRequest(resource=TOPIC, policy=policy)))
        assert stored == run(iam_service.get_policy(iam.GetIamPolicyRequest(resource=TOPIC)))
        return [one for binding in stored.bindings for one in binding.members]

    request = accounts.CreateServiceAccountRequest(project="projects/a", email=EMAIL)
    assert grant() == [member], "who comes from an issuer may be called so"
    service, uids = AccountsService(plane), []
    for dead in ([f"deleted:{member}?uid=0"], [f"deleted:{member}?uid=0", f"deleted:{member}?uid=%s"]):
        uids.append(run(service.create(CALL, request)).unique_id)
        assert grant() == [*(one.replace("%s", uids[0]) for one in dead), member]
        run(service.delete(accounts.DeleteServiceAccountRequest(email=EMAIL)))
    shown = run(iam_service.get_policy(iam.GetIamPolicyRequest(resource=TOPIC)))
    assert [one for binding in shown.bindings for one in binding.members] == [
        *(f"deleted:{member}?uid={uid}" for uid in ("0", *uids)),
    ]


def test_a_grant_to_an_account_that_only_a_project_could_make_needs_the_account(plane) -> None:
    run(CatalogService(plane).create_topic(pubsub.Topic(name=TOPIC)))
    service = IamService(plane, Policies(plane.catalog, Accounts(plane.catalog, lambda: NAMES)))
    binding = iam.Binding(role="roles/pubsub.publisher", members=[f"serviceAccount:{OWN}"])
    with pytest.raises(InvalidArgument, match=f"{OWN} does not exist"):
        run(service.set_policy(iam.SetIamPolicyRequest(resource=TOPIC, policy=iam.Policy(bindings=[binding]))))
    created(plane, OWN)
    stored = run(service.set_policy(iam.SetIamPolicyRequest(resource=TOPIC, policy=iam.Policy(bindings=[binding]))))
    assert stored.bindings == [binding]
