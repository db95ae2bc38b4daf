"""`vqueue run` and its parts against a stand-in for the API: what it sends, and how it goes on."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from app.cli import following
from app.cli import run as run_module
from app.cli.main import app
from app.runs import pictures
from app.runs.missing import why_missing
from app.runs.notebook import Notebook
from app.runs.notebook import Sent as Noted
from app.runs.restore import Mender, restore
from tests.answering import Api, Reply, Sent, reply

GONE = reply(404, {"error": {"message": "No such thing."}})


class Service:
    """Files, batches that end at once with the counts of `ends`, and an export of what was uploaded."""

    def __init__(self) -> None:
        self.files: list[tuple[str, bytes]] = []
        self.batches: list[dict[str, object]] = []
        self.ends = [(2, 0)]
        self.interrupt = False
        self.unread = False  # the next batch does not pass
        self.code, self.message = "http_404", "Row 2: the picture is gone."
        self.export: str | None = None  # else what was uploaded last
        self.scopes = ["read", "write"]
        self.asked: list[str] = []
        self.hold = Event()  # uploads wait for it
        self.hold.set()

    def answer(self, sent: Sent) -> Reply:
        self.asked.append(sent.path)
        path = sent.path.removeprefix("/v1").partition("?")[0]
        match sent.method, *path.strip("/").split("/"):
            case "GET", "models":
                return reply(200, {"data": [{"id": "demo"}, {"id": "big"}]})
            case "GET", "key":
                return reply(200, {"id": "key_1", "scopes": self.scopes})
            case "POST", "files":
                self.hold.wait()
                name, content = _file(sent.body)
                if not content:
                    return reply(400, {"error": {"message": "The file is empty."}})
                self.files.append((name, content))
                return reply(200, {"id": f"file-{len(self.files):08}", "expires_at": 2**33})
            case ("POST", "batches") | ("POST", "batches", _, "retry"):
                return self._begin(json.loads(sent.body))
            case "GET", "batches":
                return reply(200, {"data": self.batches})
            case "GET", "batches", id:
                return reply(200, next(one for one in self.batches if one["id"] == id))
            case "GET", "batches", _, "results":
                return reply(
                    200,
                    {
                        "data": [failure(self.code, self.message)],
                        "last_seq": 1,
                        "has_more": False,
                        "ended": True,
                    },
                )
            case "GET", "batches", _, "export":
                return Reply(200, self.export.encode() if self.export else self.files[-1][1])
        return GONE

    def _begin(self, body: dict[str, object]) -> Reply:
        completed, failed = self.ends[min(len(self.batches), len(self.ends) - 1)]
        counts = {"total": completed + failed, "completed": completed, "failed": failed}
        id = f"batch_{len(self.batches) + 1}"
        self.batches.append({"id": id, "status": "completed", "request_counts": counts, "body": body})
        if self.unread:
            error = {"code": "unknown_column", "message": "There is no column 'nope'."}
            nothing = {"total": 0, "completed": 0, "failed": 0}
            errors = {"object": "list", "data": [error]}
            self.batches[-1] |= {"status": "failed", "request_counts": nothing, "errors": errors}
        return reply(200, self.batches[-1])

    def table(self) -> dict[str, object]:
        body = self.batches[-1]["body"]
        assert isinstance(body, dict)
        return body["table"]

    def rows(self) -> list[list[str]]:
        """The table that was uploaded last."""
        return cells(self.files[-1][1].decode())


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def _file(body: bytes) -> tuple[str, bytes]:
    found = re.search(rb'filename="([^"]*)"\r\n(?:[^\r\n]+\r\n)*\r\n(.*)\r\n--\w+--\r\n$', body, re.DOTALL)
    assert found
    return found[1].decode(), found[2]


def failure(code: str, message: str) -> dict[str, object]:
    error = {"code": code, "message": message}
    return {
        "seq": 1,
        "line": 3,
        "custom_id": "b:hue",
        "response": {"status_code": 400, "body": {"error": error}},
    }


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service()
    monkeypatch.chdir(tmp_path)
    with Api(service.answer) as api:
        monkeypatch.setenv("VQUEUE_URL", api.url)
        monkeypatch.setenv("VQUEUE_API_KEY", "k")
        yield service


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.csv"
    path.write_text("sku,photo\na,https://a/1.jpg\nb,https://a/2.jpg\n")
    return path


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A table beside its pictures, one of which two rows share."""
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    path = tmp_path / "shelf.csv"
    path.write_text('sku,photo\na,1.jpg\nb,2.jpg\nc,1.jpg\nd,https://a/4.jpg\n"e, f",../secret.jpg\n')
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in ("run", *arguments)])


