"""Tables of plain text."""

from syncpoint.programs.cli.text_tables import columns_of, lines_of


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks():
    assert lines_of(["NAME", "STATE"], [["orders", "ACTIVE"], ["a", ""]], bold=False) == [
        "NAME     STATE",
        "───────────────",
        "orders   ACTIVE",
        "a",
    ]


def test_cells_of_several_lines_and_of_wide_characters():
    assert lines_of(["DATA", "ID"], [["日本\nb", "1"]], bold=False)[2:] == ["日本   1", "b"]
    assert columns_of("日本") == 4


def test_headings_are_bold_where_asked():
    assert lines_of(["A"], [["b"]], bold=True)[0] == "\x1b[1mA\x1b[0m"


def test_data_cannot_steer_the_terminal():
    assert lines_of(["DATA"], [["\x1b]0;title\x07\x9b31mred\ta"]], bold=False)[2] == "]0;title31mred       a"
