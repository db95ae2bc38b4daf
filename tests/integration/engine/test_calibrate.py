"""`vqueue calibrate` learns on half of a labelled sample when a small model will do; the rest judges it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.calibration import Trial, calibrate
from app.cascade import Cascade
from app.cli.main import app
from app.config import Settings
from app.errors import RequestError
from workers.calibrate import read_labelled, run_trials
from workers.engine.base import Answer, Request, TokenLogprob, Usage, texts
from workers.engine.fake import FakeEngine

DEMO = Path("models/demo")


def row(number: int, **metadata: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Question {number}"}]
    body = {"model": "any", "max_tokens": 4, "messages": messages, "metadata": metadata}
    return {"custom_id": f"q{number}", "body": body}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return write(tmp_path / "lines.jsonl", [row(number, label="red") for number in range(200)])


def engine(settings: Settings) -> FakeEngine:
    """The small one is wrong, and half sure, about every third question or so."""

    def answer(request: Request) -> Answer:
        doubts = settings.model == "small" and texts(request.turns)[-1].endswith(("0", "4", "8"))
        token = TokenLogprob("red", -0.7 if doubts else -0.01)
        return Answer("blue" if doubts else "red", "stop", Usage(3, 1), (token,))

    return FakeEngine(model=settings.model, answer=answer)


def sides() -> tuple[Settings, Settings]:
    return Settings(model="small"), Settings(model="large")


def test_a_sample_teaches_when_the_small_model_will_do(sample: Path) -> None:
    trials = run_trials(read_labelled(sample, Settings()), *sides(), engine)
    cascade, judged = calibrate("small", trials, tolerance=0.0)
    assert cascade.is_sure(cascade.confidence([("red", -0.01, [])]))
    assert not cascade.is_sure(cascade.confidence([("red", -0.7, [])]))
    assert (judged.cascade_accuracy, judged.large_accuracy) == (1.0, 1.0)
    assert judged.small_accuracy < 0.85


def test_a_cascade_that_saves_nothing_is_told(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [Trial(str(n), str(n), "red", "blue", 0.5, 2.0, "red", 1.0) for n in range(200)]
    monkeypatch.setattr("app.cli.calibrate._trials", lambda *_given: slow)
    out = str(sample.with_name("cascade.json"))
    done = CliRunner().invoke(app, ["calibrate", str(sample), "--small", "s", "--large", "l", "-o", out])
    assert done.exit_code == 0
    assert "saves no model time" in done.stderr


def test_a_line_without_a_label_is_refused_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "lines.jsonl", [row(1, label="red"), row(2)])
    with pytest.raises(RequestError, match="'q2' has no label"):
        read_labelled(path, Settings())


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "lines.jsonl", [row(1, label="red"), row(1, label="red")])
    with pytest.raises(RequestError, match="stands twice"):
        read_labelled(path, Settings())


def test_the_command_writes_what_a_batch_takes(tmp_path: Path) -> None:
    path = write(tmp_path / "lines.jsonl", [row(number, label="red") for number in range(60)])
    out = tmp_path / "cascade.json"
    model = str(DEMO)
    arguments = [
        "calibrate",
        str(path),
        "--small",
        model,
        "--large",
        f"{model} dtype=float32",
        "-o",
        str(out),
    ]
    shown = CliRunner().invoke(app, arguments, env={"VQUEUE_TORCH_THREADS": "1"}, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1].startswith("calibrate: threshold=")
    assert Cascade.of(json.loads(out.read_text())).model == model


def test_too_small_a_sample_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "lines.jsonl", [row(number, label="red") for number in range(4)])
    model = str(DEMO)
    arguments = ["calibrate", str(path), "--small", model, "--large", model, "-o", str(tmp_path / "out.json")]
    shown = CliRunner().invoke(app, arguments, env={"VQUEUE_TORCH_THREADS": "1"})
    assert (shown.exit_code, "too few" in shown.output) == (2, True)
