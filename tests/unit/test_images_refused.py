"""What is no usable image is refused by name, cheaply, and with nothing but ImageError."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from app.errors import ImageError
from app.images import Limits, inspect, normalise
from tests.charts import SIZE, chart, chart_png, chunk, encode, exif, jpeg_with_segments, noise, png, tiff

LIMITS = Limits(max_bytes=10**6, max_pixels=10**6)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
MP4 = b"\0\0\0\x14ftypisom\0\0\0\0mp41"

REFUSED = {
    "PDF": (b"%PDF-1.7\n", "unsupported_format"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "unsupported_format"),
    "SVG": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "unsupported_format"),
    "HEIC": (HEIC, "unsupported_format"),
    "MP4": (MP4, "unsupported_format"),
    "Photoshop": (b"8BPS\0\1", "unsupported_format"),
    "JPEG 2000": (b"\0\0\0\x0cjP  \r\n\x87\n", "unsupported_format"),
    "JPEG XL": (b"\xff\x0a\xfa", "unsupported_format"),
    "camera raw": (b"II*\0\x10\0\0\0CR\x02\0", "unsupported_format"),
    "BigTIFF": (b"II+\0\x08\0\0\0", "unsupported_format"),
    "ICO": (b"\0\0\1\0\1\0", "unsupported_format"),
    "gzip": (b"\x1f\x8b\x08\0", "unsupported_format"),
    "HTML": (b"\n <!DOCTYPE html><title>Robot check</title>", "not_an_image"),
    "JSON": (b'{"error": "not found"}', "not_an_image"),
    "XML": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "not_an_image"),
    "plain text": (b"404 page not found\n", "not_an_image"),
    "not an image": (b"\r\n\xff\xd8\xff\xe0", "not_an_image"),
    "0 bytes": (b"", "empty_body"),
}


@pytest.mark.parametrize("word", REFUSED)
def test_other_files_are_refused_by_name(word: str) -> None:
    data, code = REFUSED[word]
    error = refusal(data)
    assert error.code == code
    assert word in error.message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_truncated_pictures_are_refused(format_: str, share: float) -> None:
    data = encode(noise(64, 48), format_)
    error = refusal(data[: int(len(data) * share)])
    # The decoders of these do not tell an early end from other damage; nor does a file without its picture.
    untold = format_ in ("WEBP", "AVIF") or (format_, share) == ("GIF", 0.1)
    assert error.code == ("corrupt_image" if untold else "truncated")
    assert "truncated" in error.message


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
def test_truncated_tiffs_are_refused_under_every_compression(compression: str) -> None:
    data = encode(noise(64, 48), "TIFF", compression=compression)
    assert refusal(data[: len(data) // 2]).code == "truncated"


def test_a_cut_jpeg_is_told_from_a_broken_one() -> None:
    data = encode(noise(64, 48), "JPEG")
    assert "ends early" in refusal(data[:-100]).message
    assert "ends early" not in refusal(data.replace(b"\xff\xdb", b"\xff\xfe")).message


def test_a_png_whose_last_pixels_were_overwritten_is_refused() -> None:
    data = chart_png()
    assert "checksum" in refusal(data[:-20] + b"html" + data[-16:]).message


def test_a_decoder_that_would_read_another_size_is_stopped() -> None:
    data = encode(chart(), "JPEG")
    first = data.index(b"\xff\xc0")
    second = data[first:].replace(struct.pack(">HH", 64, 96), struct.pack(">HH", 2000, 2000), 1)
    assert "contradict" in refusal(data[: first + 19] + second).message


@pytest.mark.parametrize(
    "data",
    [
        png((0, 4), 8, 2, [b""]),
        encode(chart(), "JPEG").replace(struct.pack(">HH", 64, 96), struct.pack(">HH", 0, 96), 1),
        encode(chart(), "BMP")[:18] + struct.pack("<ii", 96, 0) + encode(chart(), "BMP")[26:],
        b"II*\0\x08\0\0\0\0\0\0\0\0\0",
    ],
    ids=["png", "jpeg", "bmp", "tiff"],
)
def test_a_picture_without_width_or_height_is_corrupt(data: bytes) -> None:
    assert refusal(data).code == "corrupt_image"


def test_a_header_of_many_pixels_is_enough_to_refuse() -> None:
    huge = {
        "png": png((20_000, 20_000), 8, 2, []),
        "jpeg": encode(chart(), "JPEG").replace(
            struct.pack(">HH", 64, 96), struct.pack(">HH", 65_500, 65_500), 1
        ),
        "gif": encode(chart(), "GIF").replace(
            struct.pack("<HH", *SIZE), struct.pack("<HH", 60_000, 60_000), 1
        ),
        "bmp": encode(chart(), "BMP")[:18] + struct.pack("<ii", 30_000, -30_000) + bytes(100),
        "webp": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\x3f\0" * 2,
    }
    assert {name: refusal(data).code for name, data in huge.items()} == dict.fromkeys(huge, "too_many_pixels")


def test_a_frame_larger_than_its_canvas_counts_in_full() -> None:
    data = encode(Image.new("P", (2000, 2000)), "GIF")
    assert refusal(data[:6] + struct.pack("<HH", 10, 10) + data[10:]).code == "too_many_pixels"


def test_a_webp_whose_frame_is_larger_than_its_canvas_is_corrupt() -> None:
    frame = encode(Image.new("RGB", (800, 800)), "WEBP")[12:]
    canvas = struct.pack("<4sI4x", b"VP8X", 10) + b"\x0f\0\0" * 2
    body = b"WEBP" + canvas + frame
    assert refusal(b"RIFF" + struct.pack("<I", len(body)) + body).code == "corrupt_image"


def test_a_tile_is_bounded_as_the_picture_is() -> None:
    tile = [(322, 30_000), (323, 30_000), (324, 8), (325, 9)]
    assert refusal(tiff("<", bytes(9), tags=tile)).code == "too_complex"


def test_floods_of_tiny_parts_are_refused_without_being_read() -> None:
    jpeg, gif = encode(chart(), "JPEG", progressive=True), encode(chart(), "GIF")
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    floods = {
        "scans": jpeg[:-2] + scan * 120 + b"\xff\xd9",
        "segments": jpeg_with_segments(jpeg, *[(0xFE, b"")] * 5000),
        "chunks": chart_png(chunk(b"tEXt", b"") * 70_000),
        "extensions": gif.replace(b",", b"!\xfe\0" * 5000 + b",", 1),
    }
    assert {name: refusal(data).code for name, data in floods.items()} == dict.fromkeys(floods, "too_complex")


def test_many_scans_behind_the_picture_do_not_count() -> None:
    data = encode(chart(), "JPEG", progressive=True) + b"\0\2" + b"\xff\xda\0\2" * 500
    assert normalise(data, LIMITS).size == SIZE


@pytest.mark.parametrize(("mode", "word"), [("F", "float"), ("I", "32 bits"), ("LAB", "LAB")])
def test_tiff_samples_that_no_rule_maps_to_colours_are_refused(mode: str, word: str) -> None:
    grey = chart() if mode == "LAB" else chart().convert("L")
    error = refusal(encode(grey.convert(mode), "TIFF"))
    assert error.code == "unsupported_format"
    assert word in error.message


def test_a_preview_in_front_of_camera_raw_data_is_no_picture() -> None:
    error = refusal(encode(chart(), "TIFF", tiffinfo={254: 1}))
    assert (error.code, "raw" in error.message) == ("unsupported_format", True)


def test_jpegs_of_twelve_bits_are_refused() -> None:
    data = bytearray(encode(chart(), "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = 12
    assert refusal(bytes(data)).code == "unsupported_format"


SEEDS = [
    *(encode(chart(), name) for name in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")),
    encode(chart().convert("CMYK"), "JPEG", exif=exif(6)),
    encode(chart(), "TIFF", compression="tiff_lzw"),
    HEIC,
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_image_raises_nothing_but_image_errors(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        damaged = damaged or bytearray(b"\0")
    outcome = _outcome(bytes(damaged))
    assert isinstance(outcome, ImageError) or outcome.mode == "RGB"


@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_image_errors(data: bytes) -> None:
    assert isinstance(_outcome(data), ImageError | Image.Image)


def _outcome(data: bytes) -> Image.Image | ImageError:
    try:
        info = inspect(data, LIMITS)
        image = normalise(data, LIMITS)
    except ImageError as error:
        return error
    assert image.size == (info.width, info.height)
    return image


def refusal(data: bytes) -> ImageError:
    with pytest.raises(ImageError) as caught:
        normalise(data, LIMITS)
    return caught.value
