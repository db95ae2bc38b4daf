"""Serves the kinds image, image_pair, dataurl and s3, and token counts, by the product's own functions."""

import json
import resource

from app.errors import WorkError
from app.images import NORMALISER_VERSION, Limits, content_hash, inspect, normalise
from app.references import parse_reference
from app.visual_tokens import patch_grid, smart_resize, visual_tokens
from tests.fieldcases.cases import Accepted, Case, Did, NotServed, Outcome, Refused

LIMITS = Limits()
# A picture of the largest allowed size takes 200 MB; no case may cost more than this.
_MOST_MEMORY_MB = 300


def accept(data: bytes) -> Outcome:
    """What becomes of an image's bytes: the header is checked as at upload, the pixels as by a worker."""
    before = _peak_mb()
    outcome = _accept(data)
    grown = _peak_mb() - before
    return Did("used too much memory", {"mb": grown}) if grown > _MOST_MEMORY_MB else outcome


def _accept(data: bytes) -> Outcome:
    try:
        info = inspect(data, LIMITS)
        image = normalise(data, LIMITS)
    except WorkError as error:
        return Refused(error.code, error.message)
    if image.size != (info.width, info.height):
        return Did("header and picture differ", {"size": image.size, "header": (info.width, info.height)})
    return Accepted(image)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def serve_image(case: Case) -> Outcome:
    return accept(case.read())


def serve_dataurl(case: Case) -> Outcome:
    try:
        reference = parse_reference(case.payload["url"])
    except WorkError as error:
        return Refused(error.code, error.message)
    return accept(reference.data)


def serve_image_pair(case: Case) -> Outcome:
    """Two files must differ in what every cache is keyed by; their pixels are looked at as well."""
    files = [case.read(name) for name in case.payload["files"]]
    keys = {(content_hash(data), NORMALISER_VERSION) for data in files}
    images = [normalise(data, LIMITS) for data in files]
    expect = case.expectations[0]
    sizes = [list(image.size) for image in images]
    probe = expect.get("probe")
    colours = (
        [list(map(int, _pixel(image.getpixel(tuple(probe["xy"]))))) for image in images] if probe else []
    )
    holds = len(keys) == 2 and sizes == expect.get("sizes", sizes) and (not probe or colours == probe["rgb"])
    return Did(expect["verdict"] if holds else "pictures differ", {"sizes": sizes, "colours": colours})


def _pixel(value: float | tuple[int, ...] | None) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return value


def serve_s3(case: Case) -> Outcome:
    """References only."""
    expect = case.expectations[0]
    if "ref" not in case.payload:
        return NotServed("nobody has acted this row out")
    try:
        reference = parse_reference(case.payload["ref"])
    except WorkError as error:
        return Refused(error.code, error.message)
    details = {"bucket": reference.bucket, "key": reference.key}
    unchanged = details == {"bucket": expect.get("bucket"), "key": expect.get("key")}
    return Did("parsed" if unchanged else "parsed otherwise", details)


def serve_token_table(case: Case) -> Outcome:
    wrong = [row for row in json.loads(case.read()) if not _table_row_holds(row)]
    return Did("table" if not wrong else "other numbers", {"wrong": wrong})


def _table_row_holds(row: dict[str, object]) -> bool:
    width, height, least, most = (row[name] for name in ("width", "height", "min_pixels", "max_pixels"))
    assert isinstance(width, int)
    assert isinstance(height, int)
    assert isinstance(least, int)
    assert isinstance(most, int)
    rows, columns = smart_resize(width, height, min_pixels=least, max_pixels=most)
    grid = patch_grid(width, height, min_pixels=least, max_pixels=most)
    tokens = visual_tokens(width, height, min_pixels=least, max_pixels=most)
    return [[columns, rows], list(grid), tokens] == [row["resized"], row["grid_thw"], row["image_tokens"]]
