"""`vqueue api`, `dispatcher`, `fetcher`, `worker`: the long-running processes, each by its module's main."""

import importlib
from collections.abc import Callable

import typer

from app.cli.settings import checked_settings

# Named, not imported: the API's image lacks torch, and `app` never imports `workers`.
MODULES = {
    "api": ("app.main", "Serve the HTTP API."),
    "dispatcher": ("app.dispatcher", "Send ready jobs to the workers, take back lost ones, finish batches."),
    "fetcher": ("workers.fetcher", "Download the images that jobs name by URL."),
    "worker": ("workers.main", "Load the model and answer jobs."),
}


def mount(app: typer.Typer) -> None:
    for name, (module, help_text) in MODULES.items():
        app.command(name, help=help_text)(_runner(module))


def _runner(module: str) -> Callable[[], None]:
    def run() -> None:
        checked_settings()
        importlib.import_module(module).main()

    return run
