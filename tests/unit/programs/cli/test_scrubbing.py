"""What may leave an installation, and what is removed."""

import pytest

from syncpoint.programs.cli.scrubbing import SecretTexts, scrubbed, without_secrets


def test_names_numbers_and_states_stay_and_what_users_wrote_goes():
    topic = {
        "name": "projects/p/topics/orders",
        "labels": {"team": "PLANTED", "name": "PLANTED"},
        "state": "ACTIVE",
        "messageRetentionDuration": "604800s",
        "backlogBytes": "123",
        "createTime": "2026-11-30T08:00:00.5Z",
        "filter": 'attributes.key = "PLANTED"',
        "pushConfig": {"pushEndpoint": "https://u:PLANTED@h/PLANTED?token=PLANTED", "attributes": {"name": "PLANTED"}},
        "messageTransforms": [{"javascriptUdf": {"functionName": "f", "code": "PLANTED"}}],
        "exactly": True,
        "comment": "PLANTED",
        "data": "UExBTlRFRA==",
    }
    shown = scrubbed(topic)
    assert "PLANTED" not in str(shown)
    assert "UExBTlRFRA" not in str(shown)
    kept = ("name", "state", "messageRetentionDuration", "backlogBytes", "createTime", "exactly")
    assert all(shown[key] == topic[key] for key in kept)
    assert shown["labels"] == "[removed: 2 entries]"
    assert shown["comment"] == "[removed: 7 characters]"


def test_settings_of_a_cluster():
    shown = scrubbed(
        {
            "metadata": {"etcd": ["https://root:PLANTED@10.0.0.1:2379"], "password": "PLANTED"},
            "buckets": {"region": "s3://x?secret_access_key=PLANTED"},
            "models": {"name": "https://h?key=PLANTED"},
            "alerts": {"webhook": "https://hooks.example/PLANTED"},
            "processes": {"storage-c1": {"roles": ["storage"], "listen": "10.0.1.1:7000", "region": "eu"}},
        }
    )
    assert "PLANTED" not in str(shown)
    assert shown["processes"]["storage-c1"] == {"roles": ["storage"], "listen": "10.0.1.1:7000", "region": "eu"}


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer PLANTED",
        "authorization=Basic UExBTlRFRA==PLANTED",
        'body {"access_token": "PLANTED", "x": 1}',
        "password = PLANTED",
        "the password is PLANTED",
        "DB_PASSWORD='PLANTED more'",
        "x-api-key: PLANTED",
        "aws_secret_access_key=PLANTED",
        "cookie: a=PLANTED",
        "pushes to https://user:PLANTED@example.com/hook?token=PLANTED#PLANTED failed",
        "pushes to https://hooks.example.com/services/T0/PLANTED failed",
        "etcd https://root:PLANTED@10.0.0.1:2379",
        "jwt eyJhbGciOiJIUzI1NiJ9.PLANTED.PLANTED",
        "-----BEGIN RSA PRIVATE KEY-----\nPLANTED\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nPLANTED",
        "key AKIA0000PLANTED0000",
        "sealed with PLANTED0123456789abcdefghijklmnopqrstuvwxyz0123456789ABCD=",
    ],
)
def test_what_looks_like_a_secret_is_removed_from_free_text(line):
    shown = without_secrets(f"2026-11-30 INFO {line}\nnext line stays")
    assert "PLANTED" not in shown
    assert "2026-11-30 INFO" in shown


@pytest.mark.parametrize(
    "line",
    [
        "syncpoint ready on 127.0.0.1:8085 (console: http://127.0.0.1:8085/console/)",
        "chain 2 cannot be opened in epoch 80: UNAVAILABLE: 4 of 9 disks are usable: /c2/d2 (it does not answer)",
        "message 479859913530216777216000000000000 of projects/p/topics/orders was redelivered",
        'syncpoint_published_messages_total{topic="projects/p/topics/orders-of-a-shop-with-a-long-name"} 12',
    ],
)
def test_what_helps_stays(line):
    assert without_secrets(line) == line


def test_secrets_that_are_known_are_removed_wherever_they_stand():
    known = SecretTexts(["tok3n-of-mine\n", "line-one-of-a-key\nline-two-of-a-key\n", "short"])
    assert known.removed_from("a tok3n-of-mine b line-two-of-a-key short") == (
        "a [removed: 13 characters] b [removed: 17 characters] short"
    )
