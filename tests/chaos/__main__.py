"""Runs the plan, or goes on with it: every job has one result, whatever dies while it runs."""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.plan import Progress, Report, RunPlan, last_line, read_progress
from tests.chaos.run import perform

BROKERS = ("rabbitmq", "redis")
JOBS = {"fake": 20_000, "demo": 2_000}


def main(argv: Sequence[str] | None = None) -> int:
    """0 if nothing was lost, doubled or late, and everything was struck often enough."""
    arguments = _arguments(argv)
    state = arguments.folder / "chaos.json"
    if state.exists() and not arguments.resume:
        print(f"{state} is of an earlier plan: use --resume, or another --folder", file=sys.stderr)
        return 2
    progress = read_progress(state) if state.exists() else Progress(plan_of(arguments), {})
    progress.write(state)
    for plan in progress.left():
        report = perform(plan, arguments.folder / plan.name, _say)
        progress.reports[plan.name] = report
        progress.write(state)
        _tell(report)
    reports = list(progress.reports.values())
    print(last_line(reports))
    return 1 if any(report.problems for report in reports) else 0


def plan_of(arguments: argparse.Namespace) -> list[RunPlan]:
    """Both brokers with the fake engine, and the demo model on RabbitMQ, unless one is asked for."""
    wanted = [("fake", "rabbitmq"), ("fake", "redis"), ("demo", "rabbitmq")]
    if arguments.engine:
        brokers = [arguments.broker] if arguments.broker else BROKERS
        wanted = [(arguments.engine, broker) for broker in brokers]
    elif arguments.broker:
        wanted = [(engine, arguments.broker) for engine in JOBS]
    return [
        RunPlan(
            broker=broker,
            engine=engine,
            jobs=arguments.jobs or JOBS[engine],
            strikes=arguments.strikes,
            seed=arguments.seed,
            lease_s=arguments.lease_s,
        )
        for engine, broker in wanted
    ]


def _tell(report: Report) -> None:
    _say(f"{report.name}: {report.jobs} jobs, {report.kills} strikes, {report.seconds:.0f} s")
    for problem in report.problems:
        _say(f"WRONG {report.name}: {problem}")


def _say(line: str) -> None:
    print(line, flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".chaos"), help="where servers and state lie")
    parser.add_argument("--resume", action="store_true", help="go on with the plan of the folder")
    parser.add_argument("--broker", choices=BROKERS, help="this one only")
    parser.add_argument("--engine", choices=tuple(JOBS), help="this one only")
    parser.add_argument("--jobs", type=int, help="of each run; 20,000 fake ones, 2,000 of the demo")
    parser.add_argument("--strikes", type=int, default=10, help="of each role, server and other kind")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(10**6),
        help="the inputs and strikes of a run that printed it",
    )
    parser.add_argument("--lease-s", type=float, default=6.0, help="the lease of the jobs")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
