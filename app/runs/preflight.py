"""Mistakes that can be seen before a picture is sent: key, model, window, columns of questions."""

from collections.abc import Sequence

from app.errors import RequestError
from app.runs.base import WrongRun
from app.runs.inputs import IMAGE, Kind, columns_of
from app.runs.wish import Wish
from app.tables.columns import plain
from app.tables.templates import parse_template
from app.windows import window_seconds
from vqueue import Client, NotFound

SCOPES = ("read", "write")
NAMES = [IMAGE, "name"]
COLUMNS = {
    Kind.FOLDER: NAMES,
    Kind.TXT: NAMES,
    Kind.ZIP: NAMES,
    Kind.PREFIX: [*NAMES, "size", "etag", "modified"],
}


def look_ahead(api: Client, wish: Wish) -> None:
    """WrongRun, with the option that is wrong."""
    try:
        window_seconds(wish.window)
    except ValueError as error:
        raise WrongRun(f"--window {wish.window}: {error}") from error
    if wish.source.kind is not Kind.JSONL:
        _look_at_columns(wish)
        _look_at_model(api.models(), dict(wish.shared).get("model"))
    _look_at_key(api)


def _look_at_columns(wish: Wish) -> None:
    there = COLUMNS.get(wish.source.kind) or columns_of(wish.source)
    known = {plain(name) for name in there}
    asked = [("--ask", question["ask"]) for question in wish.questions] + [("--system", wish.system or "")]
    for option, text in asked:
        try:
            named = parse_template(option, text).columns if text else ()
        except RequestError as error:
            raise WrongRun(f"{option}: {error.message}") from error
        for name in named:
            if plain(name) not in known:
                shown = ", ".join(map(repr, there[:20]))
                raise WrongRun(
                    f"{option} {text!r}: {wish.source.text} has no column {name!r}; there are {shown}"
                )


def _look_at_model(served: Sequence[str], model: str | None) -> None:
    if model is not None and model not in served:
        raise WrongRun(f"--model {model}: it is not served; there are {', '.join(served)}")


def _look_at_key(api: Client) -> None:
    try:
        key = api.key()
    except NotFound:  # an older service
        return
    if missing := [scope for scope in SCOPES if not key.allows(scope)]:
        raise WrongRun(
            f"the key lacks the scope {' and '.join(missing)}, which this needs; "
            "`vqueue keys create --scope read --scope write` makes one that has both"
        )
