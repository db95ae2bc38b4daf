"""The simulator beside real runs: what it learns from some, and how well it foretells others."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from simulate.measure import Step, tables
from simulate.policies import MANIFEST, choose
from simulate.runs import Life, RealRun, Sample, Trial
from simulate.steps import DATA, read_question, read_steps
from simulate.validate import Machine, engine_s, foretell, learn, validate

STEPS, QUESTION = read_steps(DATA / "demo-cpu.json"), read_question(DATA / "demo-cpu.json")
TRUTH = Machine(job_s=0.002, picture_s=0.01, load_s=5.0, base_cores=0.1)


def a_run(per_picture: int, *, jobs: int = 1000, cores: int = 2) -> RealRun:
    """As if one worker had been up after 10 s and all had taken 60 s, at the true costs."""
    trial = Trial("a trial", pictures=jobs // per_picture, per_picture=per_picture)
    run = RealRun(trial, cores, 60.0, 30.0, (), (Life(0.0, 10.0, TRUTH.load_s),), ())
    work = (
        TRUTH.job_s
        + TRUTH.picture_s / per_picture
        + engine_s(replace(QUESTION, per_picture=per_picture), STEPS)
    )
    loaded = TRUTH.load_s + 10 * TRUTH.base_cores
    ended = loaded + 50 * TRUTH.base_cores + jobs * work
    samples = (Sample(0, 0, 0), Sample(10, loaded, 0), Sample(60, ended, 0))
    return RealRun(trial, cores, 60.0, 30.0, (), run.lives, samples)


def test_what_jobs_and_pictures_cost_is_learnt_from_runs_that_mix_them_otherwise() -> None:
    found = learn([a_run(5), a_run(1)], STEPS, QUESTION)
    assert found.job_s == pytest.approx(TRUTH.job_s)
    assert found.picture_s == pytest.approx(TRUTH.picture_s)
    assert (found.load_s, found.base_cores) == pytest.approx((TRUTH.load_s, TRUTH.base_cores))


def test_a_machine_with_room_is_bound_by_the_engines_thread_and_a_full_one_by_all_its_work() -> None:
    roomy, full = (foretell(a_run(5, jobs=20_000, cores=n), TRUTH, STEPS, QUESTION) for n in (64, 1))
    engine = 20_000 * engine_s(replace(QUESTION, per_picture=5), STEPS)
    assert roomy.makespan_s == pytest.approx(TRUTH.load_s + engine, rel=0.05)
    assert full.makespan_s == pytest.approx(full.cpu_s, rel=0.05)


def test_the_recorded_runs_are_foretold_within_a_fifth() -> None:
    text = validate(DATA / "real")
    assert text.endswith("within_20_percent=4/4")


def test_what_we_ship_is_read_from_its_manifest() -> None:
    shipped = yaml.safe_load(Path(MANIFEST).read_text())["spec"]
    policy = choose("ours", 64)
    assert policy.scaling is not None
    assert policy.scaling.maximum == 64
    assert policy.scaling.polling_s == shipped["pollingInterval"]
    assert set(policy.reads) == {trigger["name"] for trigger in shipped["triggers"]}
    assert policy.reads["standard"] == "all_messages:standard"
    assert "demand" in policy.reads.values()


def test_measured_steps_become_tables_of_medians() -> None:
    plain = [Step(rows, 0, 0, 0.01 * rows, 0, 0, 0.0) for rows in (1, 1, 8, 8, 8)]
    joining = [Step(8, 4, 256, 0.08 + 0.05, 4, 120, 0.4)] * 3
    found = tables([*plain, *joining])
    assert found["decode"] == [(1, 0.01), (8, 0.08)]
    assert found["prompt"] == [(0, 0.0), (256, 0.05)]
    assert found["encode"] == [(30, 0.1)]
    assert found["kind"] == "measured"
