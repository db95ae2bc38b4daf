"""The demo's catalog is the same every time, and so is the sample of it in the repository."""

from io import StringIO

from demo.catalog import SAMPLE, SAMPLE_URL, make_catalog, right, write_csv
from demo.products import KINDS


def test_the_sample_in_the_repository_is_the_catalog_of_the_demo() -> None:
    table = StringIO()
    write_csv(make_catalog(), table, SAMPLE_URL)
    assert SAMPLE.read_text(encoding="utf-8") == table.getvalue()


def test_every_good_entry_has_a_picture_and_five_right_answers() -> None:
    good = [entry for entry in make_catalog(20) if not entry.broken]
    assert len(good) == 20
    assert all(entry.picture and all(right(entry, kind) for kind in KINDS) for entry in good)


def test_broken_entries_have_no_right_answer() -> None:
    broken = [entry for entry in make_catalog(1) if entry.broken]
    assert [entry.broken for entry in broken] == ["missing", "cut off", "a web page"]
    assert not any(right(entry, kind) for entry in broken for kind in KINDS)
