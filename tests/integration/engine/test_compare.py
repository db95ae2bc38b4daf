"""`vqueue compare` runs one sample through two models and tells where their answers differ."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import app
from app.config import Settings
from app.errors import InvalidWork
from tests.checkpoints import build_checkpoint
from workers.compare import compare, read_sample
from workers.engine.base import Request
from workers.engine.fake import FakeEngine, echo

QUESTIONS = ("What colour?", "How many?")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of two pictures, with a file that is none."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for colour in ("red", "blue"):
        (folder / f"{colour}.png").write_bytes(png(colour))
    (folder / "notes.txt").write_text("not a picture")
    return folder


@pytest.fixture
def sample(pictures: Path) -> Path:
    """A picture as data URL, one as file, and a text alone; the last has no kind."""
    data = f"data:image/png;base64,{base64.b64encode(png('green')).decode()}"
    rows = [
        row("1", "What colour?", data, metadata={"kind": "colour"}),
        row("2", "What colour?", "pictures/red.png", metadata={"kind": "colour"}),
        row("3", "Hello?"),
    ]
    path = pictures.parent / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def png(colour: str) -> bytes:
    out = io.BytesIO()
    PIL.Image.new("RGB", (64, 64), colour).save(out, "PNG")
    return out.getvalue()


def row(custom_id: str, question: str, *images: str, **body: object) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    parts.append({"type": "text", "text": question})
    messages = [{"role": "user", "content": parts}]
    body = {"model": "any", "max_tokens": 6, "messages": messages, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def run(sample: Path, a: object, b: object, *options: str) -> Result:
    arguments = ["compare", "--sample", str(sample), "--a", str(a), "--b", str(b), *options]
    return CliRunner().invoke(app, arguments, env={"VQUEUE_TORCH_THREADS": "1"}, catch_exceptions=False)


def test_a_model_agrees_with_itself(sample: Path, folder: Path) -> None:
    done = run(sample, folder, folder)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("compare: agreement=1.000 a_per_s=")


def test_two_models_are_shown_where_they_differ(
    sample: Path, folder: Path, other: Path, tmp_path: Path
) -> None:
    done = run(sample, folder, other, "--json", str(tmp_path / "report.json"), "--show", "1")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["agreement"]["questions"] == 3
    assert report["by_kind"]["colour"]["questions"] == 2
    assert {one["question"]["id"] for one in report["disagreements"]} == {"1", "2", "3"}
    assert "and 2 more" in done.stdout
    assert report["a"]["model"] == str(folder)
    assert sum(report["b"]["finish_reasons"].values()) == 3


def test_two_settings_of_one_model_are_compared(sample: Path, folder: Path) -> None:
    coarse = f"{folder} max_pixels=1024 max_new_tokens=5"
    done = run(sample, folder, coarse)
    assert coarse in done.stdout
    assert "agreement=1.000" not in done.stdout.splitlines()[-1]


def test_every_question_is_asked_about_every_picture_of_a_folder(pictures: Path, folder: Path) -> None:
    done = run(pictures, folder, folder, "--question", QUESTIONS[0], "--question", QUESTIONS[1])
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["all", "4", "1.000", "1.000"] in lines
    assert ["How", "many?", "2", "1.000", "1.000"] in lines


def test_both_sides_get_the_same_requests_under_their_own_settings(sample: Path) -> None:
    engines: list[FakeEngine] = []

    def open_fake(settings: Settings) -> FakeEngine:
        assert settings.feature_cache_redis_bytes == 0
        engines.append(FakeEngine(model=settings.served_model))
        return engines[-1]

    settings = Settings()
    found = compare(read_sample(sample, (), settings), settings, settings, open_fake)
    first, second = ([seen(request) for request in engine.joined[1:]] for engine in engines)
    assert first == second
    assert [len(images) for _, images in first] == [1, 1, 0]
    assert found.agreement().share == 1


def test_an_error_is_an_ending_of_its_own_question_only(sample: Path) -> None:
    def refuse_pictures(request: Request) -> str:
        if request.images:
            raise InvalidWork("context_length_exceeded", "too long")
        return echo(request)

    settings = Settings()
    found = compare(
        read_sample(sample, (), settings), settings, settings, lambda _: FakeEngine(answer=refuse_pictures)
    )
    assert found.a.endings() == {"context_length_exceeded": 2, "stop": 1}
    assert found.agreement().exact == 1


def test_an_image_that_several_questions_share_is_expected_as_often(pictures: Path) -> None:
    asked = read_sample(pictures, QUESTIONS, Settings())
    assert [image.expected_uses for one in asked for image in one.images] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "line 1: it is no JSON"),
        ("\n[]", "line 2: it is no batch line"),
        (json.dumps(row("1", "What?", "https://example.org/x.png")), "images are data URLs or files here"),
        (json.dumps(row("1", "What?", "lines.jsonl")), "line 1: "),
        (json.dumps(row("1", "What?", temperature=9)), "temperature"),
        ("", "holds no question"),
    ],
)
def test_a_sample_that_is_none_is_told_before_a_model_is_loaded(
    tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "lines.jsonl").write_text(content)
    done = run(tmp_path / "lines.jsonl", "none", "none")
    assert (done.exit_code, done.stdout) == (1, "")
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("a", "options", "code", "reason"),
    [
        ("/none", [], 1, "no model at '/none'"),
        ("none speed=9", [], 2, "'speed' is no option"),
        ("none", ["--question", "Why?"], 2, "goes with a folder"),
    ],
)
def test_a_model_or_option_that_is_none_is_told(
    sample: Path, a: str, options: list[str], code: int, reason: str
) -> None:
    done = run(sample, a, "/none", *options)
    assert done.exit_code == code
    assert reason in " ".join(done.stderr.replace("│", " ").split())


def seen(request: Request) -> tuple[str, list[str]]:
    return echo(request), [image.content_hash for image in request.images]
