"""The simulator's words: assumptions, a table of the policies, the line for scripts. Pure."""

from collections.abc import Iterable, Sequence

from simulate.loop import Outcome, Setup
from simulate.world import HOUR_S, Prices, Traffic

HEADINGS = (
    "GPUs",
    "policy",
    "sweep h",
    "GPU-h",
    "cost $",
    "busy",
    "missed",
    "chat p50",
    "p95 s",
    "most",
    "changes",
)
WIDTHS = (5, 8, 8, 8, 8, 6, 9, 9, 8, 5, 8)


def assumptions(setup: Setup, prices: Prices, *, spot: bool) -> str:
    """Everything that a table rests on, line by line."""
    lines = [
        f"step times {setup.steps.name}, {setup.steps.summary}",
        *map(_traffic, setup.traffic),
        "hour 0 is 18:00; what misses its deadline is answered late, chat completions leave after theirs",
        *_plant(setup),
        _price(setup, prices, spot=spot),
    ]
    return "\n".join(f"  {line}" for line in lines)


def _traffic(traffic: Traffic) -> str:
    asked = traffic.question
    due = f"{traffic.within_s:g} s later" if traffic.due_s is None else f"at hour {traffic.due_s / HOUR_S:g}"
    hours = f"over {traffic.over_s / HOUR_S:.1f} h from hour {traffic.start_s / HOUR_S:g}"
    known = f"{traffic.known:.0%} known to the answer cache, features of {traffic.cached:.0%} known"
    tokens = (
        f"{asked.visual_tokens:g} visual, {asked.own_tokens:g} of text, {asked.answer_tokens:g} of answer"
    )
    jobs = f"{traffic.jobs:,} {traffic.priority} jobs"
    return f"{traffic.name}: {jobs} {hours}, due {due}; {known}; tokens {tokens}"


def _plant(setup: Setup) -> list[str]:
    plant, rules = setup.plant, setup.rules
    return [
        f"queue: window {rules.window_jobs} jobs, chunks of {rules.chunk_jobs} jobs or "
        f"{rules.chunk_visual_tokens} visual tokens, {rules.seats} chunks a worker, "
        f"{rules.dispatch_jobs_s:g} jobs/s dispatched, drain {rules.drain_s:g} s, lease {rules.lease_s:g} s",
        f"pods: node {plant.provision_s:g} s, image {plant.pull_s:g} s, load {plant.load_s:g} s, each "
        f"{plant.jitter:.0%} more or less; an idle node stays {plant.node_idle_s:g} s, and is paid from its "
        "request to its end",
        f"CPU: a busy worker uses {plant.cpu_busy:g} cores of the {plant.cpu_request:g} that it requests",
    ]


def _price(setup: Setup, prices: Prices, *, spot: bool) -> str:
    if not spot:
        return f"price: ${prices.on_demand:g} a GPU-hour on demand"
    plant = setup.plant
    return (
        f"price: ${prices.spot:g} a GPU-hour on spot; a node is lost {plant.spot_loss_per_hour:g} times an "
        f"hour, {plant.spot_notice_s:g} s after the news"
    )


def table(outcomes: Iterable[Outcome], price: float) -> str:
    """A line for each, the sizes apart."""
    rows = [_row(HEADINGS)]
    size = 0
    for outcome in outcomes:
        if size and outcome.most != size:
            rows.append("")
        size = outcome.most
        rows.append(_row(cells(outcome, price)))
    return "\n".join(rows)


def cells(outcome: Outcome, price: float) -> list[str]:
    chats = outcome.streams["interactive"].answered
    return [
        str(outcome.most),
        outcome.policy,
        f"{outcome.makespan_s('sweep') / HOUR_S:.2f}",
        f"{outcome.gpu_hours:.1f}",
        f"{outcome.gpu_hours * price:.0f}",
        f"{outcome.utilisation:.0%}",
        f"{outcome.missed}",
        f"{chats.quantile(0.5):.2f}",
        f"{chats.quantile(0.95):.2f}",
        str(outcome.highest),
        str(outcome.events),
    ]


def _row(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def last_line(outcomes: Sequence[Outcome], images: int, cpu_s: float, price: float) -> str:
    """Ours beside the others at the largest size that was simulated."""
    size = max(outcome.most for outcome in outcomes)
    there = {outcome.policy: outcome for outcome in outcomes if outcome.most == size}
    parts = [f"images={images}", f"gpus={size}"]
    for name, outcome in there.items():
        parts.append(f"{name}_h={outcome.makespan_s('sweep') / HOUR_S:.2f}")
        parts.append(f"{name}_gpu_h={outcome.gpu_hours:.1f}")
        parts.append(f"{name}_usd={outcome.gpu_hours * price:.0f}")
        parts.append(f"{name}_missed={outcome.missed}")
    return " ".join(["simulate:", *parts, f"cpu_s={cpu_s:.1f}"])


def as_json(outcome: Outcome, price: float) -> dict[str, object]:
    """All figures of one simulation."""
    return {
        "gpus": outcome.most,
        "policy": outcome.policy,
        "sweep_h": outcome.makespan_s("sweep") / HOUR_S,
        "gpu_h": outcome.gpu_hours,
        "usd": outcome.gpu_hours * price,
        "utilisation": outcome.utilisation,
        "missed": {name: stream.missed + stream.open_jobs for name, stream in outcome.streams.items()},
        "answered_p50_s": {name: stream.answered.quantile(0.5) for name, stream in outcome.streams.items()},
        "answered_p95_s": {name: stream.answered.quantile(0.95) for name, stream in outcome.streams.items()},
        "changes": outcome.events,
        "most": outcome.highest,
        "lost": outcome.lost,
    }
