"""Tables that went wrong elsewhere: every one of the field cases about CSV and Parquet holds."""

import pytest

from tests.conftest import SHARED_CASES
from tests.fieldcases.cases import Case, read_cases, shortfalls
from tests.fieldcases.tables import serve_csv, serve_parquet

SERVE = {"csv": serve_csv, "parquet": serve_parquet}
CASES = [case for case in read_cases(SHARED_CASES) if case.kind in SERVE] if SHARED_CASES.is_dir() else []


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_a_field_case_holds(case: Case) -> None:
    lacks = shortfalls(case, SERVE[case.kind](case))
    assert None in lacks, lacks[0]
