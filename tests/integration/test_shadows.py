"""A share of an ended batch is asked of another model, and the answers are compared; no customer sees it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from app.answer_keys import CacheMode
from app.cli.main import app
from app.config import Settings, read_option
from app.db import Sessions, transaction
from app.model_list import read_models
from app.objects import ObjectStore
from app.shadow_list import Shadow
from app.shadows import Shadows, TenantTaken, read_report
from app.states import BatchStatus, Priority
from app.store import batches, failures, watch
from app.store.batches import BatchRow
from app.store.tenants import find_tenant
from tests.desk import PIXEL, Desk, image, line
from tests.mill import Mill
from workers.engine.base import Request, texts
from workers.engine.fake import FakeEngine

TWO = read_models("demo=x, other=y", read_option)
ALL = Shadow("demo", "other", 1.0)


def odd(request: Request) -> str:
    """Of another mind about every second question, and of other spelling about the rest."""
    word = texts(request.turns)[-1]
    return "No." if int(word) % 2 else f" {word} "


@pytest.fixture
def mill(db: Sessions, objects: ObjectStore, settings: Settings) -> Iterator[Mill]:
    chosen = settings.model_copy(update={"models": TWO})
    with closing(Mill(sessions=db, objects=objects, settings=chosen)) as mill:
        mill.use(
            FakeEngine(model="demo", answer=lambda request: texts(request.turns)[-1]),
            FakeEngine(model="other", answer=odd),
        )
        yield mill


def shadows_of(mill: Mill, shadow: Shadow = ALL) -> Shadows:
    return Shadows(sessions=mill.sessions, shadows=[shadow], tenant="shadow")


def ask(mill: Mill, desk: Desk, count: int) -> str:
    pictured = [{"type": "text", "text": "0"}, image(PIXEL)]
    rows = [line("r0", pictured), *(line(f"r{number}", str(number)) for number in range(1, count))]
    batch_id = desk.submit(rows, cache=CacheMode.ON)
    mill.grind()
    return batch_id


def shadow_of(desk: Desk, batch_id: str) -> BatchRow | None:
    with transaction(desk.sessions) as session:
        page = batches.list_batches(session, tenant(desk), after=None, limit=100)
    return next((batch for batch in page if batch.retry_of == batch_id), None)


def tenant(desk: Desk) -> str:
    with transaction(desk.sessions) as session:
        found = find_tenant(session, "shadow")
    assert found
    return found.id


def drain(shadows: Shadows) -> None:
    while shadows.step():
        pass


def test_two_models_are_compared_over_what_both_were_asked(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 4)
    shadows = shadows_of(mill)
    drain(shadows)
    mill.grind()
    drain(shadows)
    report = read_report(desk.sessions, days=1, show=10)
    (total,) = report.totals
    assert (total.model, total.other, total.batches, total.open) == ("demo", "other", 1, 0)
    assert (total.pairs, total.alike, total.exact) == (4, 0.5, 0)
    assert total.model_s is not None
    assert total.other_s is not None
    assert [
        (found.batch_id, found.custom_id, found.answer, found.other_answer) for found in report.differences
    ] == [
        (batch_id, "r1", "1", "No."),
        (batch_id, "r3", "3", "No."),
    ]


def test_the_command_tells_what_came_of_it(
    mill: Mill, desk: Desk, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VQUEUE_DATABASE_URL", database_url)
    batch_id = ask(mill, desk, 2)
    shadows = shadows_of(mill)
    drain(shadows)
    assert CliRunner().invoke(app, ["shadows"]).stdout == "demo\tother\t1\t1\t0\t\t\t\t\n"
    mill.grind()
    drain(shadows)
    total, differing = CliRunner().invoke(app, ["shadows", "--show", "5"]).stdout.splitlines()
    assert total.split("\t")[:7] == ["demo", "other", "1", "0", "2", "0.500", "0.000"]
    assert differing.split("\t") == [batch_id, "r1", "1", "No."]


def test_a_shadow_is_nobody_s_batch_and_waits_for_all_others(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 2)
    drain(shadows_of(mill))
    mill.grind()
    shadow = shadow_of(desk, batch_id)
    assert shadow is not None
    assert (shadow.priority, shadow.completed, shadow.model) == (Priority.BACKGROUND, 2, "other")
    with transaction(desk.sessions) as session:
        assert [row.id for row in batches.list_batches(session, desk.tenant, after=None, limit=9)] == [
            batch_id
        ]


def test_a_batch_has_one_shadow_and_a_shadow_none(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, 2)
    both_ways = [
        Shadows(sessions=mill.sessions, shadows=[ALL, Shadow("other", "demo", 1.0)], tenant="shadow")
    ] * 2
    for shadows in both_ways:
        drain(shadows)
        mill.grind()
    assert desk.count("shadows") == 1
    assert desk.count("batches") == 2


def test_a_shadow_is_not_taken_for_the_retry_of_a_batch(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 2)
    drain(shadows_of(mill))
    mill.grind()
    with transaction(desk.sessions) as session:
        (batch,) = failures.read_batches(session, [batch_id])
    assert batch.retried_as is None


def test_a_shadow_ends_before_it_would_compete_with_customers_and_rings_no_alarm(
    mill: Mill, desk: Desk
) -> None:
    batch_id = ask(mill, desk, 2)
    shadows = shadows_of(mill)
    drain(shadows)
    with transaction(desk.sessions) as session:
        assert watch.read_open(session)[1] == []
    desk.execute(
        "UPDATE batches SET created_at = created_at - interval '17 hours',"
        " expires_at = expires_at - interval '17 hours' WHERE retry_of IS NOT NULL"
    )
    drain(shadows)
    shadow = shadow_of(desk, batch_id)
    assert shadow is not None
    assert shadow.status is BatchStatus.CANCELLING


def test_no_more_shadows_are_made_while_many_of_their_jobs_are_open(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, 2)
    ask(mill, desk, 2)
    shadows = Shadows(sessions=mill.sessions, shadows=[ALL], tenant="shadow", most_open=2)
    assert shadows.step()
    desk.execute("UPDATE batches SET total = 2 WHERE retry_of IS NOT NULL")
    assert not shadows.step()
    desk.execute("UPDATE batches SET total = 1 WHERE retry_of IS NOT NULL")
    assert shadows.step()


def test_a_share_of_the_jobs_is_asked(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 60)
    drain(shadows_of(mill, replace(ALL, share=0.5)))
    mill.grind()
    shadow = shadow_of(desk, batch_id)
    assert shadow is not None
    assert 10 <= shadow.total <= 50


def test_a_share_that_comes_to_no_job_is_let_be(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 1)
    drain(shadows_of(mill, replace(ALL, share=1e-9)))
    assert shadow_of(desk, batch_id) is None
    assert desk.count("shadows") == 1


def test_a_tenant_with_work_of_its_own_is_never_given_what_others_have_asked(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, 2)
    desk.execute("INSERT INTO tenants (id, name) VALUES ('tenant_clash', 'clash')")
    ask(mill, desk, 1)
    desk.execute("UPDATE batches SET tenant_id = 'tenant_clash' WHERE total = 1")
    with pytest.raises(TenantTaken):
        Shadows(sessions=mill.sessions, shadows=[ALL], tenant="clash").step()
    assert (desk.count("shadows"), desk.count("batches")) == (0, 2)


def test_a_shadow_has_none_under_another_name_of_the_tenant_either(mill: Mill, desk: Desk) -> None:
    ask(mill, desk, 2)
    drain(shadows_of(mill))
    mill.grind()
    drain(Shadows(sessions=mill.sessions, shadows=[Shadow("other", "demo", 1.0)], tenant="renamed"))
    assert desk.count("shadows") == 1


def test_a_deleted_batch_stops_its_shadow_also_once_none_are_made_any_more(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 2)
    drain(shadows_of(mill))
    desk.execute("UPDATE batches SET deleted_at = now() WHERE id = :id", id=batch_id)
    drain(Shadows(sessions=mill.sessions, shadows=[], tenant="shadow"))
    shadow = shadow_of(desk, batch_id)
    assert shadow is not None
    assert shadow.status is BatchStatus.CANCELLING


def test_the_shadow_of_a_deleted_batch_is_deleted(mill: Mill, desk: Desk) -> None:
    batch_id = ask(mill, desk, 2)
    shadows = shadows_of(mill)
    drain(shadows)
    mill.grind()
    desk.execute("UPDATE batches SET deleted_at = now() WHERE id = :id", id=batch_id)
    drain(shadows)
    assert shadow_of(desk, batch_id) is None
