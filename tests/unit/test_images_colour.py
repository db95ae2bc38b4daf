"""Whatever samples, profile and transparency a picture has, its colours are right."""

import struct

import pytest
from PIL import Image, ImageCms

from app.images import Limits, normalise
from tests.charts import (
    CORNERS,
    WHITE,
    chart,
    chart_png,
    chunk,
    difference,
    encode,
    jpeg_with_segments,
    noise,
    pixel,
    png,
    srgb_profile,
    swapped_profile,
    tiff,
)

LIMITS = Limits()
RAMP = range(0, 256, 2)


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "WEBP", "TIFF", "AVIF"])
def test_a_colour_profile_is_followed(format_: str) -> None:
    red, green, blue = chart().split()
    data = encode(Image.merge("RGB", (blue, green, red)), format_, icc_profile=swapped_profile())
    assert difference(normalise(data, LIMITS)) <= 5


def test_an_srgb_profile_changes_no_pixel() -> None:
    image = noise(64, 64)
    assert normalise(encode(image, "PNG", icc_profile=srgb_profile()), LIMITS).tobytes() == image.tobytes()


@pytest.mark.parametrize("profile", [b"nonsense", srgb_profile()[:200], b"\0" * 128])
def test_a_broken_profile_is_ignored(profile: bytes) -> None:
    assert difference(normalise(encode(chart(), "PNG", icc_profile=profile), LIMITS)) == 0


def test_a_profile_chunk_that_does_not_unpack_is_ignored() -> None:
    assert difference(normalise(chart_png(chunk(b"iCCP", b"name\0\0broken")), LIMITS)) == 0


def test_a_profile_of_other_colours_is_ignored() -> None:
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    assert difference(normalise(encode(chart(), "PNG", icc_profile=lab), LIMITS)) == 0


def test_a_profile_cut_into_several_jpeg_segments_is_put_together() -> None:
    red, green, blue = chart().split()
    profile = swapped_profile()
    halves = [(0xE2, b"ICC_PROFILE\0\2\2" + profile[300:]), (0xE2, b"ICC_PROFILE\0\1\2" + profile[:300])]
    data = jpeg_with_segments(encode(Image.merge("RGB", (blue, green, red)), "JPEG"), *halves)
    assert difference(normalise(data, LIMITS)) <= 5


@pytest.mark.parametrize("format_", ["JPEG", "TIFF"])
def test_cmyk_is_not_inverted(format_: str) -> None:
    assert difference(normalise(encode(chart().convert("CMYK"), format_), LIMITS)) <= 5


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_grey_becomes_three_equal_channels(format_: str) -> None:
    image = normalise(encode(chart().convert("L"), format_), LIMITS)
    greys = [pixel(image, point) for point in CORNERS]
    assert all(
        abs(channel - want) <= 2
        for grey, want in zip(greys, (76, 150, 29, 226), strict=True)
        for channel in grey
    )


def test_one_bit_per_pixel_is_black_and_white() -> None:
    image = normalise(png((16, 1), 1, 0, [b"\x0f\xf0"]), LIMITS)
    assert [pixel(image, (x, 0))[0] for x in (3, 4, 11, 12)] == [0, 255, 255, 0]


def test_sixteen_bit_grey_png_keeps_its_high_bytes() -> None:
    row = b"".join(struct.pack(">H", value << 8 | 0x5A) for value in RAMP)
    image = normalise(png((128, 2), 16, 0, [row, row]), LIMITS)
    assert [pixel(image, (x, 1)) for x in range(128)] == [(value, value, value) for value in RAMP]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("white_is_zero", [False, True])
def test_sixteen_bit_grey_tiff_keeps_its_high_bytes(order: str, white_is_zero: bool) -> None:
    pixels = struct.pack(f"{order}128H", *(value << 8 | 0x5A for value in RAMP))
    image = normalise(tiff(order, pixels, bits=16, photometric=0 if white_is_zero else 1), LIMITS)
    want = [255 - value if white_is_zero else value for value in RAMP]
    assert [pixel(image, (x, 0))[0] for x in range(128)] == want


def test_sixteen_bit_colours_keep_their_high_bytes() -> None:
    row = struct.pack(">9H", 0xFF00, 0x8000, 0, 0, 0xFFFF, 0x0100, 0x1234, 0x5678, 0x9ABC)
    image = normalise(png((3, 1), 16, 2, [row]), LIMITS)
    assert [pixel(image, (x, 0)) for x in range(3)] == [(255, 128, 0), (0, 255, 1), (0x12, 0x56, 0x9A)]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_parts_are_white_and_half_transparent_ones_mixed(mode: str) -> None:
    image = Image.new(mode, (3, 1))
    for x, alpha in enumerate((0, 128, 255)):
        image.putpixel((x, 0), (0,) * (len(mode) - 1) + (alpha,))
    out = normalise(encode(image, "PNG"), LIMITS)
    assert [pixel(out, (x, 0))[0] for x in range(3)] == [255, 127, 0]


def test_a_bmp_whose_fourth_byte_is_zero_everywhere_is_opaque() -> None:
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", 124, 2, 1, 1, 32, 3, 8, 0, 0, 0, 0) + masks + b"BGRs" + bytes(64)
    head = struct.pack("<2sIHHI", b"BM", 146, 0, 0, 138) + header
    opaque = normalise(head + bytes((3, 2, 1, 0, 6, 5, 4, 0)), LIMITS)
    mixed = normalise(head + bytes((3, 2, 1, 0, 6, 5, 4, 255)), LIMITS)
    assert [pixel(opaque, (x, 0)) for x in range(2)] == [(1, 2, 3), (4, 5, 6)]
    assert [pixel(mixed, (x, 0)) for x in range(2)] == [WHITE, (4, 5, 6)]


@pytest.mark.parametrize("format_", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_white(format_: str) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette(bytes((9, 9, 9, 255, 0, 0)))
    image.putpixel((1, 0), 1)
    out = normalise(encode(image, format_, transparency=0), LIMITS)
    assert [pixel(out, (x, 0)) for x in range(2)] == [WHITE, (255, 0, 0)]


def test_a_transparent_grey_of_two_bits_is_white() -> None:
    image = normalise(png((4, 1), 2, 0, [b"\x1b"], [chunk(b"tRNS", b"\0\1")]), LIMITS)
    assert [pixel(image, (x, 0))[0] for x in range(4)] == [0, 255, 170, 255]


def test_a_transparent_grey_of_sixteen_bits_is_compared_in_all_bits() -> None:
    row = struct.pack(">3H", 0x1234, 0x1235, 0x8000)
    image = normalise(png((3, 1), 16, 0, [row], [chunk(b"tRNS", b"\x12\x34")]), LIMITS)
    assert [pixel(image, (x, 0))[0] for x in range(3)] == [255, 0x12, 0x80]


def test_a_transparent_colour_is_white() -> None:
    image = normalise(
        png((2, 1), 8, 2, [bytes((1, 2, 3, 1, 2, 4))], [chunk(b"tRNS", b"\0\1\0\2\0\3")]), LIMITS
    )
    assert [pixel(image, (x, 0)) for x in range(2)] == [WHITE, (1, 2, 4)]
