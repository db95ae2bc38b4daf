"""Takes every row of a folder in turn, prints each miss, and ends with the counts."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fieldcases.api import serve_api
from tests.fieldcases.cases import Case, NotServed, Outcome, read_cases, shortfalls
from tests.fieldcases.export import serve_export
from tests.fieldcases.lines import serve_jsonl
from tests.fieldcases.model import Lab, serve_model
from tests.fieldcases.pictures import serve_dataurl, serve_image, serve_image_pair
from tests.fieldcases.services import Services
from tests.fieldcases.shared_url import serve_shared_url
from tests.fieldcases.stored import serve_stored
from tests.fieldcases.tables import serve_csv, serve_parquet
from tests.fieldcases.web import PictureServer, serve_http, serve_ssrf

LAYOUT = (
    "FOLDER holds cases.jsonl, a JSON row per line with id, kind, certainty, expect and file or payload, "
    "and the files that its rows name"
)


@dataclass
class Tally:
    """What held and what did not."""

    served: Counter[tuple[str, bool]] = field(default_factory=Counter)
    held: Counter[tuple[str, bool]] = field(default_factory=Counter)
    not_run: Counter[str] = field(default_factory=Counter)
    choices: list[str] = field(default_factory=list)

    def add(self, case: Case, outcome: Outcome) -> None:
        if isinstance(outcome, NotServed):
            self.not_run[case.kind] += 1
            print(f"{case.id}: not run by this tool: {outcome.reason}")
            return
        lacks = shortfalls(case, outcome)
        self.served[case.kind, case.firm] += 1
        self.held[case.kind, case.firm] += None in lacks
        if None not in lacks:
            certainty = "firm" if case.firm else "policy"
            print(f"MISS {certainty} {case.id}: expected {dict(case.expectations[0])}; got {lacks[0]}")
        elif lacks[0] is not None and not case.firm:
            self.choices.append(case.id)

    def report(self) -> None:
        if self.choices:
            print(f"policy rows that take an alternative: {', '.join(self.choices)}")
        for kind in sorted({*self.not_run, *(kind for kind, _ in self.served)}):
            print(f"{kind}: {self._share(kind)} not_run={self.not_run[kind]}")
        print(f"fieldcases: {self._share(None)}")

    def _share(self, kind: str | None) -> str:
        """Of one kind, or of all."""
        return " ".join(
            f"{name}={_sum(self.held, kind, firm)}/{_sum(self.served, kind, firm)}"
            for name, firm in (("firm", True), ("policy", False))
        )

    def all_firm_hold(self) -> bool:
        return _sum(self.held, None, True) == _sum(self.served, None, True)


def _sum(counts: Counter[tuple[str, bool]], kind: str | None, firm: bool) -> int:
    return sum(count for (of, is_firm), count in counts.items() if is_firm == firm and kind in (None, of))


def main(argv: Sequence[str] | None = None) -> int:
    """0 where every firm row that was served holds, 1 where one does not, 2 without rows or such a kind."""
    arguments = _arguments(argv)
    if not (arguments.folder / "cases.jsonl").is_file():
        print(f"{arguments.folder}/cases.jsonl is missing: {LAYOUT}", file=sys.stderr)
        return 2
    server, lab, services = PictureServer(arguments.folder), Lab(), Services()
    serve: dict[str, Callable[[Case], Outcome]] = {
        "image": serve_image,
        "image_pair": serve_image_pair,
        "dataurl": serve_dataurl,
        "s3": partial(serve_stored, services=services),
        "model": partial(serve_model, lab=lab),
        "ssrf": serve_ssrf,
        "http": partial(_http, server=server, services=services),
        "csv": serve_csv,
        "parquet": serve_parquet,
        "jsonl": partial(serve_jsonl, services=services),
        "export": partial(serve_export, services=services),
        "api": partial(serve_api, services=services, lab=lab),
    }
    tally = Tally()
    try:
        if arguments.kind not in (None, *serve):
            print(f"there is no such kind as {arguments.kind}; use {', '.join(serve)}", file=sys.stderr)
            return 2
        for case in read_cases(arguments.folder):
            if case.kind not in serve:
                tally.not_run[case.kind] += 1
            elif arguments.kind in (None, case.kind):
                tally.add(case, serve[case.kind](case))
    finally:
        server.close()
        lab.close()
        services.close()
    tally.report()
    return 0 if tally.all_firm_hold() else 1


def _http(case: Case, server: PictureServer, services: Services) -> Outcome:
    if case.id == "http-many-same-url":
        return serve_shared_url(case, server, services)
    return serve_http(case, server)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fieldcases", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder with cases.jsonl and the files it names")
    parser.add_argument("--kind", help="only the rows of this kind, such as image or ssrf")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
