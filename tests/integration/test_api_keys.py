"""Keys by the command: made, shown once, listed, revoked."""

import pytest
from typer.testing import CliRunner, Result

from app.auth import Keys
from app.cli.main import app
from app.db import Sessions
from app.errors import Unauthorized
from tests.rows import Rows


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    monkeypatch.setenv("VQUEUE_DATABASE_URL", database_url)


def vqueue(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments], env={"COLUMNS": "40"})


def create(*more: str) -> str:
    """The secret that the command prints."""
    made = vqueue("create", "--tenant", "Ada", "--name", "nightly", *more)
    assert made.exit_code == 0, made.output
    return made.stdout.strip()


def test_a_key_opens_what_belongs_to_its_tenant(db: Sessions, environment: None) -> None:
    keys = Keys(sessions=db)
    first, second = (keys.recognise(create()) for _ in range(2))
    assert first.id == second.id == Rows(db).one("SELECT id FROM tenants WHERE name = 'Ada'")
    assert first.key_id != second.key_id


def test_only_a_hash_is_kept(db: Sessions, environment: None) -> None:
    secret = create()
    assert len(secret) == 46
    row = Rows(db).one("SELECT api_keys::text FROM api_keys")
    assert secret[:9] in row
    assert secret[9:] not in row


def test_the_list_shows_keys_without_their_secrets(db: Sessions, environment: None) -> None:
    secret = create("--expires-days", "7")
    listed = vqueue("list").stdout
    assert "nightly" in listed
    assert secret[:9] in listed
    assert secret not in listed


def test_in_a_pipe_the_list_has_a_line_per_key_with_tabs(db: Sessions, environment: None) -> None:
    key_id = Keys(sessions=db).recognise(create()).key_id
    (line,) = vqueue("list").stdout.splitlines()
    assert line.split("\t")[:3] == [key_id, "Ada", "nightly"]
    assert len(line.split("\t")) == 9


def test_a_name_cannot_pass_for_a_column(db: Sessions, environment: None) -> None:
    Keys(sessions=db).create(tenant="Ada\tLovelace", name="\x1b[2J")
    (line,) = vqueue("list").stdout.splitlines()
    assert line.split("\t")[1:3] == ["Ada?Lovelace", "?[2J"]


def test_a_revoked_key_is_closed(db: Sessions, environment: None) -> None:
    secret = create()
    key_id = Keys(sessions=db).recognise(secret).key_id
    assert vqueue("revoke", key_id).stdout == f"{key_id} is revoked.\n"
    with pytest.raises(Unauthorized):
        Keys(sessions=db).recognise(secret)
    again = vqueue("revoke", key_id)
    assert again.exit_code == 0
    assert again.stdout.startswith(f"{key_id} was revoked already, 20")
    assert vqueue("revoke", "key_none").exit_code == 1


def test_a_key_may_expire(db: Sessions, environment: None) -> None:
    create("--expires-days", "7")
    assert Rows(db).one("SELECT expires_at - created_at = interval '7 days' FROM api_keys")
