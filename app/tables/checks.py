"""What can be told of a batch's table when it is submitted, before anything is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.chat import ChatRules, chat_rules
from app.checks import Json, wrong
from app.config import Settings
from app.errors import RequestError
from app.tables.formats import LINES, TABLES, format_of
from app.tables.places import Place
from app.tables.questions import check_spec
from app.tables.spec import read_spec


@dataclass(frozen=True)
class TableChecks:
    rules: ChatRules
    default_model: str
    buckets: Sequence[str]

    def settled(self, table: Mapping[str, Json]) -> Mapping[str, Json]:
        """The table as it is stored, its model named. RequestError where it could make no request."""
        body = {**table["body"], "model": table["body"].get("model") or self.default_model}
        settled = {**table, "body": body}
        check_spec(read_spec(settled), self.rules)
        return settled

    def check_place(self, place: Place, table: Mapping[str, Json] | None) -> None:
        """Whether a bucket prefix may be the input."""
        if table is None:
            message = "A bucket prefix needs a 'table': say in it what to ask of each image."
            raise RequestError(message, param="table", code="missing_parameter")
        if place.bucket not in self.buckets:
            message = (
                f"Images are not read from the bucket {place.bucket!r}; "
                "the operator can allow it in VQUEUE_S3_SOURCE_BUCKETS."
            )
            raise RequestError(message, param="input_file_id", code="blocked_bucket")
        for name in ("format", "delimiter", "encoding"):
            if table.get(name) is not None:
                raise wrong(f"table.{name}", f"A bucket prefix has no {name}: leave it out.")


def table_checks(settings: Settings) -> TableChecks:
    return TableChecks(chat_rules(settings), settings.default_model, settings.s3_source_buckets)


def check_format(filename: str, table: Mapping[str, Json] | None) -> None:
    """Whether a file of this name can be read with, or without, a table."""
    kind = format_of(filename, table.get("format") if table else None)
    if table is None and kind != LINES:
        message = (
            f"The file {filename!r} is a table: say in 'table' which columns hold what, and what to ask."
        )
        raise RequestError(message, param="table", code="missing_parameter")
    if table is not None and kind not in TABLES:
        message = (
            f"The file {filename!r} is no table: it must end in .{', .'.join(TABLES)}, or name its 'format'. "
            "A .jsonl file holds whole requests and takes no 'table'."
        )
        raise RequestError(message, param="table", code="invalid_value")
