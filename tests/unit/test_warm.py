"""What to warm is read from catalogs, and what became of it from the answers."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.chat import chat_rules
from app.config import Settings
from app.lines import LineRules, ParsedLine, parse_line
from app.store.jobs import ClaimedJob
from app.warm import MADE, THERE, Summary, UnreadableCatalog, image_line, instruction_line, read_catalog
from vqueue import Result
from workers.engine.base import Answer, Note, Usage
from workers.warming import tell_warmth

RULES = LineRules(
    "/v1/chat/completions",
    chat_rules(Settings(model_name="demo")),
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_csv_names_its_images_in_a_column(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "id,photo\n1,https://a/1.jpg\n2,\n3,s3://b/3.png\n")
    assert list(read_catalog(path, "photo")) == ["https://a/1.jpg", "s3://b/3.png"]
    with pytest.raises(UnreadableCatalog, match="no column 'image'; there are id, photo"):
        list(read_catalog(path, "image"))


def test_json_lines_are_urls_objects_or_a_batch_s_own(tmp_path: Path) -> None:
    asked = image_line("https://a/3.jpg", number=0, model="demo", detail="auto").decode()
    path = written(tmp_path, "a.jsonl", f'"https://a/1.jpg"\n{{"image": "https://a/2.jpg"}}\n\n{asked}')
    assert list(read_catalog(path, "image")) == [f"https://a/{number}.jpg" for number in (1, 2, 3)]


def test_a_line_may_be_an_image_s_bare_url(tmp_path: Path) -> None:
    urls = ["http://a/1.jpg", "HTTPS://a/2.jpg", "s3://b/3.png"]
    path = written(tmp_path, "a.txt", "\r\n".join([*urls, ' "https://a/4.jpg"']))
    assert list(read_catalog(path, "image")) == [*urls, "https://a/4.jpg"]


@pytest.mark.parametrize("line", ["ftp://a/1.jpg", "{", '{"photo": "x"}', "7", '{"body": {}}'])
def test_a_line_without_an_image_is_told_by_its_number(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, "a.jsonl", f'"https://a/1.jpg"\n{line}\n')
    with pytest.raises(UnreadableCatalog, match="line 2"):
        list(read_catalog(path, "image"))


def test_what_is_asked_is_a_line_that_the_api_takes() -> None:
    lines = [
        image_line("https://a/1.jpg", number=0, model="demo", detail="low"),
        instruction_line("Be brief.", number=0, model="demo"),
    ]
    parsed = [parse_line(line, 1, RULES) for line in lines]
    assert all(isinstance(line, ParsedLine) and line.request.params["max_tokens"] == 1 for line in parsed)


def test_the_summary_counts_and_gives_reasons() -> None:
    summary = Summary()
    for text in (MADE, MADE, THERE):
        summary.ended(answered(text))
    for code in ("http_404", "corrupt_image", "http_404"):
        summary.ended(Result(seq=1, response={"status_code": 400, "body": {"error": {"code": code}}}))
    summary.ended(Result(seq=1, error={"code": "batch_expired"}))
    assert str(summary) == (
        "warm: stored=3 encoded=2 there=1 failed=4 (http_404 x 2, corrupt_image x 1, batch_expired x 1)"
    )


def answered(text: str) -> Result:
    body = {"choices": [{"message": {"content": text}}]}
    return Result(seq=1, response={"status_code": 200, "body": body})


@pytest.mark.parametrize(
    ("images", "answer", "text"),
    [
        ([1], Answer("x", "length", Usage(40, 1)), "made"),
        ([1], Answer("x", "length", Usage(40, 1), notes=(Note.FEATURES_CACHED,)), "there"),
        ([], Answer("x", "length", Usage(40, 1)), "made"),
        ([], Answer("x", "length", Usage(40, 1, cached_tokens=30)), "there"),
    ],
    ids=["encoded", "features were there", "computed", "prefix was there"],
)
def test_a_job_that_warms_says_what_was_there(images: list[int], answer: Answer, text: str) -> None:
    job = ClaimedJob(7, 2, 1, "tenant_a", "batch_1", "demo", {}, {}, images, 0.5, warm=True)
    assert tell_warmth(job, answer).text == text
    assert tell_warmth(replace(job, warm=False), answer).text == "x"
