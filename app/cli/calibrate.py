"""`vqueue calibrate`: how sure a small model must be before a large one need not be asked."""

import importlib
import json
from pathlib import Path
from typing import Annotated

import typer

from app import telemetry
from app.calibration import Judged, Trial, curve, split
from app.calibration import calibrate as learn
from app.cascade import Cascade
from app.cli.compare import MODEL_HELP, settings_of
from app.cli.keys import aligned
from app.cli.settings import checked_settings
from app.config import Settings
from app.errors import RequestError, WorkError

# Named, not imported: the API's image lacks torch, and `app` never imports `workers`.
MODULE = "workers.calibrate"
MOST_POINTS = 12


def calibrate(
    sample: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help='Batch lines with "metadata": {"label": ...}.'),
    ],
    small: Annotated[str, typer.Option(help=f"Asked first. {MODEL_HELP}")],
    large: Annotated[str, typer.Option(help="Asked where that is unsure.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the cascade for a batch here, as JSON.")],
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="How much accuracy may be lost: 0.005 is half a point.")
    ] = 0.005,
) -> None:
    """Learn on half of a labelled sample when a small model's answer can be taken, and judge on the other.

    Both models run here, one after the other. `model` in the file is the small one's name as it was given:
    it must be a name that the service serves.
    """
    settings = checked_settings()
    telemetry.configure_logs(log_format="console", level="WARNING")
    sides = settings_of("--small", small, settings), settings_of("--large", large, settings)
    trials = _trials(sample, sides, settings)
    try:
        cascade, judged = learn(small, trials, tolerance=tolerance)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="SAMPLE") from error
    out.write_text(json.dumps(cascade.stored()) + "\n")
    if judged.model_s_ratio >= 1:
        typer.echo("This cascade saves no model time: ask the large model alone.", err=True)
    for line in [*_table(trials, cascade), "", _last_line(cascade, judged)]:
        typer.echo(line)


def _trials(sample: Path, sides: tuple[Settings, Settings], settings: Settings) -> list[Trial]:
    module = importlib.import_module(MODULE)
    try:
        return module.run_trials(module.read_labelled(sample, settings), *sides)
    except (RequestError, WorkError) as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(1) from error


def _table(trials: list[Trial], cascade: Cascade) -> list[str]:
    """The curve on the test set: what other thresholds would do."""
    points = curve(split(trials)[1], cascade.steps)
    step = max(1, len(points) // MOST_POINTS)
    rows = [[f"{point.threshold:.3f}", *_shares(point.judged)] for point in [*points[:-1:step], points[-1]]]
    return aligned([["threshold", "escalated", "accuracy", "model s against the large one's"], *rows])


def _shares(judged: Judged) -> list[str]:
    return [f"{judged.escalated:.3f}", f"{judged.cascade_accuracy:.4f}", f"{judged.model_s_ratio:.3f}"]


def _last_line(cascade: Cascade, judged: Judged) -> str:
    return (
        f"calibrate: threshold={cascade.threshold:.4f} judged_on={judged.questions} "
        f"small={judged.small_accuracy:.4f} large={judged.large_accuracy:.4f} "
        f"cascade={judged.cascade_accuracy:.4f} escalated={judged.escalated:.3f} "
        f"agreement={judged.agreement:.3f} model_s_ratio={judged.model_s_ratio:.3f}"
    )
