"""An accepted image comes out upright, and its header says so beforehand."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from app.errors import ImageError
from app.images import ImageInfo, Limits, content_hash, inspect, normalise
from app.imaging.formats import Format
from tests.charts import SIZE, chart, chart_png, chunk, difference, encode, exif, jpeg_with_segments, turned

LIMITS = Limits()
LOSSY = 14  # the largest error per channel that a lossy coder makes in the middle of a quadrant


@pytest.mark.parametrize("format_", list(Format))
def test_every_format_is_accepted_and_named(format_: Format) -> None:
    data = encode(chart(), format_.upper())
    info = inspect(data, LIMITS)
    assert info == ImageInfo(format_, f"image/{format_.lower()}", *SIZE)
    assert difference(normalise(data, LIMITS)) <= LOSSY


def test_an_mpo_is_read_as_the_jpeg_that_it_begins_with() -> None:
    data = encode(chart(), "MPO", save_all=True, append_images=[Image.new("RGB", SIZE)])
    assert inspect(data, LIMITS).format == Format.JPEG
    assert difference(normalise(data, LIMITS)) <= LOSSY


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_every_orientation_comes_out_upright(format_: str, orientation: int) -> None:
    data = encode(turned(orientation), format_, exif=exif(orientation))
    info = inspect(data, LIMITS)
    assert (info.width, info.height) == SIZE
    assert difference(normalise(data, LIMITS)) <= LOSSY


def test_big_endian_exif_is_read() -> None:
    data = encode(turned(6), "JPEG", exif=exif(6, ">"))
    assert difference(normalise(data, LIMITS)) <= LOSSY


@pytest.mark.parametrize(
    "block", [b"", b"II*\0", b"MM\0*\0\0\0\x08\x03\x84", exif(0)[6:], exif(9)[6:], b"nonsense"]
)
def test_broken_or_senseless_exif_leaves_the_picture_as_it_is(block: bytes) -> None:
    data = jpeg_with_segments(encode(chart(), "JPEG"), (0xE1, b"Exif\0\0" + block))
    assert inspect(data, LIMITS).width == 96
    assert difference(normalise(data, LIMITS)) <= LOSSY


def test_an_orientation_in_xmp_is_not_followed() -> None:
    packet = b'<rdf:Description tiff:Orientation="6"/>'
    jpeg = jpeg_with_segments(encode(chart(), "JPEG"), (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + packet))
    tiff = encode(chart(), "TIFF", tiffinfo={700: packet})
    assert difference(normalise(jpeg, LIMITS)) <= LOSSY
    assert difference(normalise(tiff, LIMITS)) == 0


def test_the_picture_is_decoded_and_not_its_exif_thumbnail() -> None:
    thumbnail = encode(Image.new("RGB", (32, 16)), "JPEG")
    data = jpeg_with_segments(encode(chart(), "JPEG"), (0xE1, exif(1) + thumbnail))
    assert difference(normalise(data, LIMITS)) <= LOSSY


@pytest.mark.parametrize("format_", ["GIF", "WEBP", "TIFF"])
def test_the_first_of_several_frames_is_taken(format_: str) -> None:
    black = Image.new("RGB", SIZE)
    data = encode(chart(), format_, save_all=True, append_images=[black, black])
    assert difference(normalise(data, LIMITS)) <= LOSSY


def test_a_still_picture_outside_of_its_animation_is_taken() -> None:
    animation = encode(
        chart(), "PNG", save_all=True, default_image=True, append_images=[Image.new("RGB", SIZE)] * 2
    )
    assert difference(normalise(animation, LIMITS)) == 0


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
def test_tiff_compressions_are_read(compression: str) -> None:
    assert difference(normalise(encode(chart(), "TIFF", compression=compression), LIMITS)) <= LOSSY


def test_progressive_jpegs_and_interlaced_gifs_are_read() -> None:
    assert difference(normalise(encode(chart(), "JPEG", progressive=True), LIMITS)) <= LOSSY
    assert difference(normalise(encode(chart(), "GIF", interlace=True), LIMITS)) == 0


def test_a_gif_frame_is_shown_on_its_canvas_over_white() -> None:
    frame = bytearray(encode(Image.new("P", (48, 32)), "GIF", palette=bytes((255, 0, 0)) * 256))
    frame[6:10] = bytes((96, 0, 64, 0))
    descriptor = frame.index(b",\0\0\0\0\x30\0\x20\0")
    frame[descriptor + 1 : descriptor + 5] = bytes((24, 0, 16, 0))
    image = normalise(bytes(frame), LIMITS)
    assert image.size == SIZE
    assert [image.getpixel(point) for point in [(23, 16), (24, 16), (71, 47), (72, 47)]] == [
        (255, 255, 255),
        (255, 0, 0),
        (255, 0, 0),
        (255, 255, 255),
    ]


def test_compressed_texts_are_never_unpacked() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    texts = [chunk(b"zTXt", b"comment\0\0" + bomb), chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + bomb)]
    assert difference(normalise(chart_png(*texts), LIMITS)) == 0


def test_limits_are_read_from_the_header_and_exact() -> None:
    data = encode(chart(), "PNG")
    exact = Limits(max_bytes=len(data), max_pixels=96 * 64)
    assert inspect(data, exact).width == 96
    assert _code(data, Limits(max_bytes=len(data) - 1)) == "too_large"
    assert _code(data, Limits(max_pixels=96 * 64 - 1)) == "too_many_pixels"


@pytest.mark.parametrize(("width", "height"), [(4000, 20), (1, 200)])
def test_an_aspect_ratio_of_200_passes(width: int, height: int) -> None:
    assert inspect(encode(Image.new("L", (width, height)), "PNG"), LIMITS).height == height


@pytest.mark.parametrize(("width", "height"), [(4001, 20), (1, 201)])
def test_an_aspect_ratio_above_200_is_refused(width: int, height: int) -> None:
    assert _code(encode(Image.new("L", (width, height)), "PNG"), LIMITS) == "aspect_ratio"


def test_limits_beyond_the_decoders_own_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_pixels"):
        Limits(max_pixels=89_478_486)


def test_threads_normalise_side_by_side() -> None:
    files = [encode(turned(number), "JPEG", exif=exif(number)) for number in range(1, 9)] * 8
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda data: normalise(data, LIMITS), files))
    assert max(difference(image) for image in images) <= LOSSY


def test_the_content_hash_is_sha256() -> None:
    assert content_hash(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def _code(data: bytes, limits: Limits) -> str:
    with pytest.raises(ImageError) as caught:
        inspect(data, limits)
    return caught.value.code
