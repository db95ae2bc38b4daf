"""Schemathesis against a running API: every documented operation, by bodies that fit and that do not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A case waits for no answer longer than this.
ANSWER_S = 30.0

# Ids of objects that are there, by the name of the path's parameter: made-up ones would only be answered 404.
Known = Mapping[str, Sequence[str]]


@dataclass
class Found:
    """What came of all cases."""

    operations: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.statuses.total()

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status >= 500)

    def line(self) -> str:
        counts = f"operations={self.operations} cases={self.cases} server_errors={self.server_errors}"
        return f"schemathesis: {counts}"


def explore(url: str, key: str, known: Known, *, examples: int) -> Found:
    """So many cases of each operation, always the same ones."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found = Found()
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {key}"
        for read in schema.get_all_operations():
            assert isinstance(read, Ok), read.err()
            found.operations += 1
            _try(read.ok(), session, url, known, found, examples)
    return found


def _try(
    operation: APIOperation,
    session: requests.Session,
    url: str,
    known: Known,
    found: Found,
    examples: int,
) -> None:
    cases = st.one_of(
        operation.as_strategy(GenerationMode.POSITIVE), operation.as_strategy(GenerationMode.NEGATIVE)
    )
    ids = st.fixed_dictionaries(
        {name: st.none() | st.sampled_from(list(some)) for name, some in known.items()}
    )

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=cases, chosen=ids)
    def run(case: Case, chosen: Mapping[str, str | None]) -> None:
        case.path_parameters.update(
            {name: value for name, value in chosen.items() if value and name in case.path_parameters}
        )
        answer = case.call(base_url=url, session=session, timeout=ANSWER_S)
        found.statuses[answer.status_code] += 1
        assert answer.status_code < 500, f"{answer.status_code}: {answer.text[:500]}"
        assert "x-request-id" in answer.headers
        case.validate_response(answer, checks=CHECKS)

    try:
        run()
    except (Exception, FailureGroup) as error:  # whatever it is, the other operations are to be tried, too
        found.problems.append(f"{operation.label}: {type(error).__name__}: {error}")
