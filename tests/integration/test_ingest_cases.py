"""Files that went wrong elsewhere: every one of the field cases about JSON Lines holds."""

from contextlib import closing

import pytest

from app.config import Settings
from app.db import Sessions
from app.ingest import Ingest
from app.objects import ObjectStore
from tests.conftest import SHARED_CASES
from tests.desk import Desk
from tests.fieldcases.cases import Case, read_cases
from tests.fieldcases.lines import content_of, run, shortfall

CASES = [case for case in read_cases(SHARED_CASES) if case.kind == "jsonl"] if SHARED_CASES.is_dir() else []


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_a_field_case_holds(case: Case, db: Sessions, objects: ObjectStore, settings: Settings) -> None:
    desk = Desk(sessions=db, objects=objects, settings=settings)
    with closing(Ingest(sessions=db, objects=objects, settings=settings)) as ingest:
        ran = run(desk, ingest, content_of(case, settings))
    lacks = [shortfall(case, expect, ran) for expect in case.expectations]
    assert None in lacks, lacks[0]
