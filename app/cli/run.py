"""`vqueue run`: a file of images and questions in, a file of answers out, in one line."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.asking import Asked, asking
from app.cli.following import Shown, follow, shown
from app.cli.keys import say
from app.cli.settings import find_client
from app.runs.base import WrongRun
from app.runs.failed import advice, tally
from app.runs.inputs import fingerprint
from app.runs.notebook import Notebook
from app.runs.own import Own
from app.runs.preflight import look_ahead
from app.runs.restore import Mender, restore
from app.runs.state import RunState, begin, digest, load, notebook_file, save, take_up
from app.runs.wish import Wish, hand_in, own_table, stamp
from vqueue import BadRequest, Batch, BatchFailed, Client, NotFound, VqueueError

FORMATS = ("csv", "parquet", "jsonl", "ndjson")
INTERRUPTED = 130
NOTHING_TO_RETRY = "nothing_to_retry"  # rows that were no requests would fail again


@dataclass
class Run:
    """A run on its way; `state` says how far it is, and is kept beside the output."""

    api: Client
    wish: Wish
    out: Path
    state: RunState
    show: Shown
    resumed: bool = False
    ended: bool = False
    refused: dict[str, str] = field(default_factory=dict)  # pictures that the service did not take

    @property
    def notebook(self) -> Notebook:
        return Notebook(notebook_file(self.out))

    def submit(self) -> None:
        """Hand the work in, unless this was done before."""
        if self.state.batch is not None:
            self.resumed = True
            typer.echo(f"going on with {self.state.batches[-1]} (--fresh starts anew)", err=True)
            return
        look_ahead(self.api, self.wish)
        save(self.out, self.state)  # its mark is kept before anything is made by it
        handed = hand_in(
            self.api,
            self.wish,
            self.notebook,
            say=say,
            sent=lambda done, total: self.show.tell("pictures sent", done, total),
            refused=self.refused,
        )
        batch = self.api.create_batch(
            handed.input_file_id,
            table=handed.table,
            completion_window=self.wish.window,
            strict=self.wish.strict,
            cache=self.wish.cache,
            cascade=self.wish.cascade,
            near_duplicates=self.wish.near_duplicates,
            idempotency_key=f"run-{self.state.mark}",
        )
        self._note(batch)

    def retry(self) -> None:
        """What has no answer, once more, unless a retry of it runs already."""
        last = self.api.batch(self.state.batches[-1])
        if not last.ended or not last.request_counts.failed:
            return
        try:
            batch = self.api.retry(
                last.id,
                states=("failed", "expired", "cancelled"),
                idempotency_key=f"retry-{self.state.mark}-{len(self.state.batches)}",
            )
        except BadRequest as error:
            if error.code != NOTHING_TO_RETRY:
                raise
            say(error.message)
        else:
            self._note(batch)

    def finish(self) -> list[Batch]:
        """Wait for the end, and write the output; the batch and its retries."""
        batches = [follow(self.api, self.state.batches[-1], self.show)]
        self.ended = True
        batches = [*map(self.api.batch, self.state.batches[:-1]), *batches]
        self._refuse_unread(batches[-1])
        self.api.export(batches[0].id, self.out)
        if own := self.own_table():
            restore(self.out, Mender(self.notebook.sent(), own))
        self.state = replace(self.state, done=True)
        save(self.out, self.state)
        return batches

    def own_table(self) -> Own | None:
        return own_table(self.wish, self.refused)

    def _refuse_unread(self, batch: Batch) -> None:
        """BatchFailed where the input did not pass: there is nothing to write, and nothing to go on with."""
        if not batch.unread:
            return
        save(self.out, begin(api=self.state.api, input=self.state.input, asked=self.state.asked))
        raise BatchFailed(batch.id, batch.reasons)

    def _note(self, batch: Batch) -> None:
        self.state = self.state.with_batch(batch.id)
        save(self.out, self.state)


@asking
def run(
    asked: Asked,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the answers go: a .csv, .parquet, .jsonl or .ndjson.")
    ],
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Try again what has no answer, and write all anew.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew, whatever was begun for this file.")
    ] = False,
) -> None:
    """Ask questions about images and write the answers to a file, with the table that they are about.

    Interrupted, the batch goes on by itself; the same command takes it up again. Where it is stands in a file
    beside the output. The last line has the counts; the exit code is 1 if something has no answer, 2 if the
    command is wrong, 130 if it was interrupted.
    """
    with told(), closing(find_client(asked.data)) as api, shown() as show:
        wish = asked.wish()
        state = _state(api, wish, out, fresh=fresh, only_failed=only_failed)
        if only_failed and not state.batches:
            raise WrongRun(f"--only-failed: nothing was run for {out} yet, with this input and these options")
        work = Run(api, wish, out, state, show)
        with _interruptible(work):
            work.submit()
            if only_failed:
                work.retry()
            batches = work.finish()
            questions = 0 if not (wish.questions or wish.question_column) else len(wish.questions) or 1
            own = work.own_table()
            found = tally(api, batches, questions=questions, own=own.reasons if own else _nothing)
    for line in found.listed:
        say(line)
    if found.failed > len(found.listed):
        typer.echo(f"and {found.failed - len(found.listed):,} more", err=True)
    for line in advice(found):
        typer.echo(line, err=True)
    typer.echo(f"{found} out={out}")
    raise typer.Exit(1 if found.failed else 0)


def _nothing(_rows: set[int]) -> dict[int, str]:
    return {}


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong ends the command with a line instead of a trace."""
    try:
        yield
    except WrongRun as error:
        say(str(error))
        raise typer.Exit(2) from error
    except (VqueueError, OSError) as error:
        say(str(error))
        raise typer.Exit(1) from error


@contextmanager
def _interruptible(work: Run) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if work.ended:
            say(f"{work.state.batches[-1]} has ended: the same command writes {work.out}")
        elif work.state.batches:
            last = work.state.batches[-1]
            say(f"{last} goes on by itself: the same command takes it up, `vqueue cancel {last}` stops it")
        else:
            say("nothing was handed in yet: the same command goes on with the pictures that were not sent")
        raise typer.Exit(INTERRUPTED) from None
    except NotFound as error:
        if not work.resumed or error.code not in (None, "batch_not_found"):
            raise
        raise WrongRun(f"{str(error).rstrip('.')}: --fresh starts anew") from error


def _state(api: Client, wish: Wish, out: Path, *, fresh: bool, only_failed: bool) -> RunState:
    if out.suffix.lower().lstrip(".") not in FORMATS:
        raise WrongRun(f"-o {out}: the name must end in {', '.join(f'.{one}' for one in FORMATS)}")
    if not out.parent.is_dir():
        raise WrongRun(f"-o {out}: there is no folder {out.parent}")
    if wish.source.path is not None and out.exists() and out.samefile(wish.source.path):
        raise WrongRun(f"-o {out} is the input itself: choose another name")
    # The questions as they are asked, not where a file of theirs lies.
    chosen = {name: value for name, value in asdict(wish).items() if name != "source"}
    dialect = [wish.source.delimiter, wish.source.encoding]
    handed = fingerprint(wish.source) + stamp(wish)
    now = begin(api=api.url, input=handed, asked=digest([chosen, dialect]))
    return take_up(None if fresh else load(out), now, out, fresh=fresh, only_failed=only_failed)