def test_one_line_asks_about_a_table(service: Service, catalog: Path) -> None:
    done = run(catalog, "--ask", "What is it?", "-o", "out.csv")
    assert (done.exit_code, done.stdout) == (0, "run: jobs=2 answered=2 failed=0 out=out.csv\n")
    assert "images: the column 'photo' (--image-column names another)" in done.stderr
    assert service.table() == {
        "image_columns": ["photo"],
        "questions": [{"name": "answer", "ask": "What is it?"}],
        "body": {"model": "demo"},
    }
    assert Path("out.csv").read_bytes() == catalog.read_bytes()


def test_all_options_arrive(service: Service, catalog: Path) -> None:
    Path("s.json").write_text('{"type": "object"}')
    options = ("--ask", "hue=Which colour = best?", "--ask", "What is {sku}?", "--schema", "hue=s.json")
    more = ("--id-column", "sku", "--system", "Be brief.", "--max-tokens", "9", "--model", "big", "--strict")
    assert run(catalog, *options, *more, "--delimiter", ",", "-o", "out.parquet").exit_code == 0
    assert service.table() == {
        "image_columns": ["photo"],
        "questions": [
            {"name": "hue", "ask": "Which colour = best?", "schema": {"type": "object"}},
            {"name": "answer_2", "ask": "What is {sku}?"},
        ],
        "id_column": "sku",
        "system": "Be brief.",
        "body": {"model": "big", "max_tokens": 9},
        "delimiter": ",",
    }


def test_the_same_command_goes_on_with_the_same_batch(service: Service, catalog: Path) -> None:
    run(catalog, "--ask", "What?", "-o", "out.csv")
    again = run(catalog, "--ask", "What?", "-o", "out.csv")
    assert "going on with batch_1" in again.stderr
    assert (again.exit_code, len(service.batches), len(service.files)) == (0, 1, 1)
    assert run(catalog, "--ask", "What?", "-o", "out.csv", "--fresh").exit_code == 0
    assert len(service.batches) == 2


