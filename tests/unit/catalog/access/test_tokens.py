"""Tokens: who they say calls, and every way to forge one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.catalog.access.access import Access
from syncpoint.catalog.access.accounts import Account, Key
from syncpoint.catalog.access.keysets import canonical, key_id, keys_of_set
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.access.tokens import ANONYMOUS, Refused
from syncpoint.catalog.metadata.records import CatalogChange, Setting

from .conftest import ACCOUNT, AUDIENCE, ISSUER, KEY, OTHER_KEY, RSA_KEY, Harness, jwks

URL = "https://login.example.com/keys"


def who(harness: Harness, token: bytes) -> Any:
    return harness.authenticator.by_token(token.removeprefix(b"Bearer "))


def piece(value: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def test_a_token_of_an_issuer_names_a_user(harness: Harness) -> None:
    ann = who(harness, harness.token(email="Ann@Example.com"))
    assert ann.principal == "user:ann@example.com"
    assert {"domain:example.com", "allUsers", "allAuthenticatedUsers"} < ann.members
    assert not ann.owner
    assert who(harness, harness.token(email="root@example.com")).owner
    rsa_token = harness.token(key=RSA_KEY, alg="RS256", header={"kid": "rsa"})
    assert who(harness, rsa_token).principal == ann.principal


def test_a_service_account_signs_for_itself(harness: Harness) -> None:
    app = who(harness, harness.signed_by_itself())
    assert app.principal == f"serviceAccount:{ACCOUNT}"
    scoped = harness.signed_by_itself(aud=None, scope="openid https://www.googleapis.com/auth/pubsub")
    assert who(harness, scoped).principal == app.principal
    assert who(harness, harness.signed_by_itself(aud="https://pubsub.googleapis.com/")).principal == app.principal


def test_a_certificate_names_a_principal(harness: Harness) -> None:
    found = harness.authenticator.by_certificate({"subject": ((("commonName", "etl"),),)})
    assert found.principal == "serviceAccount:etl@a.example"
    for certificate in (None, {}, {"subject": ((("commonName", "other"),),)}, {"subject": ((("title", "etl"),),)}):
        assert harness.authenticator.by_certificate(certificate) is ANONYMOUS


FORGED: dict[str, Any] = {
    "of another audience": lambda w: w.token(aud="https://other.example.com"),
    "of none": lambda w: w.token(aud=None),
    "expired": lambda w: w.token(exp=w.claims()["iat"] - 11),
    "without an end": lambda w: w.token(exp=None),
    "with an end that is no number": lambda w: w.token(exp=True),
    "not good yet": lambda w: w.token(nbf=w.claims()["iat"] + 60),
    "issued later": lambda w: w.token(iat=w.claims()["iat"] + 60),
    "without a subject": lambda w: w.token(sub=None),
    "of an issuer that is not listed": lambda w: w.token(iss="https://evil.example.com"),
    "without an issuer": lambda w: w.token(iss=None),
    "of an address the issuer does not speak for": lambda w: w.token(email="ann@other.com"),
    "of an address below a domain of the issuer": lambda w: w.token(email="ann@evil.com/@example.com"),
    "of an address that is not verified": lambda w: w.token(email_verified=False),
    "of an address that is said to be verified": lambda w: w.token(email_verified="true"),
    "without an address": lambda w: w.token(email=None),
    "of an unknown key": lambda w: w.token(header={"kid": "key-2"}),
    "of no key": lambda w: b".".join((piece({"alg": "ES256"}), *w.token().split(b".")[1:])),
    "of a key that is a path": lambda w: w.token(header={"kid": "../../etc/passwd"}),
    "of a key that is a query": lambda w: w.token(header={"kid": "' OR 1=1 --"}),
    "by another key": lambda w: w.token(key=OTHER_KEY),
    "with a key in its header": lambda w: w.token(key=OTHER_KEY, header={"jwk": jwk(OTHER_KEY)}),
    "with a key elsewhere": lambda w: w.token(header={"jku": "https://evil.example.com/keys"}),
    "with a certificate elsewhere": lambda w: w.token(header={"x5u": "https://evil.example.com/cert"}),
    "with something critical": lambda w: w.token(header={"crit": ["exp"]}),
    "by its own key under another kind": lambda w: w.token(key=RSA_KEY, alg="RS256"),
    "of an account, with another subject": lambda w: w.signed_by_itself(sub="root@example.com"),
    "of an account, by another key": lambda w: w.signed_by_itself(key=OTHER_KEY),
    "of an account, for more than an hour": lambda w: w.signed_by_itself(exp=w.claims()["iat"] + 3700),
    "of an account, issued at no time": lambda w: w.signed_by_itself(iat=None),
    "of an account, for another service": lambda w: w.signed_by_itself(aud="https://storage.googleapis.com/"),
    "of an account, for no service": lambda w: w.signed_by_itself(aud=None),
    "of an account, for other services": lambda w: w.signed_by_itself(aud=None, scope="https://www.googleapis.com/auth/x"),
    "of an account that is not registered": lambda w: w.signed_by_itself(email="other@a.example"),
    "unsigned": lambda w: b".".join((piece({"alg": "none", "kid": "key-1"}), piece(w.claims()), b"")),
    "unsigned in capitals": lambda w: b".".join((piece({"alg": "NoNe", "kid": "key-1"}), piece(w.claims()), b"")),
    "by the public key as a secret": lambda w: public_as_secret(w),
    "cut": lambda w: w.token()[:-8],
    "empty": lambda w: b"",
    "no token": lambda w: b"a.b.c",
    "deep": lambda w: b".".join((base64.urlsafe_b64encode(b"[" * 9000), piece(w.claims()), b"")),
    "long": lambda w: w.token(filler="x" * 20_000),
    "with a text instead of claims": lambda w: b".".join((piece({"alg": "ES256", "kid": "key-1"}), piece("x"), b"")),
}  # fmt: skip


def jwk(key: Any) -> Any:
    return json.loads(jwks(x=key))["keys"][0]


def public_as_secret(harness: Harness) -> bytes:
    signed = piece({"alg": "HS256", "kid": "rsa"}) + b"." + piece(harness.claims())
    secret = canonical(RSA_KEY.public_key()).encode()
    mac = hmac.digest(secret, signed, hashlib.sha256)
    return signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_token_is_refused(harness: Harness, kind: str) -> None:
    token = FORGED[kind](harness)
    with pytest.raises(Refused):
        who(harness, token)
    assert not harness.authenticator.sets.wanted, "nothing is fetched because a token says so"


def test_a_key_that_is_taken_from_an_account_ends_its_tokens(harness: Harness) -> None:
    key = Key(key_id(OTHER_KEY.public_key()), canonical(OTHER_KEY.public_key()))
    account = Account("job@a.example", "projects/a", keys=(key,))
    token = harness.signed_by_itself(key=OTHER_KEY, kid=key.id, email=account.email)
    with pytest.raises(Refused):
        who(harness, token)
    harness.apply(CatalogChange.put(account.setting()))
    etl = who(harness, token)
    assert harness.authenticator.still(etl)
    harness.apply(CatalogChange.put(Account("job@a.example", "projects/a").setting()))
    assert not harness.authenticator.still(etl)
    with pytest.raises(Refused):
        who(harness, token)


def test_a_key_of_an_account_expires(harness: Harness) -> None:
    ends = harness.clock.time_ns() // 10**9 + 60
    key = Key(key_id(OTHER_KEY.public_key()), canonical(OTHER_KEY.public_key()), expire_s=ends)
    harness.apply(CatalogChange.put(Account("job@a.example", "projects/a", keys=(key,)).setting()))
    etl = who(harness, harness.signed_by_itself(key=OTHER_KEY, kid=key.id, email="job@a.example"))
    assert harness.authenticator.still(etl)
    harness.clock.advance(61)
    assert not harness.authenticator.still(etl)


def own_key() -> Key:
    return Key(key_id(OTHER_KEY.public_key()), canonical(OTHER_KEY.public_key()))


def signed(harness: Harness, email: str) -> Any:
    return who(harness, harness.signed_by_itself(key=OTHER_KEY, kid=own_key().id, email=email))


@pytest.mark.parametrize(
    "email",
    [
        "root@example.com", "any@example.com", "any@example.com.", "etl@a.example", ACCOUNT,
        "pubsub@syncpoint.internal", "owner@far.example", "mover@far.example",
    ],
)  # fmt: skip
def test_an_account_whose_address_the_configuration_uses_is_nobody(harness: Harness, email: str) -> None:
    """However it came into the catalog."""
    harness.apply(CatalogChange.put(Account(email, "projects/evil", keys=(own_key(),), drawn_uid="1").setting()))
    harness.content["owners"].append("serviceAccount:owner@far.example")
    harness.content["service_identity"] = "serviceAccount:mover@far.example"
    harness.authenticator.take(parse(harness.content))
    with pytest.raises(Refused):
        signed(harness, email)
    assert harness.authenticator.accounts.find(email) is None


def test_an_account_is_called_by_its_own_number_and_by_a_domain_that_is_its_projects(harness: Harness) -> None:
    every = {"allUsers", "allAuthenticatedUsers"}
    for email, uid, members in (
        ("a@p.example", "77", {"serviceAccount:a@p.example?uid=77"}),
        ("a@b.iam.syncpoint.internal", "7", {"serviceAccount:a@b.iam.syncpoint.internal?uid=7"}),
        (
            "a@p.iam.syncpoint.internal",
            "7",
            {"serviceAccount:a@p.iam.syncpoint.internal?uid=7", "domain:p.iam.syncpoint.internal"},
        ),
    ):
        harness.apply(CatalogChange.put(Account(email, "projects/p", keys=(own_key(),), drawn_uid=uid).setting()))
        found = signed(harness, email)
        assert found.members == members | every
        assert (found.principal, found.owner) == (f"serviceAccount:{email}", False)
    before = Account("old@p.example", "projects/p", keys=(own_key(),))
    value = {key: part for key, part in json.loads(before.setting().value).items() if key != "uid"}
    harness.apply(CatalogChange.put(Setting(before.setting().name, json.dumps(value).encode())))
    assert {"serviceAccount:old@p.example", f"serviceAccount:old@p.example?uid={before.uid}"} < signed(
        harness, "old@p.example"
    ).members, "one of before keeps what it was granted"


def test_who_is_known_is_not_the_account_that_is_made_anew_with_the_same_key(harness: Harness) -> None:
    for uid in ("1", "2", ""):
        harness.apply(
            CatalogChange.put(Account("a@p.example", "projects/p", keys=(own_key(),), drawn_uid=uid).setting())
        )
        if uid == "1":
            first = signed(harness, "a@p.example")
        assert harness.authenticator.still(first) == (uid == "1")


def test_letters_whose_small_one_is_of_ascii_make_another_address(harness: Harness) -> None:
    harness.content["owners"].append("user:kate@example.com")
    harness.authenticator.take(parse(harness.content))
    assert who(harness, harness.token(email="Kate@example.com")).owner
    kelvin = who(harness, harness.token(email="\u212aate@example.com"))
    assert not kelvin.owner
    assert "user:kate@example.com" not in kelvin.members


@pytest.mark.parametrize("suffix", ["Corp.example", "corp.example.", ".example", "a b", "x" * 101])
def test_what_accounts_end_with_is_a_domain(harness: Harness, suffix: str) -> None:
    with pytest.raises(InvalidArgument, match="account_suffix"):
        parse(harness.content | {"account_suffix": suffix})


def test_keys_of_an_issuer_are_asked_for_when_they_are_new_and_go_when_withdrawn(harness: Harness) -> None:
    harness.content["issuers"] = [{"issuer": ISSUER, "jwks_url": URL, "domains": ["example.com"]}]
    harness.authenticator.take(parse(harness.content))
    sets = harness.authenticator.sets
    with pytest.raises(Unavailable):
        who(harness, harness.token())  # those of the file count no more
    sets.put(ISSUER, jwks(key_1=KEY), harness.clock.monotonic())
    assert who(harness, harness.token()).principal == "user:ann@example.com"
    with pytest.raises(Refused):
        who(harness, harness.token(header={"kid": "key-2"}))  # the set was read a moment ago
    harness.clock.advance(11)
    for _ in range(2):
        with pytest.raises(Unavailable):
            who(harness, harness.token(header={"kid": "key-2"}))
    assert sets.wanted == {ISSUER}
    before = harness.authenticator.generation
    sets.put(ISSUER, jwks(key_2=OTHER_KEY), harness.clock.monotonic())
    assert not sets.wanted
    assert harness.authenticator.generation > before
    assert who(harness, harness.token(key=OTHER_KEY, header={"kid": "key-2"})).principal == "user:ann@example.com"
    with pytest.raises(Refused):
        who(harness, harness.token())
    same = harness.authenticator.generation
    sets.put(ISSUER, jwks(key_2=OTHER_KEY), harness.clock.monotonic())
    assert harness.authenticator.generation == same
    with pytest.raises(InvalidArgument):
        sets.put(ISSUER, b"<html>", harness.clock.monotonic())
    assert sets.find(ISSUER, "key-2") is not None, "what cannot be read changes nothing"


def test_weak_secret_and_foreign_keys_do_not_get_into_a_set() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    good = json.loads(jwks(good=KEY))["keys"][0]
    listed = [
        good,
        json.loads(jwks(weak=weak))["keys"][0],
        json.loads(jwks(curve=ec.generate_private_key(ec.SECP521R1())))["keys"][0],
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"},
        {**good, "kid": "sealing", "use": "enc"},
        {key: value for key, value in good.items() if key != "kid"},
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY)), "kid": "private"},
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "!", "y": "!"},
        "no key",
    ]
    assert set(keys_of_set(json.dumps({"keys": listed}).encode())) == {"good"}


def test_a_subject_becomes_an_address_that_no_other_subject_has(harness: Harness) -> None:
    kubernetes = {"issuer": "https://k8s", "jwks_file": "keys.json", "domains": ["k8s.example"], "claim": "sub"}
    harness.content["issuers"].append({**kubernetes, "kind": "serviceAccount"})
    harness.authenticator.take(parse(harness.content))
    named = [
        who(harness, harness.token(iss="https://k8s", sub=sub, email=None)).principal
        for sub in ("system:serviceaccount:ns:app", "system.serviceaccount.ns.app", "x@root.example", "App", "app")
    ]
    assert named[0] == "serviceAccount:system%3aserviceaccount%3ans%3aapp@k8s.example"
    assert len(set(named)) == 5
    assert all(one.endswith("@k8s.example") for one in named)


def test_groups_come_only_from_the_claim_the_file_names_and_in_the_issuers_domains(harness: Harness) -> None:
    listed = ["ops@example.com", "root@other.com", 5, "x"]
    assert not any(one.startswith("group:") for one in who(harness, harness.token(groups=listed)).members)
    harness.content["issuers"][0]["groups_claim"] = "groups"
    harness.authenticator.take(parse(harness.content))
    found = {one for one in who(harness, harness.token(groups=listed)).members if one.startswith("group:")}
    assert found == {"group:ops@example.com"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"owner": []}, "owner"),
        ({"owners": ["allUsers"]}, "owners"),
        ({"owners": ["domain:example.com"]}, "owners"),
        ({"issuers": [{"issuer": "i", "jwks_file": "k"}]}, "issuers[0].domains"),
        ({"issuers": [{"issuer": "i", "jwks_url": "http://x/y", "domains": ["d"]}]}, "issuers[0].jwks_url"),
        ({"issuers": [{"issuer": "i", "jwks_url": "file:///x", "domains": ["d"]}]}, "issuers[0].jwks_url"),
        ({"issuers": [{"issuer": "i", "jwks_file": "k", "domains": ["d"], "algorithms": ["HS256"]}]}, "algorithms"),
        ({"issuers": [{"issuer": "i", "jwks_file": "k", "domains": ["d"], "algorithms": ["none"]}]}, "algorithms"),
        ({"certificates": [{"match": "etl", "principal": "user:a@b.c"}]}, "certificates[0].match"),
        ({"certificates": [{"match": "CN:etl", "principal": "allUsers"}]}, "certificates[0].principal"),
        ({"service_accounts": [{"email": "X", "key_files": []}]}, "email"),
        ({"audiences": AUDIENCE}, "audiences"),
    ],
)
def test_a_file_that_means_nothing_is_refused_with_the_place(harness: Harness, change: Any, named: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse({**harness.content, **change})
    assert named in refused.value.message


def test_a_file_that_can_not_be_taken_over_leaves_everything_as_it_was(harness: Harness) -> None:
    ann = who(harness, harness.token())
    harness.files[Path("app.pem")] = b"no key"
    with pytest.raises(InvalidArgument):
        harness.authenticator.take(parse(harness.content))
    assert who(harness, harness.token()) == ann
    assert who(harness, harness.signed_by_itself()).account == ACCOUNT


def test_a_key_file_that_cannot_be_used_is_named_with_its_key_and_the_file_that_names_it(
    harness: Harness, tmp_path: Path
) -> None:
    auth = tmp_path / "auth.yaml"
    (tmp_path / "app.pem").write_text("no key")
    keys, gone = tmp_path / "keys.json", tmp_path / "gone" / "audit.log"
    for content, named in (
        (harness.content | {"service_accounts": []}, f"issuers: {ISSUER}: jwks_file: {keys} cannot be"),
        (harness.content, f"service_accounts: {ACCOUNT}: key_files: {tmp_path / 'app.pem'}: "),
        ({"audit": {"file": "gone/audit.log"}}, f"audit.file: {gone} cannot be used: No such"),
    ):
        auth.write_text(yaml.safe_dump(content))
        with pytest.raises(InvalidArgument) as refused:
            Access(auth, harness.catalog, harness.clock)
        assert refused.value.message.startswith(f"{auth}: {named}")
    auth.unlink()
    with pytest.raises(InvalidArgument, match=r"auth: .* No such file"):
        Access(auth, harness.catalog, harness.clock)


def test_buckets_and_models_are_for_projects(harness: Harness) -> None:
    model = "projects/ml/locations/l/endpoints/e"
    nothing = parse(harness.content)
    assert not nothing.may_use_bucket("projects/demo", "archive")
    assert nothing.may_use_model("projects/ml", model)
    assert not nothing.may_use_model("projects/m", model)
    assert not nothing.may_use_model("projects/demo", model)
    named = parse(harness.content | {"buckets": {"archive": ["projects/demo"]}, "models": {model: ["projects/demo"]}})
    assert named.may_use_bucket("projects/demo", "archive")
    assert not named.may_use_bucket("projects/demo", "other")
    assert not named.may_use_bucket("projects/ml", "archive")
    assert named.may_use_model("projects/demo", model)
    for wrong in ({"buckets": {"a": ["demo"]}}, {"buckets": {"a": "projects/demo"}}, {"models": ["x"]}):
        with pytest.raises(InvalidArgument):
            parse(harness.content | wrong)
