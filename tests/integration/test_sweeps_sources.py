"""What a sweep's source shows: catalogs by URL, tables by SQL; and what the operator does not allow."""

import json
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text

from app.config import Settings, read_sources
from app.errors import InvalidWork, RequestError
from app.objects import ObjectStore
from app.store.sweep_items import Listed
from app.sweeps.sources import Sources

TABLE = {"kind": "table", "database": "shop", "table": "products", "id_column": "sku", "image_column": "url"}


class Catalog:
    """A web server's answer."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def pour(self, url: str, take: Callable[[bytes], object]) -> None:
        for at in range(0, len(self.content), 65_536):
            take(self.content[at : at + 65_536])


@pytest.fixture
def products(database: Engine) -> Iterator[Engine]:
    """A shop's table, beside ours."""
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE products (sku int, url text, changed date)"))
        connection.execute(
            text(
                "INSERT INTO products SELECT n, 'https://shop.example/' || n || '.jpg', '2026-01-01' "
                "FROM generate_series(1, 2500) n"
            )
        )
        connection.execute(
            text("INSERT INTO products VALUES (NULL, 'https://x.example/', NULL), (0, NULL, NULL)")
        )
    yield database
    with database.begin() as connection:
        connection.execute(text("DROP TABLE products"))


@pytest.fixture
def allowed(settings: Settings) -> Settings:
    shop = {"shop": settings.database_url}
    return settings.model_copy(update={"sweep_sources": shop, "s3_source_buckets": (settings.s3_bucket,)})


def listed(sources: Sources, source: dict[str, Any], *columns: str) -> list[Listed]:
    return [one for page in sources.pages(source, columns=columns) for one in page]


def catalog(objects: ObjectStore, settings: Settings, content: bytes) -> Sources:
    return Sources(objects=objects, settings=settings, downloader=Catalog(content))  # pyright: ignore[reportArgumentType]


def test_a_table_is_listed_whole_without_rows_that_lack_something(
    products: Engine, objects: ObjectStore, allowed: Settings
) -> None:
    found = listed(Sources(objects=objects, settings=allowed), TABLE)
    assert len(found) == 2500
    assert ("1", "https://shop.example/1.jpg") in [(one.key, one.ref) for one in found]


