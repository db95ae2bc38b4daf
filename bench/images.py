"""Images per second on one thread: accepting by the header, and making pixels, for a 1024 x 1024 picture."""

import time
from collections.abc import Callable
from io import BytesIO

from PIL import Image, ImageFilter

from app.images import Limits, inspect, normalise

_SECONDS = 2.0  # per measurement
_FORMATS = {"jpeg": {"quality": 85}, "png": {}, "webp": {"quality": 85}, "avif": {"quality": 75}}


def main() -> None:
    limits = Limits()
    rates: list[str] = []
    for format_, options in _FORMATS.items():
        data = _photo_like(format_, options)
        accepted = _rate(lambda data=data: inspect(data, limits))
        made = _rate(lambda data=data: normalise(data, limits))
        print(f"{format_}: {len(data) // 1024} KB, header {accepted:,.0f}/s, pixels {made:,.1f}/s")
        rates.append(f"{format_}_per_s={made:.1f}")
    print(f"images: {' '.join(rates)}")


def _photo_like(format_: str, options: dict[str, int]) -> bytes:
    """Blurred noise: it compresses about as a photograph does."""
    image = Image.effect_noise((1024, 1024), 160).filter(ImageFilter.GaussianBlur(2))
    colours = Image.merge("RGB", (image, image.rotate(90), image.rotate(180)))
    out = BytesIO()
    colours.save(out, format_, **options)
    return out.getvalue()


def _rate(work: Callable[[], object]) -> float:
    work()
    count, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < _SECONDS:
        work()
        count += 1
    return count / passed


if __name__ == "__main__":
    main()
