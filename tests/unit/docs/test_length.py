"""The documentation stays short enough to be read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WORDS_MAX = 60_000


def test_the_pages_have_no_more_words_than_somebody_reads() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    counts = {str(page.relative_to(ROOT)): len(page.read_text().split()) for page in pages}
    assert sum(counts.values()) <= WORDS_MAX, sorted(counts.items(), key=lambda one: -one[1])[:10]