def test_interrupted_it_says_how_to_go_on(
    service: Service, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    service.batches.append({"id": "batch_0", "status": "in_progress"})
    monkeypatch.setattr(following.time, "sleep", interrupt)
    monkeypatch.setattr(service, "_begin", lambda _: reply(200, service.batches[0]))
    done = run(catalog, "--ask", "What?", "-o", "out.csv")
    assert done.exit_code == 130
    assert "batch_0 goes on by itself: the same command takes it up, `vqueue cancel batch_0`" in done.stderr
    other = run(catalog, "--ask", "What else?", "-o", "out.csv")
    assert (other.exit_code, "belongs to a run that is not over, batch_0" in other.stderr) == (2, True)
    service.batches[0] |= {"status": "completed", "request_counts": {"total": 2, "completed": 2}}
    assert run(catalog, "--ask", "What?", "-o", "out.csv").exit_code == 0


def test_failed_rows_are_told_with_their_reasons(service: Service, catalog: Path) -> None:
    service.ends = [(3, 1)]
    done = run(catalog, "--ask", "hue=Hue?", "--ask", "size=Size?", "-o", "out.csv")
    assert done.exit_code == 1
    assert "row 2 (b:hue): http_404: Row 2: the picture is gone.\n" in done.stderr
    assert done.stdout == "run: jobs=4 answered=3 failed=1 (http_404 x 1) out=out.csv\n"


def test_failed_rows_are_tried_again_once_and_merged(service: Service, catalog: Path) -> None:
    service.ends = [(3, 1), (1, 0)]
    command = (catalog, "--ask", "What?", "-o", "out.csv")
    early = run(*command, "--only-failed")
    assert (early.exit_code, "nothing was run for out.csv yet" in early.stderr) == (2, True)
    assert run(*command).exit_code == 1
    for _ in range(2):
        run(*command, "--only-failed")
    assert [one["id"] for one in service.batches] == ["batch_1", "batch_2"]
    assert service.batches[1]["body"] == {"states": ["failed", "expired", "cancelled"]}


def test_pictures_beside_the_table_are_sent_once_and_named_by_their_ids(
    service: Service, shelf: Path
) -> None:
    done = run(shelf, "--ask", "What?", "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert sorted(content for _, content in service.files[:2]) == [b"1.jpg", b"2.jpg"]
    ids = {content: f"file-{at:08}" for at, (_, content) in enumerate(service.files, 1)}
    shown = [row[1] for row in service.rows()[1:]]
    assert shown == [ids[b"1.jpg"], ids[b"2.jpg"], ids[b"1.jpg"], "https://a/4.jpg", "../secret.jpg"]
    assert "'../secret.jpg' in row 5 (no such file ../secret.jpg): its row will fail" in done.stderr
    assert cells(Path("out.csv").read_text()) == cells(shelf.read_text())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_each_row_has_its_own_spelling_of_a_picture_again(service: Service, shelf: Path, kind: str) -> None:
    spellings = ["./1.jpg", "1.jpg", ".//1.jpg"]
    if kind == "csv":
        Path("own.csv").write_text("photo\n" + "\n".join(spellings) + "\n")
    else:
        pq.write_table(pa.table({"photo": spellings}), "own.parquet")
    assert run(f"own.{kind}", "--ask", "What?", "-o", f"out.{kind}").exit_code == 0
    assert len(service.files) == 2, "one picture and the table"
    if kind == "csv":
        assert [row[0] for row in cells(Path("out.csv").read_text())] == ["photo", *spellings]
    else:
        assert pq.read_table("out.parquet")["photo"].to_pylist() == spellings


def test_a_list_of_pictures_is_sent_with_their_names(service: Service, shelf: Path) -> None:
    Path("list.txt").write_text("# mine\n1.jpg\nhttps://a/b/9.jpg\n")
    run("list.txt", "--ask", "What is {name}?", "-o", "out.csv")
    assert service.rows() == [["image", "name"], ["file-00000001", "1.jpg"], ["https://a/b/9.jpg", "9.jpg"]]
    assert cells(Path("out.csv").read_text())[1] == ["1.jpg", "1.jpg"]


def test_a_picture_that_was_not_sent_is_explained_in_its_own_cell(service: Service, shelf: Path) -> None:
    (shelf.parent / "empty.jpg").write_bytes(b"")
    names = ["1.jpg", "nope.jpg", "empty.jpg", "2.JPG", "file:///etc/passwd", "a\\b.jpg"]
    Path("own.csv").write_text("photo\n" + "\n".join(names) + "\n")
    theirs = "bad_url: Row: Local paths are not read."
    service.export = "photo,answer,answer_error\n" + "".join(f"{one},,{theirs}\n" for one in names)
    done = run("own.csv", "--ask", "What?", "-o", "out.csv")
    errors = [row[2] for row in cells(Path("out.csv").read_text())[1:]]
    assert errors[:4] == [
        theirs,
        "bad_url: no such file nope.jpg",
        "bad_url: empty.jpg is empty",
        "bad_url: no such file 2.JPG: did you mean 2.jpg?",
    ]
    assert "file:///etc/passwd is not sent: write the file's path" in errors[4]
    assert "4 images of 'photo' are neither URLs nor files" in done.stderr


def test_a_backslash_is_explained_where_a_slash_would_do(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "a.png").write_bytes(b"x")
    assert why_missing(tmp_path, "pics\\a.png").endswith("write pics/a.png, with / between the folders")


def test_failures_that_are_listed_say_so_too(service: Service, shelf: Path) -> None:
    Path("own.csv").write_text("photo\n1.jpg\nnope.jpg\n")
    service.ends, service.code = [(1, 1)], "bad_url"
    done = run("own.csv", "--ask", "hue=What?", "--ask", "size=?", "-o", "out.csv")
    assert "row 2 (b:hue): bad_url: no such file nope.jpg\n" in done.stderr


def test_an_export_beside_a_run_s_notes_has_the_pictures_names(service: Service, shelf: Path) -> None:
    run(shelf, "--ask", "What?", "-o", "out.csv")
    CliRunner().invoke(app, ["export", "batch_1", "-o", "out.csv", "--only-failed"])
    assert cells(Path("out.csv").read_text())[1] == ["a", "1.jpg"]
    assert "rows=failed" in service.asked[-1]
    CliRunner().invoke(app, ["export", "batch_1", "-o", "other.csv"])
    assert cells(Path("other.csv").read_text())[1][1].startswith("file-")


def test_a_service_that_takes_no_picture_is_told_while_it_is_tried(
    service: Service, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "QUIET_S", 0.05)
    service.hold = hold = Event()
    waits = pictures._await

    def until_told(futures: Any, count: Callable[[], int], say: Callable[[str], None]) -> None:
        def say_and_let_go(line: str) -> None:
            say(line)
            hold.set()

        waits(futures, count, say_and_let_go)

    monkeypatch.setattr(pictures, "_await", until_told)
    done = run(shelf, "--ask", "What?", "-o", "out.csv")
    assert (done.exit_code, "the service does not answer, trying again" in done.stderr) == (0, True)


def test_pictures_that_were_sent_are_not_sent_again(service: Service, shelf: Path) -> None:
    run(shelf, "--ask", "What?", "-o", "out.csv")
    (shelf.parent / "2.jpg").write_bytes(b"another")
    run(shelf, "--ask", "What else?", "-o", "out.csv")
    assert [name for name, _ in service.files[3:]] == ["2.jpg", "table.csv"]


def test_a_picture_that_is_refused_costs_its_own_rows_only(service: Service, shelf: Path) -> None:
    (shelf.parent / "1.jpg").write_bytes(b"")
    done = run(shelf, "--ask", "What?", "-o", "out.csv")
    assert "1.jpg is not sent, and its rows will fail: The file is empty." in done.stderr
    assert [row[1] for row in service.rows()[1:4]] == ["1.jpg", "file-00000001", "1.jpg"]


def test_a_folder_with_an_empty_picture_is_asked_about_all_the_same(service: Service, shelf: Path) -> None:
    (shelf.parent / "1.jpg").write_bytes(b"")
    run(shelf.parent, "--ask", "What?", "-o", "out.csv")
    assert service.rows()[1:] == [["1.jpg", "1.jpg"], ["2.jpg", "file-00000001"]]


def test_a_link_that_leads_out_of_a_folder_is_not_followed(service: Service, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a")
    (folder / "b.png").symlink_to(tmp_path / "secret.png")
    run(folder, "--ask", "What?", "-o", "out.csv")
    assert [content for _, content in service.files[:-1]] == [b"a"]


def test_pictures_that_were_changed_are_other_work(service: Service, shelf: Path) -> None:
    run(shelf, "--ask", "What?", "-o", "out.csv")
    (shelf.parent / "2.jpg").write_bytes(b"another")
    run(shelf, "--ask", "What?", "-o", "out.csv")
    assert len(service.batches) == 2
    run(shelf, "--ask", "What?", "-o", "out.csv")
    assert len(service.batches) == 2


def test_what_did_not_pass_stands_in_nobodys_way(service: Service, catalog: Path) -> None:
    service.unread = True
    done = run(catalog, "--ask", "What is {sku}?", "-o", "out.csv")
    assert (done.exit_code, "no column 'nope'" in done.stderr) == (1, True)
    service.unread = False
    assert run(catalog, "--ask", "What?", "-o", "out.csv").exit_code == 0
    service.unread = True
    run(catalog, "--ask", "Why?", "-o", "other.csv")
    service.unread = False
    assert run(catalog, "--ask", "Why?", "-o", "other.csv").exit_code == 0, "the same once more, too"


def test_what_a_failure_says_steers_no_terminal(service: Service, catalog: Path) -> None:
    service.ends, service.message = [(1, 1)], "gone \x1b]0;pwn\x07\x1b[31m"
    done = run(catalog, "--ask", "What?", "-o", "out.csv")
    assert "gone ?]0;pwn??[31m" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_a_folder_is_a_table_of_its_pictures(service: Service, shelf: Path) -> None:
    done = run(shelf.parent, "--ask", "What?", "-o", "out.csv")
    assert (done.exit_code, len(service.files)) == (0, 3)
    assert [row[0] for row in service.rows()] == ["name", "1.jpg", "2.jpg"]
    assert service.table()["id_column"] == "name"


def test_a_prefix_is_left_to_the_service(service: Service) -> None:
    assert run("s3://shop/new/", "--ask", "What?", "-o", "out.csv").exit_code == 1  # nothing to export here
    body = service.batches[0]["body"]
    assert isinstance(body, dict)
    assert (body["input_file_id"], body["table"]["image_columns"]) == ("s3://shop/new/", ["image"])


def test_parquet_pictures_are_named_by_their_ids_and_get_their_names_back(
    service: Service, shelf: Path
) -> None:
    table = pa.table({"photo": ["1.jpg", None, "https://a/2.jpg"], "price": [1, 2, 3]})
    pq.write_table(table, "shelf.parquet")
    assert run("shelf.parquet", "--ask", "What?", "-o", "out.parquet").exit_code == 0
    sent = pq.read_table(io.BytesIO(service.files[-1][1]))
    assert sent["photo"].to_pylist() == ["file-00000001", None, "https://a/2.jpg"]
    assert pq.read_table("out.parquet").equals(table)


def noted(text: str) -> Noted:
    return Noted(f"/{text}", 1, 1, text, "file-1", 2**33)


def test_lines_of_json_get_their_names_back(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    out.write_text('{"photo":"file-1","answer":"file-12"}\n{"photo":null}\n')
    restore(out, Mender({"file-1": noted("ä.jpg")}))
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"photo": "ä.jpg", "answer": "file-12"},
        {"photo": None},
    ]


def test_a_name_that_a_spreadsheet_would_run_is_text(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("photo\r\nfile-1\r\n")
    restore(out, Mender({"file-1": noted("=1.jpg")}))
    assert out.read_text() == "photo\n'=1.jpg\n"


def test_a_field_with_a_semicolon_stays_quoted_where_names_are_given_back(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text('"a;b",photo\r\n"c;d",file-1\r\n')
    restore(out, Mender({"file-1": noted("1.jpg")}))
    assert out.read_text() == '"a;b",photo\n"c;d",1.jpg\n'


def test_a_half_written_note_is_no_harm(tmp_path: Path) -> None:
    picture, file = tmp_path / "1.jpg", tmp_path / "notes"
    picture.write_bytes(b"x")
    Notebook(file).add(picture, "1.jpg", id="file-1", until=2**33)
    file.write_text(file.read_text() + '{"path": "/x", "si')
    assert Notebook(file).find(picture) == "file-1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("catalog.csv", "-o", "out.csv"), "what is to be asked?"),
        (("catalog.csv", "--ask", "x", "-o", "out.xlsx"), "-o out.xlsx: the name must end in .csv"),
        (("catalog.csv", "--ask", "x", "-o", "catalog.csv"), "is the input itself"),
        (("catalog.csv", "--ask", "x", "-o", "no/out.csv"), "there is no folder no"),
        (("none.csv", "--ask", "x", "-o", "out.csv"), "none.csv: there is no such file or folder"),
        (("catalog.csv", "--ask", "x", "--question-column", "sku", "-o", "out.csv"), "do not go together"),
        (("catalog.csv", "--ask", "x", "--image-column", "pic", "-o", "out.csv"), "no column 'pic'"),
        (("catalog.csv", "--ask", "x", "--id-column", "id", "-o", "out.csv"), "no column 'id'"),
        (("catalog.csv", "--ask", "a=x", "--ask", "a=y", "-o", "out.csv"), "two questions named 'a'"),
        (
            ("catalog.csv", "--ask", "x=a", "--ask", "y:x=b", "-o", "out.csv"),
            "y:x=...: a question's name must",
        ),
        (("catalog.csv", "--ask", "x", "--schema", "none.json", "-o", "out.csv"), "cannot be read"),
        (("bare.csv", "--ask", "x", "-o", "out.csv"), "no column looks like images"),
        (("lost.csv", "--ask", "x", "-o", "out.csv"), "--image-folder says where they lie"),
        (("a.jsonl", "--ask", "x", "-o", "out.csv"), "whole requests already"),
        (("s3://", "--ask", "x", "-o", "out.csv"), "a prefix looks like s3://bucket/prefix"),
        (("catalog.csv", "--ask", "What is {nope}?", "-o", "out.csv"), "no column 'nope'; there are 'sku'"),
        (("catalog.csv", "--ask", "x", "--model", "nope", "-o", "out.csv"), "--model nope: it is not served"),
        (("catalog.csv", "--ask", "x", "--window", "99d", "-o", "out.csv"), "--window 99d: must be a time"),
        (
            ("catalog.csv", "--ask", "x", "--delimiter", ";", "-o", "out.csv"),
            "is only one column, 'sku,photo': is it ','?",
        ),
        (("notes.docx", "--ask", "x", "-o", "out.csv"), "is expected"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_sent(
    service: Service, catalog: Path, arguments: tuple[str, ...], told: str
) -> None:
    Path("bare.csv").write_text("sku\n1\n")
    Path("lost.csv").write_text("sku,photo\n1,a/1.jpg\n")
    for name in ("a.jsonl", "notes.docx"):
        Path(name).write_text("{}\n")
    done = run(*arguments)
    assert (done.exit_code, service.files, service.batches) == (2, [], [])
    assert told in done.stderr


def test_a_key_that_lacks_a_scope_is_told_before_anything_is_sent(service: Service, shelf: Path) -> None:
    service.scopes = ["read"]
    done = run(shelf, "--ask", "What?", "-o", "out.csv")
    assert (done.exit_code, service.files) == (2, [])
    assert "the key lacks the scope write" in done.stderr


def test_trying_again_is_only_advised_where_it_can_help(service: Service, catalog: Path) -> None:
    service.ends, service.code = [(1, 1)], "missing_image"
    said = run(catalog, "--ask", "What?", "-o", "out.csv").stderr
    assert "--only-failed tries" not in said
    assert "these were no requests: put them right, and run without --only-failed" in said


def test_interrupted_when_all_has_ended_nothing_goes_on(
    service: Service, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "tally", interrupt)
    said = run(catalog, "--ask", "What?", "-o", "out.csv").stderr
    assert "goes on by itself" not in said
    assert "batch_1 has ended: the same command writes out.csv" in said


def test_submit_hands_in_and_check_only_reads(service: Service, catalog: Path) -> None:
    handed = CliRunner().invoke(app, ["submit", str(catalog), "--ask", "What?"])
    assert (handed.exit_code, handed.stdout) == (0, "batch_1\n")
    checked = CliRunner().invoke(app, ["check", str(catalog), "--ask", "What?"])
    assert json.loads(checked.stdout)["status"] == "completed"
    body = service.batches[1]["body"]
    assert isinstance(body, dict)
    assert (checked.exit_code, body["dry_run"]) == (0, True)


def test_watch_says_why_a_batch_failed(service: Service, catalog: Path) -> None:
    service.unread = True
    CliRunner().invoke(app, ["submit", str(catalog), "--ask", "What?"])
    done = CliRunner().invoke(app, ["watch", "batch_1"])
    assert (done.exit_code, "unknown_column: There is no column 'nope'." in done.stderr) == (1, True)


def test_watch_follows_what_runs_and_says_how_it_ended(service: Service) -> None:
    service.batches.append(
        {"id": "batch_1", "status": "completed", "request_counts": {"failed": 1, "total": 1}}
    )
    named = CliRunner().invoke(app, ["watch", "batch_1"])
    assert (named.exit_code, named.stderr) == (1, "batch_1 completed 1 of 1, 1 failed\n")
    assert "no batch runs" in CliRunner().invoke(app, ["watch"]).stderr
