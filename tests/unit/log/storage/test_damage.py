"""Where a copy is damaged: decisions go by the place, whatever is said of it."""

from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace


def test_a_place_is_the_same_whoever_found_it_and_reads_well() -> None:
    by_a_read, by_a_look = (
        Damage(SegmentPlace(SegmentPart.FRAME, 64), "checksum"),
        Damage(SegmentPlace(SegmentPart.FRAME, 64), "payload"),
    )
    assert by_a_read != by_a_look
    assert by_a_read.place == by_a_look.place
    assert SegmentPlace(SegmentPart.INDEX, 64) != SegmentPlace(SegmentPart.FRAME, 64)
    assert [
        str(by_a_read),
        str(Damage(SegmentPlace(SegmentPart.INDEX, 128))),
        str(Damage(SegmentPlace(SegmentPart.TRAILER))),
    ] == [
        "frame at 64: checksum",
        "index page at 128",
        "trailer",
    ]
    places = {
        SegmentPlace(SegmentPart.HEADER),
        SegmentPlace(SegmentPart.INDEX, 7),
        SegmentPlace(SegmentPart.FRAME, 1000),
        SegmentPlace(SegmentPart.FRAME, 64),
    }
    assert [str(one) for one in sorted(places)] == ["frame at 64", "frame at 1000", "header", "index page at 7"]
