"""`vqueue labels` and `vqueue review`: for terminals and for pipes, and what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from app.auth import Keys
from app.cli.main import app
from app.db import Sessions
from tests.labelled import SCHEMA, Labelled

Command = Callable[..., Result]


@pytest.fixture
def run(api_url: str, api_key: str) -> Command:
    def command(*words: str, key: str = api_key) -> Result:
        environment = {"VQUEUE_URL": f"{api_url}/v1", "VQUEUE_API_KEY": key}
        with capture_logs():  # the API writes its own to our output
            return CliRunner().invoke(app, list(words), env=environment)

    return command


def table(done: Result) -> list[list[str]]:
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_counts_are_lines_of_their_groups(run: Command, found: dict[str, str]) -> None:
    assert found
    assert table(run("labels", "count")) == [["blue", "1"], ["green", "1"], ["red", "3"], ["true", "1"]]
    assert table(run("labels", "count", "--by", "policy_version, question", "--label", "red")) == [
        ["v1", "colour", "1"],
        ["v2", "colour", "1"],
        ["", "", "1"],
    ]


def test_answers_are_lines_and_a_tab_in_one_breaks_none(run: Command, mine: Labelled) -> None:
    job = mine.answer('{"colour": "re\\td"}', constraint=SCHEMA, day="2026-11-30")
    (line,) = table(run("labels", "list"))
    assert line == [job, "", "", "colour", "re?d", "", "demo", "", "2026-11-30 12:00:00"]


def test_each_option_is_a_filter(run: Command, found: dict[str, str]) -> None:
    run("review", "confirm", found["large"])
    words = "--batch b2 --question kind --item 1 --label green --policy-version v2 --model large"
    more = "--reviewed confirmed --since 2026-11-22 --until 2026-11-23"
    assert [line[0] for line in table(run("labels", "list", *words.split(), *more.split()))] == [
        found["large"]
    ]
    assert table(run("labels", "list", *words.split(), "--until", "2026-11-22")) == []
    assert table(run("labels", "list", "--field", "worn"))[0][0] == found["direct"]


def test_agreement_is_a_line_for_each_pair_of_people(
    run: Command, found: dict[str, str], db: Sessions
) -> None:
    ada, bo = [Keys(sessions=db).create(tenant="Ada", name=name) for name in ("a", "b")]
    for key, label in ((ada, "blue"), (bo, "green")):
        run("review", "confirm", found["new"], key=key.secret)
        run("review", "overturn", found["old"], "--label", label, key=key.secret)
    (line,) = table(run("review", "agreement", "--question", "colour"))
    assert (line[:2], sorted(line[2:4])) == (["colour", ""], sorted([ada.id, bo.id]))
    assert line[4:] == ["2", "1", "0.500", "0.33"]
    assert table(run("review", "agreement", "--min-confidence", "0.5")) == []
    assert table(run("review", "agreement", "--sweep", "nightly")) == []


def test_a_long_list_is_read_page_by_page(
    run: Command, found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found
    monkeypatch.setattr("app.cli.labels.PAGE", 2)
    assert len(table(run("labels", "list"))) == 6
    assert len(table(run("labels", "list", "--last", "3"))) == 3


def test_reviews_are_said_taken_back_and_exported(
    run: Command, found: dict[str, str], tmp_path: Path
) -> None:
    said = run("review", "overturn", found["direct"], "--label", "false", "--field", "worn", "--note", "bare")
    assert said.stdout == f"{found['direct']} is overturned.\n"
    assert run("review", "confirm", found["old"]).exit_code == 0
    out = tmp_path / "corrections.jsonl"
    assert run("review", "export", "-o", str(out), "--reviewed", "overturned").exit_code == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert (line["label"], line["source"]["note"]) == (False, "bare")
    assert run("review", "drop", found["direct"], "--field", "worn").exit_code == 0
    assert table(run("labels", "count", "--by", "review")) == [["confirmed", "1"], ["none", "5"]]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["labels", "count", "--by", "colour"], "Nothing is grouped by 'colour'"),
        (["labels", "list", "--since", "soon"], "Invalid 'since'"),
        (["review", "overturn", "job_1", "--label", "x"], "No job has the id 'job_1'"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(run: Command, words: list[str], wrong: str) -> None:
    done = run(*words)
    assert done.exit_code == 1
    assert wrong in done.stderr
    assert len(done.stderr.splitlines()) == 1
