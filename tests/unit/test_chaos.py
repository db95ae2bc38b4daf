"""The chaos suite sees what is lost, doubled or changed, and a seed deals the same strikes again."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.conductor import deal
from tests.chaos.inputs import Fate, Input, Maker, make_inputs
from tests.chaos.pace import Pace
from tests.chaos.plan import Progress, Report, RunPlan, last_line, read_progress
from tests.chaos.strikes import Act, Kind, Strike
from tests.chaos.verdict import judge, masked

PLAN = RunPlan(broker="redis", engine="fake", jobs=100, strikes=3, seed=1)


def no_act(rng: random.Random, strike: Strike) -> Act:
    yield 0.0


KINDS = [Kind(name, no_act, lambda: True) for name in ("worker", "api", "s3")]


def given(fate: Fate = Fate.COMPLETED) -> Input:
    lines = tuple(json.dumps({"custom_id": name}).encode() for name in ("a", "b", "c"))
    return Input("b000", 0, lines, fate)


def result(name: str, text: str = "yes", number: int = 1) -> bytes:
    body = {"id": f"chatcmpl-{number:016x}", "created": number, "text": text}
    response = {"status_code": 200, "request_id": f"req_{number:016x}", "body": body}
    line = {"id": f"batch_req_{number:016x}", "custom_id": name, "response": response, "error": None}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def never_run(name: str, code: str) -> bytes:
    return json.dumps({"custom_id": name, "response": None, "error": {"code": code}}).encode() + b"\n"


QUIET = {"output": result("a") + result("b"), "error": result("c", "bad")}
OURS = {"output": result("a", number=7) + result("b", number=8), "error": result("c", "bad", number=9)}


def found(files: Mapping[str, bytes], fate: Fate = Fate.COMPLETED) -> tuple[int, int, int]:
    """Lost, doubled, and how many problems there are."""
    verdict = judge(given(fate), fate, files, QUIET)
    return verdict.lost, verdict.duplicated, len(verdict.problems)


def test_ids_and_times_are_a_runs_own() -> None:
    assert masked(result("a", number=1)) == masked(result("a", number=2))
    assert masked(result("a")) != masked(result("a", "no"))


def test_the_same_files_are_no_problem() -> None:
    assert found(OURS) == (0, 0, 0)


def test_a_lost_line_is_seen() -> None:
    assert found({**OURS, "output": result("a")})[:2] == (1, 0)


def test_a_line_in_both_files_is_seen() -> None:
    assert found({**OURS, "error": OURS["error"] + result("a", "bad")})[:2] == (0, 1)


def test_another_answer_is_seen() -> None:
    assert found({**OURS, "output": result("a", "no") + result("b")}) == (0, 0, 1)


def test_another_order_is_seen() -> None:
    assert found({**OURS, "output": result("b") + result("a")}) == (0, 0, 1)


def test_another_end_is_seen() -> None:
    assert judge(given(), "expired", OURS, QUIET).problems == ["b000 ended as expired, not completed"]


def test_lines_of_a_cancelled_batch_may_have_never_run() -> None:
    files = {"output": result("a"), "error": never_run("b", "batch_cancelled") + result("c", "bad")}
    assert found(files, Fate.CANCELLED) == (0, 0, 0)
    assert found(files, Fate.EXPIRED) == (0, 0, 1)


def test_an_answer_of_a_cancelled_batch_is_that_of_the_quiet_run() -> None:
    files = {"output": result("a", "no"), "error": never_run("b", "batch_cancelled") + result("c", "bad")}
    assert found(files, Fate.CANCELLED) == (0, 0, 1)


def test_a_seed_deals_the_same_strikes_with_the_same_dice() -> None:
    first, second = deal(KINDS, [], PLAN), deal(KINDS, [], PLAN)
    assert [card.kind.name for card in first] == [card.kind.name for card in second]
    assert [card.rng.random() for card in first] == [card.rng.random() for card in second]
    assert [card.pause_s for card in first] == [card.pause_s for card in second]


def test_every_kind_comes_once_in_every_round() -> None:
    names = [card.kind.name for card in deal(KINDS, [], PLAN)]
    rounds = [set(names[start : start + 3]) for start in (0, 3, 6)]
    assert rounds == [{"worker", "api", "s3"}] * 3


def test_a_seed_makes_the_same_lines_and_every_fate() -> None:
    first, second = (
        make_inputs(Maker("m", "http://h", True, random.Random("1")), jobs=100, per_batch=20)
        for _ in range(2)
    )
    assert first == second
    assert {batch.fate for batch in first} == set(Fate)
    assert sum(len(batch.lines) for batch in first if batch.fate is not Fate.FAILED) == 100


def test_work_goes_on_until_the_strikes_are_over() -> None:
    assert Pace(struck=0.9).allows(given=10, left=0, open=0)
    assert not Pace(struck=1.0).allows(given=10, left=0, open=0)


def test_work_does_not_run_ahead_of_the_strikes() -> None:
    assert not Pace(struck=0.1).allows(given=5, left=5, open=3)
    assert Pace(struck=0.6).allows(given=5, left=5, open=3)


def test_a_plan_is_resumed_after_the_runs_that_are_done(tmp_path: Path) -> None:
    other = RunPlan(broker="rabbitmq", engine="fake", jobs=100, strikes=3, seed=1)
    done = Report(PLAN.name, jobs=100, problems=["late"])
    Progress([PLAN, other], {PLAN.name: done}).write(tmp_path / "chaos.json")
    progress = read_progress(tmp_path / "chaos.json")
    assert progress.left() == [other]
    assert progress.reports == {PLAN.name: done}


def test_the_last_line_sums_the_runs_up() -> None:
    reports = [
        Report("a", jobs=5, kills=2, longest_recovery_s=7.04, lease_s=6.0),
        Report("b", jobs=6, kills=3, lost=1, duplicated=2, longest_recovery_s=6.0, lease_s=6.0),
    ]
    assert last_line(reports) == (
        "chaos: runs=2 kills=5 jobs=11 lost=1 duplicated=2 longest_recovery_s=7.0 lease_s=6"
    )
