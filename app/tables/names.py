"""The built-in columns of inputs that have none, and which names are those of images. Pure."""

COLUMNS = ("image", "name")
IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"),
    *(".heic", ".heif"),  # refused later, with what to do
)


def is_image_name(name: str) -> bool:
    return name.lower().endswith(IMAGE_ENDINGS)


def is_local_name(cell: str) -> bool:
    """Whether it names a picture on its owner's own machine. Of a long cell only the end is looked at."""
    if "://" in cell[:16] and cell[:5].lower() != "file:":
        return False
    return cell[-16:].rstrip().lower().endswith(IMAGE_ENDINGS)


def last_part(reference: str) -> str:
    """The file's name in a reference, without what a URL has behind its path; none of a data URL."""
    if reference[:5].lower() == "data:":
        return ""
    if reference[:5].lower() != "s3://":
        reference = reference.partition("?")[0].partition("#")[0]
    return reference.rstrip("/").rpartition("/")[2]
