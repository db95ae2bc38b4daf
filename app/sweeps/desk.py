"""Sweeps as their owners handle them: made, changed, paused, run now, back-filled, compared, deleted."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import structlog
from sqlalchemy.orm import Session

from app.actor import actor
from app.answer_keys import is_repeatable
from app.batches import Batches, start_to_cancel
from app.chat import chat_rules, parse_chat_body
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import Conflict, NotFound, Overloaded, RequestError
from app.ids import new_run_id, new_sweep_id
from app.pages import Page, page_of
from app.repeats import Once, hash_request
from app.store import audit, sweep_items, sweep_runs
from app.store import sweeps as store
from app.store.sweep_items import ChangeRow
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow
from app.sweeps.cron import check_cron, due_times, next_due
from app.sweeps.questions import Asking, changed_questions, request_body
from app.sweeps.sources import Sources
from app.tables.places import read_place

log = structlog.get_logger()

MOST_WAITING = 1_000  # runs of a sweep: what a backfill adds at most
MOST_DUE = 10_000  # due times that a backfill looks at
# Whatever changes an answer needs another policy version.
POLICY = ("questions", "model", "body")
SWEEP, RUN = "sweep", "sweep.run"  # what idempotency keys make
SAMPLE = "https://images.example/1.jpg"


class Sweeps:
    def __init__(self, *, sessions: Sessions, batches: Batches, sources: Sources, settings: Settings) -> None:
        self._sessions = sessions
        self._batches = batches
        self._sources = sources
        self._rules = chat_rules(settings)
        self._default_model = settings.default_model
        self._buckets = settings.sweep_buckets

    def create(
        self, tenant_id: str, wish: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> SweepRow:
        """A new sweep, or the one that the same request made before.

        RequestError for what could not be run, `Conflict` where its name is taken.
        """
        values = {**wish, "model": wish["model"] or self._default_model}
        self._check(values)
        once = _once(tenant_id, SWEEP, idempotency_key, wish)
        with transaction(self._sessions) as session:
            made = once.made(session) if once else None
            if made and (earlier := store.read_sweep(session, tenant_id, made)):
                return earlier
            due = _first_due(values["cron"], values["zone"], store.now(session))
            given = {**values, "key_id": actor().key_id, "next_due_at": due}
            sweep = store.insert_sweep(session, new_sweep_id(), tenant_id, given)
            if sweep is None:
                raise _name_taken(wish["name"])
            if once:
                once.note(session, sweep.id)
            audit.note(session, actor(), "sweep.created", sweep.id, {"name": sweep.name}, tenant_id=tenant_id)
        log.info("sweep_created", sweep=sweep.id)
        return sweep

    def read(self, tenant_id: str, sweep_id: str) -> SweepRow:
        with transaction(self._sessions) as session:
            return _found(store.read_sweep(session, tenant_id, sweep_id), sweep_id)

    def list(self, tenant_id: str, *, limit: int, after: str | None) -> Page[SweepRow]:
        """Newest first."""
        with transaction(self._sessions) as session:
            cursor = _found(store.read_sweep(session, tenant_id, after), after) if after else None
            rows = store.list_sweeps(session, tenant_id, limit=limit + 1, after=cursor)
        return page_of(rows, limit)

    def update(self, tenant_id: str, sweep_id: str, changes: Mapping[str, Any]) -> SweepRow:
        """Change what is given. What would change answers needs another policy version with it."""
        with transaction(self._sessions) as session:
            sweep = _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            self._check({**vars(sweep), **changes})
            _check_policy(sweep, changes)
            if "name" in changes and store.name_taken(session, tenant_id, changes["name"], but=sweep_id):
                raise _name_taken(changes["name"])
            values = dict(changes)
            if {"cron", "zone"} & values.keys():
                cron, zone = values.get("cron", sweep.cron), values.get("zone", sweep.zone)
                values["next_due_at"] = _first_due(cron, zone, store.now(session))
            if not values:
                return sweep
            changed = store.update_sweep(session, sweep_id, values)
            details = {"changed": sorted(changes), "policy_version": changed.policy_version}
            audit.note(session, actor(), "sweep.updated", sweep_id, details, tenant_id=tenant_id)
        return changed

    def pause(self, tenant_id: str, sweep_id: str) -> SweepRow:
        """Begin no run of it but those asked for by hand; the one that runs goes on."""
        with transaction(self._sessions) as session:
            sweep = _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            if sweep.paused_at is not None:
                return sweep
            audit.note(session, actor(), "sweep.paused", sweep_id, tenant_id=tenant_id)
            return store.update_sweep(session, sweep_id, {"paused_at": store.now(session)})

    def resume(self, tenant_id: str, sweep_id: str) -> SweepRow:
        """Go on with the next due time; those of the pause are not made up for."""
        with transaction(self._sessions) as session:
            sweep = _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            if sweep.paused_at is None:
                return sweep
            audit.note(session, actor(), "sweep.resumed", sweep_id, tenant_id=tenant_id)
            due = _first_due(sweep.cron, sweep.zone, store.now(session))
            return store.update_sweep(session, sweep_id, {"paused_at": None, "next_due_at": due})

    def run(self, tenant_id: str, sweep_id: str, *, idempotency_key: str | None = None) -> RunRow:
        """A run now, as soon as no other is open; or the one that the same request made before."""
        once = _once(tenant_id, RUN, idempotency_key, {"sweep": sweep_id})
        with transaction(self._sessions) as session:
            _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            made = once.made(session) if once else None
            if made and (earlier := sweep_runs.read_run(session, sweep_id, made)):
                return earlier
            _check_room(session, sweep_id, 1)
            run_id = new_run_id()
            sweep_runs.insert_run(session, run_id, sweep_id, "manual", store.now(session))
            if once:
                once.note(session, run_id)
            audit.note(session, actor(), "sweep.run", sweep_id, {"run": run_id}, tenant_id=tenant_id)
            return _found_run(sweep_runs.read_run(session, sweep_id, run_id), run_id)

    def backfill(self, tenant_id: str, sweep_id: str, start: datetime, end: datetime) -> Sequence[RunRow]:
        """A run for each due time from `start` to `end` (both included, past) that has none yet."""
        with transaction(self._sessions) as session:
            sweep = _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            if sweep.cron is None:
                raise RequestError("The sweep has no cron line.", param="sweep_id", code="no_due_times")
            until = min(end.astimezone(UTC), store.now(session))
            made: list[str] = []
            for due in _between(sweep.cron, sweep.zone, start, until):
                run_id = new_run_id()
                if sweep_runs.insert_run(session, run_id, sweep_id, "backfill", due):
                    made.append(run_id)
                if len(made) > MOST_WAITING:
                    break
            _check_room(session, sweep_id, 0)
            details = {"from": start.isoformat(), "to": end.isoformat(), "runs": len(made)}
            audit.note(session, actor(), "sweep.backfilled", sweep_id, details, tenant_id=tenant_id)
            found = [sweep_runs.read_run(session, sweep_id, run_id) for run_id in made]
        return [run for run in found if run is not None]

    def delete(self, tenant_id: str, sweep_id: str) -> None:
        """Let a sweep be gone, with its runs; their batches stay, those that are open are cancelled."""
        with transaction(self._sessions) as session:
            _found(store.read_sweep(session, tenant_id, sweep_id, lock=True), sweep_id)
            store.mark_deleted(session, sweep_id)
            audit.note(session, actor(), "sweep.deleted", sweep_id, tenant_id=tenant_id)
            # All at once: whoever dies behind it would leave batches that run for nobody.
            for batch_id in sweep_runs.cancel_runs(session, sweep_id):
                start_to_cancel(session, tenant_id, batch_id)
        log.info("sweep_deleted", sweep=sweep_id)

    def runs(self, tenant_id: str, sweep_id: str, *, limit: int, after: str | None) -> Page[RunRow]:
        """Newest first."""
        with transaction(self._sessions) as session:
            _found(store.read_sweep(session, tenant_id, sweep_id), sweep_id)
            cursor = _found_run(sweep_runs.read_run(session, sweep_id, after), after) if after else None
            rows = sweep_runs.list_runs(session, sweep_id, limit=limit + 1, after=cursor)
        return page_of(rows, limit)

    def read_run(self, tenant_id: str, sweep_id: str, run_id: str) -> RunRow:
        with transaction(self._sessions) as session:
            _found(store.read_sweep(session, tenant_id, sweep_id), sweep_id)
            return _found_run(sweep_runs.read_run(session, sweep_id, run_id), run_id)

    def diff(
        self, tenant_id: str, sweep_id: str, run_id: str, *, limit: int, after: tuple[str, str]
    ) -> Page[ChangeRow]:
        """Answers of a run that are other than those before it, by item and question behind `after`."""
        self.read_run(tenant_id, sweep_id, run_id)
        with transaction(self._sessions) as session:
            rows = sweep_items.list_changes(session, run_id, after=after, limit=limit + 1)
        return page_of(rows, limit)

    def _check(self, values: Mapping[str, Any]) -> None:
        """Everything that can be told before a run."""
        if values["cron"] is not None:
            check_cron(values["cron"], values["zone"])
        self._sources.check(values["source"])
        asking = Asking(values)
        for at, question in enumerate(values["questions"]):
            self._sources.check_columns(
                values["source"], asking.columns_of(question["name"]), param=f"questions[{at}].ask"
            )
            try:
                parse_chat_body(request_body(SAMPLE, question, values), self._rules)
            except RequestError as error:
                error.param = _place(at, error.param, values["body"])
                raise
        self._check_batch(values)
        if (to := values["destination"]) is not None:
            self._check_bucket(to["prefix"])

    def _check_batch(self, values: Mapping[str, Any]) -> None:
        """What batches take, and what cannot do anything for these questions."""
        wishes = values["batch"] or {}
        if (cascade := wishes.get("cascade")) is not None:
            first = self._batches.check_cascade(cascade, within="batch.")["model"]
            if first == self._rules.model({"model": values["model"]}).name:
                message = (
                    f"The sweep asks {values['model']!r} itself: a cascade asks another model before it. "
                    "Name a smaller one, or leave the cascade out."
                )
                raise RequestError(message, param="batch.cascade.model", code="invalid_value")
        near = wishes.get("near_duplicates") is not None
        if (near or wishes.get("cache") in ("on", "read", "write")) and not is_repeatable(values["body"]):
            name = "near_duplicates" if near else "cache"
            message = (
                f"{name} is about kept answers, and none is kept at a temperature above 0: "
                f"leave the temperature out of body, or {name} out of batch."
            )
            raise RequestError(message, param=f"batch.{name}", code="invalid_value")

    def _check_bucket(self, prefix: str) -> None:
        try:
            place = read_place(prefix)
        except RequestError as error:
            message = "The destination is none: write s3://bucket/prefix."
            raise RequestError(message, param="destination.prefix", code="invalid_value") from error
        if place.bucket not in self._buckets:
            message = (
                f"Answers are not written to the bucket {place.bucket!r}; "
                "the operator can allow it in VQUEUE_SWEEP_BUCKETS."
            )
            raise RequestError(message, param="destination.prefix", code="blocked_bucket")


def _once(tenant_id: str, kind: str, key: str | None, said: Mapping[str, Any]) -> Once | None:
    return Once(tenant_id, kind, key, hash_request(dict(said))) if key else None


def _place(at: int, param: str | None, body: Mapping[str, Any]) -> str:
    """Which field of the sweep a complaint about the request for its question `at` is about."""
    if param is None:
        return f"questions[{at}]"
    if param == "model":
        return param
    return (
        f"body.{param}" if param.partition(".")[0].partition("[")[0] in body else f"questions[{at}]: {param}"
    )


def _check_policy(sweep: SweepRow, changes: Mapping[str, Any]) -> None:
    same_version = changes.get("policy_version", sweep.policy_version) == sweep.policy_version
    asked = changes.get("questions")
    other = [name for name in POLICY[1:] if name in changes and changes[name] != getattr(sweep, name)]
    if asked is not None and changed_questions(sweep.questions, asked):
        other.insert(0, POLICY[0])
    if other and same_version:
        raise RequestError(
            f"{' and '.join(other)} change what is answered: give the sweep a new policy_version with them, "
            f"other than {sweep.policy_version!r}.",
            param="policy_version",
            code="policy_version_unchanged",
        )


def _first_due(cron: str | None, zone: str, now: datetime) -> datetime | None:
    return next_due(cron, zone, now) if cron is not None else None


def _between(cron: str, zone: str, start: datetime, end: datetime) -> Sequence[datetime]:
    times = due_times(cron, zone, start.astimezone(UTC) - timedelta(seconds=1))
    found = list(islice(takewhile(lambda due: due <= end, times), MOST_DUE + 1))
    if len(found) > MOST_DUE:
        message = f"There are over {MOST_DUE:,} due times between these: ask for fewer at once."
        raise RequestError(message, param="from", code="too_many_due_times")
    return found


def _check_room(session: Session, sweep_id: str, more: int) -> None:
    if sweep_runs.count_waiting(session, sweep_id) + more > MOST_WAITING:
        message = (
            f"A sweep may have {MOST_WAITING:,} runs that wait: ask for fewer, or wait until some are done."
        )
        raise Overloaded(message, code="too_many_runs", retry_after_s=60)


def _found(sweep: SweepRow | None, sweep_id: str) -> SweepRow:
    if sweep is None:
        raise NotFound(f"No sweep has the id {sweep_id!r}.", param="sweep_id", code="sweep_not_found")
    return sweep


def _found_run(run: RunRow | None, run_id: str) -> RunRow:
    if run is None:
        raise NotFound(f"No run of this sweep has the id {run_id!r}.", param="run_id", code="run_not_found")
    return run


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a sweep named {name!r} already.", param="name", code="sweep_name_taken")
