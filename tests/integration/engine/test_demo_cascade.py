"""The two committed demo models in a cascade: a sample teaches the threshold, and a batch goes by it."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.calibration import calibrate
from app.cascade import Cascade
from app.config import Settings, read_option
from app.db import Sessions
from app.images import image_limits
from app.model_list import read_models
from app.objects import ObjectStore
from bench.cascade_lines import SAMPLE_SEED, TEST_SEED, write_questions
from tests.desk import Desk
from tests.mill import Mill
from workers.calibrate import read_labelled, run_trials
from workers.engines import open_one
from workers.pictures import PictureReader

ROOT = Path(__file__).parents[3]
TWO = read_models(f"large={ROOT}/models/demo, small={ROOT}/models/demo-small", read_option)
SAMPLE, ASKED = 120, 48


def with_both(settings: Settings) -> Settings:
    return settings.model_copy(update={"models": TWO, "torch_threads": 1, "feature_cache_redis_bytes": 0})


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    chosen = with_both(settings)
    reader = PictureReader(objects=objects, limits=image_limits(chosen))
    with closing(Mill(sessions=db, objects=objects, settings=chosen, read_image=reader)) as mill:
        mill.install(*(open_one(chosen.for_model(name)) for name in ("small", "large")))
        yield mill


def learned(folder: Path, settings: Settings) -> Cascade:
    """What `vqueue calibrate` learns."""
    path = folder / "sample.jsonl"
    write_questions(path, SAMPLE_SEED, SAMPLE, per_picture=1, model="large")
    both = with_both(settings)
    trials = run_trials(read_labelled(path, settings), both.for_model("small"), both.for_model("large"))
    return calibrate("small", trials, tolerance=0.005)[0]


def test_a_cascade_of_the_demo_models_is_nearly_always_right_and_asks_the_large_one_now_and_then(
    mill: Mill, desk: Desk, settings: Settings, tmp_path: Path
) -> None:
    cascade = learned(tmp_path, settings)
    path = tmp_path / "asked.jsonl"
    write_questions(path, TEST_SEED, ASKED, per_picture=1, model="large")
    batch_id = desk.submit(path.read_bytes(), cascade=cascade.stored())
    mill.grind()
    batch = desk.batch(batch_id)
    bodies = {row["custom_id"]: row["response"]["body"] for row in desk.result_lines(batch.output_file_id)}
    labels = {
        row["custom_id"]: row["body"]["metadata"]["label"]
        for row in map(json.loads, path.read_text().splitlines())
    }
    right = [bodies[name]["choices"][0]["message"]["content"] == label for name, label in labels.items()]
    assert sum(right) >= 0.85 * ASKED
    assert 0 < batch.escalated < ASKED
    assert [body["model"] for body in bodies.values()].count("large") == batch.escalated
