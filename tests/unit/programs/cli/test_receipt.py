"""Receipts: what the command asks, prints, and ends with."""

from syncpoint.wire.protobuf.messages import admin

COPIES = [{"disk": "/a", "state": "HELD"}, {"disk": "/b", "state": "DAMAGED", "reason": "checksum mismatch"}]


def answer(*, suffices=True, chain=0):
    return admin.Receipt(
        message_id="7", chain=chain, log=1, position=12, entry_bytes=90, suffices=suffices, needed=1, copies=COPIES
    )


def test_a_receipt_names_each_disk(server, run, run_json):
    server.answers["Admin.GetReceipt"] = answer()
    result = run("receipt", "7", "--topic", "orders")
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:]] == [["/a", "held"], ["/b", "damaged"]]
    assert "1 of 2 disks hold it (log 1, entry 12, 90 bytes)." in result.stderr
    _, request = server.calls[-1]
    assert (request.topic, request.message_id) == ("projects/p/topics/orders", "7")
    assert run_json("receipt", "7", "--topic", "orders")["copies"][1]["state"] == "DAMAGED"


def test_too_few_copies_end_with_1(server, run):
    server.answers["Admin.GetReceipt"] = answer(suffices=False, chain=3)
    result = run("receipt", "7", "--topic", "orders")
    assert result.exit_code == 1
    assert "(chain 3, log 1, entry 12, 90 bytes)" in result.stderr
    assert "syncpoint disks list" in result.stderr
