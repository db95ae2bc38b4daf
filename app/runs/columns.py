"""Which column of a table holds the images, where nobody says so. Pure."""

import re
from collections.abc import Sequence

from app.runs.base import WrongRun
from app.runs.references import looks_like_picture

# As whole words of a column's name.
NAMES = re.compile(
    r"(^|[^a-z])(image|images|img|picture|pictures|photo|photos|thumbnail|pic)s?([^a-z]|$)", re.IGNORECASE
)
MOST_SHOWN = 20
SHARE = 0.5  # of the cells that are filled


def guess_image_column(columns: Sequence[str], rows: Sequence[Sequence[str | bytes | None]]) -> str:
    """The one whose cells look like images; of several, the one whose name says so, else WrongRun."""
    likely = [name for at, name in enumerate(columns) if _holds_pictures([row[at] for row in rows])]
    if len(likely) != 1:
        named = [name for name in likely or columns if NAMES.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", name))]
        likely = named if len(named) == 1 else likely
    if len(likely) == 1:
        return likely[0]
    raise WrongRun(_unclear(columns, likely))


def _holds_pictures(cells: Sequence[str | bytes | None]) -> bool:
    filled = [cell for cell in cells if cell and (isinstance(cell, bytes) or cell.strip())]
    alike = sum(isinstance(cell, bytes) or looks_like_picture(cell.strip()) for cell in filled)
    return bool(filled) and alike >= SHARE * len(filled)


def _unclear(columns: Sequence[str], likely: Sequence[str]) -> str:
    shown = ", ".join(map(repr, columns[:MOST_SHOWN]))
    more = f" and {len(columns) - MOST_SHOWN} more" if len(columns) > MOST_SHOWN else ""
    if likely:
        found = ", ".join(map(repr, likely))
        return (
            f"the columns {found} all look like images: choose by --image-column (repeat it to show several)"
        )
    return f"no column looks like images: name it by --image-column; there are {shown}{more}"