def test_a_version_column_makes_a_row_another_version(
    products: Engine, objects: ObjectStore, allowed: Settings
) -> None:
    sources, source = Sources(objects=objects, settings=allowed), {**TABLE, "version_column": "changed"}
    before = {one.key: one.version for one in listed(sources, source)}
    with products.begin() as connection:
        connection.execute(text("UPDATE products SET changed = '2026-02-02' WHERE sku = 7"))
    after = {one.key: one.version for one in listed(sources, source)}
    assert [key for key in before if before[key] != after[key]] == ["7"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"database": "other"}, "source.database"),
        ({"table": "products; DROP TABLE products"}, "source.table"),
        ({"table": "a.b.c"}, "source.table"),
        ({"id_column": 'sku" FROM x --'}, "source.id_column"),
        ({"version_column": "(SELECT 1)"}, "source.version_column"),
    ],
)
def test_what_the_operator_has_not_named_is_refused(
    objects: ObjectStore, allowed: Settings, change: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as refused:
        Sources(objects=objects, settings=allowed).check({**TABLE, **change})
    assert refused.value.param == param


def test_a_table_that_is_not_there_says_so_without_the_password(
    objects: ObjectStore, allowed: Settings
) -> None:
    with pytest.raises(InvalidWork) as refused:
        listed(Sources(objects=objects, settings=allowed), {**TABLE, "table": "nowhere"})
    assert refused.value.code == "source_refused"
    assert "nowhere" in refused.value.message
    assert "postgresql://" not in refused.value.message


@pytest.mark.parametrize(
    "content",
    [
        b"sku;url;price\n1;https://a.example/1.jpg;2\n2;https://a.example/2.jpg;3\n",
        b'{"sku": 1, "url": "https://a.example/1.jpg"}\n\n{"url": "https://a.example/2.jpg", "sku": "2"}\n',
    ],
)
def test_a_catalog_is_csv_or_json_lines(objects: ObjectStore, settings: Settings, content: bytes) -> None:
    source = {**TABLE, "kind": "catalog", "url": "https://shop.example/feed"}
    found = listed(catalog(objects, settings, content), source)
    assert [(one.key, one.ref[-5:]) for one in found] == [("1", "1.jpg"), ("2", "2.jpg")]


@pytest.mark.parametrize("content", [b"name,url\n1,2\n", b'{"sku": 1\n', b'{"sku": 1}\n[2]\n'])
def test_a_catalog_that_cannot_be_read_shows_nothing(
    objects: ObjectStore, settings: Settings, content: bytes
) -> None:
    source = {**TABLE, "kind": "catalog", "url": "https://shop.example/feed"}
    with pytest.raises(InvalidWork) as refused:
        listed(catalog(objects, settings, content), source)
    assert refused.value.code == "source_unreadable"


def test_a_catalog_at_a_private_address_is_not_fetched(objects: ObjectStore, settings: Settings) -> None:
    source = {**TABLE, "kind": "catalog", "url": "http://169.254.169.254/latest"}
    with pytest.raises(InvalidWork) as refused:
        listed(Sources(objects=objects, settings=settings), source)
    assert refused.value.code == "blocked_address"


def test_a_bucket_that_is_not_allowed_is_not_listed(objects: ObjectStore, settings: Settings) -> None:
    with pytest.raises(RequestError, match="VQUEUE_S3_SOURCE_BUCKETS"):
        Sources(objects=objects, settings=settings).check({"kind": "bucket", "prefix": "s3://private/x"})


def test_a_bucket_that_does_not_exist_is_named(objects: ObjectStore, settings: Settings) -> None:
    allowed = settings.model_copy(update={"s3_source_buckets": ("not-made-yet",)})
    source = {"kind": "bucket", "prefix": "s3://not-made-yet/incoming/"}
    with pytest.raises(InvalidWork, match="no bucket 'not-made-yet'") as refused:
        listed(Sources(objects=objects, settings=allowed), source)
    assert refused.value.code == "source_unreadable"


def test_sources_are_named_in_the_settings() -> None:
    text = "shop=postgresql://u:p=1@h/d?x=y  lake=sqlite:////data/x.db"
    assert json.dumps(read_sources(text)) == (
        '{"shop": "postgresql://u:p=1@h/d?x=y", "lake": "sqlite:////data/x.db"}'
    )
    kept = Settings.model_validate({"sweep_sources": text}).sweep_sources["shop"]
    assert (type(kept), kept.get_secret_value()[-3:]) == (SecretStr, "x=y")
    with pytest.raises(ValueError, match="name=url"):
        read_sources("postgresql://u:p@h/d")


CATALOG = {**TABLE, "kind": "catalog", "url": "https://shop.example/feed"}
CSV = b"sku,url,Title,price\n1,https://a.example/1.jpg,Red shoe,2\n2,https://a.example/2.jpg,,3\n"
LINES = (
    b'{"sku": 1, "url": "https://a.example/1.jpg", "title": "Red shoe", "price": 2}\n'
    b'{"sku": 2, "url": "https://a.example/2.jpg", "price": 3}\n'
)


@pytest.mark.parametrize("content", [CSV, LINES])
def test_cells_of_the_columns_that_questions_name_come_with_their_row(
    objects: ObjectStore, settings: Settings, content: bytes
) -> None:
    one, other = listed(catalog(objects, settings, content), CATALOG, "title", "price")
    assert (one.cells, other.cells) == (
        {"title": "Red shoe", "price": "2"},
        {"title": "", "price": "3"},
    )
    plain, _ = listed(catalog(objects, settings, content), CATALOG)
    assert plain.version == one.version


@pytest.mark.parametrize("content", [CSV, LINES])
def test_a_column_that_a_catalog_has_not_is_named(
    objects: ObjectStore, settings: Settings, content: bytes
) -> None:
    with pytest.raises(InvalidWork, match="brand") as refused:
        listed(catalog(objects, settings, content), CATALOG, "brand")
    assert refused.value.code == "missing_column"


def test_cells_of_a_table_come_with_their_row(
    objects: ObjectStore, allowed: Settings, products: Engine
) -> None:
    found = listed(Sources(objects=objects, settings=allowed), TABLE, "changed")
    assert found[0].cells == {"changed": "2026-01-01"}


def test_a_column_that_a_table_has_not_is_named(
    objects: ObjectStore, allowed: Settings, products: Engine
) -> None:
    with pytest.raises(InvalidWork, match="brand") as refused:
        listed(Sources(objects=objects, settings=allowed), TABLE, "brand")
    assert refused.value.code == "source_refused"


def test_a_quoted_name_that_sqlite_has_not_is_no_text(
    objects: ObjectStore, settings: Settings, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "x.db") as shop:
        shop.execute("CREATE TABLE products (sku, url, changed)")
        shop.execute("INSERT INTO products VALUES (1, 'https://a.example/1.jpg', '')")
    shop.close()
    sources = {"shop": SecretStr(f"sqlite:///{tmp_path}/x.db")}
    with pytest.raises(InvalidWork, match="Brand"):
        listed(
            Sources(objects=objects, settings=settings.model_copy(update={"sweep_sources": sources})),
            TABLE,
            "Brand",
        )


@pytest.mark.parametrize("column", ["note", "other"])
def test_a_large_catalog_is_not_held_in_memory(objects: ObjectStore, settings: Settings, column: str) -> None:
    row = b'{"sku": %d, "url": "https://a.example/%d.jpg", "note": "' + b"x" * 2_000 + b'"}\n'
    content = b"".join(row % (number, number) for number in range(12_000))
    sources = catalog(objects, settings, content)
    tracemalloc.start()
    try:
        rows = sum(len(page) for page in sources.pages({**CATALOG, "version_column": column}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 12_000
    assert peak < len(content) / 4
