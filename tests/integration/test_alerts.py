"""Alarms ring when they should, say what to do, and the commands of their page can be run."""

import re

import pytest
from sqlalchemy import text

from app.db import Sessions, transaction
from deploy import alarms
from deploy.alarms import Rule
from tests.prometheus import need_prometheus

PAGE = alarms.PAGE.read_text()


def test_rules_pass_promtool_and_its_tests_and_each_alarm_is_explained() -> None:
    need_prometheus()
    assert alarms.check_files() == []


def test_an_alarm_without_test_or_page_is_found() -> None:
    found = alarms.check_alarms([Rule("VqueueNew", "up > 0", True, {"summary": "New."})])
    assert [fault for fault in found if fault.startswith("VqueueNew")] == [
        "VqueueNew: no description",
        "VqueueNew: no runbook_url",
        "VqueueNew: its runbook_url does not lead to its part of docs/alerts.md",
        "VqueueNew: docs/alerts.md has no part of that name",
        "VqueueNew: rings in no test",
    ]


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
def test_queries_of_the_page_run(db: Sessions, query: str) -> None:
    with transaction(db) as session:
        session.execute(text("SET TRANSACTION READ ONLY"))
        assert session.execute(text(query)).keys()


def test_thresholds_are_taken_off() -> None:
    assert alarms.without_thresholds("(a == 0) and on (m) (sum(b) > 2.5)") == "(a) and on (m) (sum(b))"
    assert alarms.without_thresholds('x{code=~"5..",n!="1"} < -1') == 'x{code=~"5..",n!="1"}'
