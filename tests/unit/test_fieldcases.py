"""The runner of field cases tells what holds from what does not."""

import base64
import json
from pathlib import Path

import pytest

from tests.charts import chart, encode
from tests.fieldcases.__main__ import main

PNG = encode(chart(), "PNG")
ACCEPT = {"verdict": "accept", "size": [96, 64], "probes": [{"xy": [24, 16], "rgb": [255, 0, 0], "tol": 2}]}
BLUE = {"verdict": "accept", "size": [96, 64], "probes": [{"xy": [24, 16], "rgb": [0, 0, 255], "tol": 2}]}
SSRF = {"url": "https://a.example.com/x", "redirects": ["http://b.example.com/"], "dns_table": {}}


def row(kind: str, expect: dict[str, object], **fields: object) -> dict[str, object]:
    return {"id": f"{kind}-1", "kind": kind, "certainty": "firm", "expect": expect, **fields}


def refuses(error_class: str, *words: str) -> dict[str, object]:
    return {"verdict": "reject", "error_class": error_class, "message_should_mention_any": list(words)}


def run(folder: Path, *rows: dict[str, object], kind: str = "") -> int:
    (folder / "chart.png").write_bytes(PNG)
    (folder / "cut.png").write_bytes(PNG[:-40])
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return main([str(folder), *(["--kind", kind] if kind else [])])


@pytest.mark.parametrize(
    "case",
    [
        row("image", ACCEPT, file="chart.png"),
        row("image", refuses("corrupt_image", "truncated", "broken"), file="cut.png"),
        row("image", BLUE, file="chart.png", alternatives=[ACCEPT]),
        row("dataurl", ACCEPT, payload={"url": "data:;base64," + base64.b64encode(PNG).decode()}),
        row("dataurl", refuses("bad_data_url", "comma"), payload={"url": "data:"}),
        row("s3", {"verdict": "parsed", "bucket": "box", "key": "a%2Fb"}, payload={"ref": "s3://box/a%2Fb"}),
        row("ssrf", {"verdict": "allowed"}, payload=SSRF),
        row("ssrf", {"verdict": "blocked"}, payload={**SSRF, "dns_table": {"b.example.com": ["10.0.0.9"]}}),
        row("ssrf", {"verdict": "blocked"}, payload={"url": "http://a.example.com/", "dns": ["10.0.0.9"]}),
    ],
)
def test_what_holds_is_counted(
    case: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, case) == 0
    assert capsys.readouterr().out.endswith("fieldcases: firm=1/1 policy=0/0\n")


@pytest.mark.parametrize(
    "case",
    [
        row("image", BLUE, file="chart.png"),
        row("image", ACCEPT, file="cut.png"),
        row("image", {**ACCEPT, "size": [64, 96]}, file="chart.png"),
        row("image", refuses("corrupt_image"), file="chart.png"),
        row("image", refuses("too_many_pixels", "truncated"), file="cut.png"),
        row("image", refuses("corrupt_image", "aspect"), file="cut.png"),
        row(
            "image", {**ACCEPT, "not_rgb": [{"xy": [24, 16], "rgb": [255, 0, 0], "tol": 2}]}, file="chart.png"
        ),
        row("image", {**ACCEPT, "same_colour": [[24, 16], [72, 16]]}, file="chart.png"),
        row("image", {**ACCEPT, "brighter_first": [[24, 16], [72, 48]]}, file="chart.png"),
        row("s3", {"verdict": "parsed", "bucket": "box", "key": "a/b"}, payload={"ref": "s3://box/a%2Fb"}),
        row("ssrf", {"verdict": "blocked"}, payload=SSRF),
        row("ssrf", {"verdict": "allowed"}, payload={"url": "http://localhost/"}),
        row("image_pair", {"verdict": "different_cache_keys"}, payload={"files": ["chart.png", "chart.png"]}),
    ],
)
def test_what_does_not_hold_is_a_miss(
    case: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, case) == 1
    out = capsys.readouterr().out
    assert f"MISS firm {case['id']}: expected" in out
    assert out.endswith("fieldcases: firm=0/1 policy=0/0\n")


def test_a_policy_row_that_does_not_hold_is_shown_but_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, {**row("image", BLUE, file="chart.png"), "certainty": "policy"}) == 0
    out = capsys.readouterr().out
    assert "MISS policy image-1" in out
    assert out.endswith("fieldcases: firm=0/0 policy=0/1\n")


def test_rows_that_are_not_served_are_not_counted_as_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("image", ACCEPT, file="chart.png"), row("poetry", {}), row("s3", {"verdict": "behaviour"})]
    rows.append(row("model", {"verdict": "behaviour", "all_of": ["it sings"]}))
    assert run(tmp_path, *rows) == 0
    out = capsys.readouterr().out
    assert "poetry: firm=0/0 policy=0/0 not_run=1\n" in out
    assert "s3-1: not run by this tool: " in out
    assert "model-1: not run by this tool: " in out
    assert out.endswith("fieldcases: firm=1/1 policy=0/0\n")


def test_one_kind_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("image", BLUE, file="chart.png"), row("ssrf", {"verdict": "allowed"}, payload=SSRF)]
    assert run(tmp_path, *rows, kind="ssrf") == 0
    assert capsys.readouterr().out.endswith("fieldcases: firm=1/1 policy=0/0\n")


def test_a_kind_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, row("image", ACCEPT, file="chart.png"), kind="foo") == 2
    assert capsys.readouterr().err.startswith("there is no such kind as foo; use image, image_pair, ")


def test_a_folder_without_rows_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path}/cases.jsonl is missing: FOLDER holds cases.jsonl")
