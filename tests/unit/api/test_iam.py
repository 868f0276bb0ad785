"""IAMPolicy and ServiceAccounts over a control plane: what is stored, refused and deleted along."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from syncpoint.access.policy import PREFIX, Policies
from syncpoint.api.accounts import AccountsService
from syncpoint.api.admin_handlers import CatalogService
from syncpoint.api.iam import IamService
from syncpoint.model.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from syncpoint.transport.memory import MemoryCall
from syncpoint.wire.messages import accounts, iam, pubsub

TOPIC = "projects/a/topics/one"
EMAIL = "app@a.example"


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
    call = MemoryCall(b"", {}, None, lambda error: None)
    asked = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=["pubsub.topics.get", "pubsub.topics.publish"])
    assert iam_service.test(call, asked).permissions == [], "not NOT_FOUND, as with the real service"
    run(CatalogService(plane).create_topic(pubsub.Topic(name=TOPIC)))
    assert iam_service.test(call, asked).permissions == asked.permissions
    asked.permissions.append("pubsub.*")
    with pytest.raises(InvalidArgument, match="not valid for this resource"):
        iam_service.test(call, asked)


def test_accounts_and_their_keys_come_and_go(plane) -> None:
    service = AccountsService(plane)
    created = run(service.create(accounts.CreateServiceAccountRequest(project="projects/a", email=EMAIL)))
    with pytest.raises(AlreadyExists):
        run(service.create(accounts.CreateServiceAccountRequest(project="projects/b", email=EMAIL)))
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
    run(service.create(accounts.CreateServiceAccountRequest(project="projects/a", email=EMAIL)))
    with pytest.raises(InvalidArgument):
        run(service.add_key(accounts.AddServiceAccountKeyRequest(email=EMAIL, public_key=key)))


@pytest.mark.parametrize("email", ["", "app", "App@a.example", "a b@c.d", "../x@y.z", "a@b\n"])
def test_addresses_have_one_form(plane, email: str) -> None:
    with pytest.raises(InvalidArgument):
        run(AccountsService(plane).create(accounts.CreateServiceAccountRequest(project="projects/a", email=email)))
