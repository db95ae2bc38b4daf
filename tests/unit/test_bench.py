"""The benchmarks' own arithmetic, and that what they ask is what they say."""

from pathlib import Path

import pytest
import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from bench.checkpoint import TINY, config_for, word_tokenizer, words
from bench.comparison import Run, agreeing, best, faster, last_line, table
from bench.device import EIGHT_B, run
from bench.gpu import absent
from bench.identical import random_talks
from bench.load import arrivals_at, latency_of, percentile
from bench.sides import Measure, Side
from bench.workloads import Workload, catalog, decode, read_workload, unshared, warming, write_workload
from workers.engine.preprocess import Preprocessor


def a_run(name: str, cpu_s: float, *, threads: int = 1, dtype: str = "float32", **answers: str) -> Run:
    side = Side(name, "ours", "model", "work", threads=threads, dtype=dtype)
    return Run(side, Measure(questions=10, cpu_s=cpu_s, wall_s=2 * cpu_s, answers=answers))


def test_a_ratio_compares_the_best_threads_of_each_side_in_the_same_format() -> None:
    runs = [
        a_run("ours", 3.0),
        a_run("ours", 2.0, threads=2),
        a_run("ours", 0.5, dtype="bfloat16"),
        a_run("theirs", 8.0),
        a_run("theirs", 9.0, threads=2),
    ]
    assert faster(best(runs, "ours"), best(runs, "theirs")) == 4.0
    assert best(runs, "ours", None) == runs[2]


def test_a_side_that_was_not_run_has_no_ratio() -> None:
    ours = a_run("ours", 1.0)
    assert faster(ours, best([ours], "vLLM")) is None
    assert agreeing(ours, None) == "na"


def test_only_questions_that_both_answered_can_agree() -> None:
    assert agreeing(a_run("ours", 1, a="x", b="y", c="z"), a_run("theirs", 1, a="x", b="no")) == "1/2"


def test_the_last_line_says_na_for_what_was_not_measured() -> None:
    ratios = {"vs_generate_cold": 9.123, "vs_generate_warm": 20.0, "vs_static": 1.5, "vs_vllm_cold": None}
    assert last_line(ratios, 0.19, "500/500") == (
        "engine: vs_generate_cold=9.12 vs_generate_warm=20.00 vs_vllm_cold=na vs_vllm_features=na "
        "vs_static=1.50 second_question=0.19 identical=500/500"
    )


def test_the_table_has_cpu_seconds_and_speed_of_each_side() -> None:
    _, row = table([a_run("ours, cold", 2.0)]).splitlines()
    assert row.split() == ["ours,", "cold", "float32", "1", "16", "10", "0.2000", "2.50"]


def test_questions_are_30_tokens_and_pictures_300() -> None:
    asked = catalog(words(), pictures=2, each=3)
    tokenizer = word_tokenizer()
    assert len(tokenizer) == 8192
    assert {len(tokenizer(question.text)["input_ids"]) for question in asked.questions} == {30}
    grid = Preprocessor(64 * 1024, 1024 * 1024).grid(*decode(asked.pictures["picture0"]).size)
    assert grid.tokens == 300


def test_questions_about_one_picture_follow_one_another() -> None:
    asked = catalog(words(), pictures=3, each=2)
    assert [question.picture[-1] for question in asked.questions] == list("001122")
    assert len({question.text for question in asked.questions}) == 6
    assert len(set(asked.pictures.values())) == 3


def test_unshared_answers_have_many_lengths() -> None:
    asked = unshared(words(), pictures=40)
    lengths = [question.max_tokens for question in asked.questions]
    assert min(lengths) >= 3
    assert max(lengths) <= 40
    assert len(set(lengths)) > 15
    assert len({question.picture for question in asked.questions}) == 40


def test_warming_asks_something_else_about_the_same_pictures() -> None:
    asked = catalog(words(), pictures=2, each=2)
    warm = warming(asked, words())
    assert warm.pictures == asked.pictures
    assert not {question.text for question in warm.questions} & {each.text for each in asked.questions}
    assert {each.system for each in warming(asked, words(), system="Answer.").questions} == {"Answer."}


def test_a_workload_comes_back_from_its_files(tmp_path: Path) -> None:
    asked = catalog(words(), pictures=2, each=2)
    assert read_workload(write_workload(asked, tmp_path / "asked")) == Workload(
        asked.questions, asked.pictures
    )


@pytest.mark.parametrize("jobs", [1, 7, 500])
def test_talks_have_as_many_jobs_as_asked_for(jobs: int) -> None:
    assert sum(talk.jobs for talk in random_talks(jobs, seed=1)) == jobs


def test_talks_are_of_all_shapes() -> None:
    talks = random_talks(200, seed=1)
    assert {len(talk.first.images) for talk in talks} >= {0, 1, 2, 3}
    assert {len(talk.next) for talk in talks} == {0, 1, 2}
    assert {talk.first.turns[0].role for talk in talks} == {"system", "user"}
    assert {talk.disturbed for talk in talks} == {True, False}


def test_the_99th_percentile_is_the_value_that_one_in_a_hundred_exceeds() -> None:
    assert percentile([float(value) for value in range(1, 201)], 0.99) == 198.0
    assert percentile([5.0], 0.99) == 5.0


def test_what_is_not_answered_in_the_window_took_until_its_end() -> None:
    found = latency_of({0: 0.5}, arrivals=[1.0, 4.0], window_s=10.0)
    assert (found.offered, found.answered, found.mean_s, found.p99_s) == (2, 1, 3.25, 6.0)


def test_arrivals_come_at_the_rate_and_within_the_window() -> None:
    times = arrivals_at(50, 100, seed=0)
    assert times == sorted(times)
    assert times[-1] < 100
    assert len(times) == pytest.approx(5000, rel=0.1)


def test_the_large_shape_is_the_8b_s() -> None:
    config = config_for(EIGHT_B, word_tokenizer())
    assert isinstance(config, Qwen3VLConfig)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(8.77e9, rel=0.01)


def test_the_gpu_s_measurements_run_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    line = run(TINY, device="cpu", pictures=2, rows=8, limit_s=60)
    assert line.startswith("gpu: device=cpu questions_per_s=")
    assert "na" not in line
    assert "step_fill" in capsys.readouterr().out


def test_without_time_left_nothing_is_begun() -> None:
    assert run(TINY, device="cpu", pictures=2, rows=8, limit_s=0).count("=na") == 7


def test_a_missing_package_is_named_before_anything_runs() -> None:
    assert absent(("json", "no_such_package")) == ["no_such_package: No module named 'no_such_package'"]
