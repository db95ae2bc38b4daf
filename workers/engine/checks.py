"""What a request must be for any engine to work on it, told before a picture is decoded. Pure."""

from app.errors import InvalidWork
from workers.engine.base import ImagePart, Request
from workers.engine.preprocess import Grid, Preprocessor


def placed_images(request: Request) -> list[int]:
    """The image numbers in the order of their places; raises InvalidWork for a place without an image."""
    places = [part.index for turn in request.turns for part in turn.parts if isinstance(part, ImagePart)]
    for index in places:
        if not 0 <= index < len(request.images):
            raise InvalidWork("invalid_prompt", f"the prompt asks for image {index} of {len(request.images)}")
    return places


def image_grid(preprocessor: Preprocessor, request: Request, index: int) -> Grid:
    """The grid of an image under the request's budget; raises InvalidWork for one that has none."""
    image = request.images[index]
    try:
        return preprocessor.grid(image.width, image.height, request.max_pixels)
    except ValueError as error:
        raise InvalidWork(
            "invalid_image", f"image {index} of {image.width}x{image.height}: {error}"
        ) from error


def check_length(prompt: int, answer: int, *, limit: int) -> None:
    """Raises InvalidWork where prompt and answer, in tokens, are more than the model's context."""
    check_answer_length(answer)
    if prompt + answer > limit:
        raise InvalidWork(
            "context_length_exceeded",
            f"the prompt's {prompt} tokens (images included) and max_tokens {answer} "
            f"make {prompt + answer}, more than the model's {limit}",
        )


def check_answer_length(answer: int) -> None:
    if answer < 1:
        raise InvalidWork("invalid_max_tokens", f"max_tokens is {answer}, but must be at least 1")
