"""Keys of stored objects, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ids import KeyParts, file_key, image_key, key_parts, new_batch_id, new_file_id, result_file_id

HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)


def test_a_files_key_says_whose_it_is() -> None:
    file_id = new_file_id()
    found = key_parts(file_key("tenant_1", file_id))
    assert found is not None
    assert (found.tenant_id, found.file_id, found.content_hash) == ("tenant_1", file_id, None)


@pytest.mark.parametrize("part", ["output", "error"])
def test_a_result_files_key_names_its_batch(part: str) -> None:
    batch_id = new_batch_id()
    found = key_parts(file_key("tenant_1", result_file_id(batch_id, part)))
    assert found is not None
    assert found.batch_id == batch_id


@given(HASHES)
def test_an_images_key_names_its_content(content_hash: str) -> None:
    assert key_parts(image_key("tenant_1", content_hash)) == KeyParts("tenant_1", content_hash=content_hash)


@pytest.mark.parametrize(
    "key",
    [
        "files/tenant_1/notes.txt",
        f"images/tenant_1/ab/{'c' * 64}",  # in another's folder
        f"images/tenant_1/cc/{'c' * 63}",
        f"backup/files/tenant_1/file-{'0' * 32}",
        f"files/a/b/file-{'0' * 32}",
        f"files/tenant_1/file-{'0' * 32}-summary",
        "",
    ],
)
def test_other_keys_are_none_of_ours(key: str) -> None:
    assert key_parts(key) is None
