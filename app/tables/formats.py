"""Which formats a batch's input file may have, by the ending of its name. Pure."""

LINES = "jsonl"
TABLES = ("csv", "tsv", "parquet", "zip", "txt")
FORMATS = (LINES, *TABLES)


def format_of(filename: str, given: str | None = None) -> str | None:
    """What a file is to be read as; None for an ending that no input has."""
    ending = filename.lower().rpartition(".")[2]
    return given or (ending if ending in FORMATS else None)
