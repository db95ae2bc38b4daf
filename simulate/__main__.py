"""Simulates nights of a scaled deployment, policy by policy and size by size, and prints a table."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simulate import report
from simulate.loop import Setup, Simulation
from simulate.policies import POLICIES, choose
from simulate.steps import DATA, BadSteps, Question, StepTimes, read_steps
from simulate.validate import validate
from simulate.world import Plant, Prices, night

# Assumed: pictures of 512 x 512, a question behind instructions, a verdict of a few words.
QUESTION = Question(own_tokens=80, answer_tokens=10, picture_tokens=260, visual_tokens=256)


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    if options.validate:
        print(validate(options.real))
        return
    try:
        steps = read_steps(options.steps)
    except BadSteps as error:
        sys.exit(f"simulate: {error}")
    prices = Prices()
    price = prices.spot if options.spot else prices.on_demand
    started = time.process_time()
    setups = list(setups_of(options, steps))
    print(f"Assumptions:\n{report.assumptions(setups[0], prices, spot=options.spot)}")
    for policy in options.policies:
        print(f"  policy {policy}: {choose(policy, max(options.gpus)).about}")
    outcomes = [Simulation(setup).run() for setup in setups]
    print(f"\n{report.table(outcomes, price)}\n")
    if options.json:
        options.json.write_text(json.dumps([report.as_json(one, price) for one in outcomes], indent=1) + "\n")
    print(report.last_line(outcomes, options.images, time.process_time() - started, price))


def whole(text: str) -> int:
    """For argparse, which tells of a ValueError by this name."""
    if (value := int(text)) < 0:
        raise ValueError
    return value


def amount(text: str) -> float:
    if not 0 <= (value := float(text)) < math.inf:
        raise ValueError
    return value


def more_than_none(text: str) -> float:
    if (value := amount(text)) == 0:
        raise ValueError
    return value


def share(text: str) -> float:
    if (value := amount(text)) > 1:
        raise ValueError
    return value


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    add = parser.add_argument
    add("--gpus", type=whole, nargs="+", default=[1, 4, 16, 64], help="the most there are, size by size")
    add("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    add("--images", type=whole, default=10_000_000, help="of the nightly sweep")
    add("--day-jobs", type=whole, default=1_000_000, help="of the day around it")
    add("--interactive", type=share, default=0.05, help="the share of these that are chat completions")
    add("--steps", type=Path, default=DATA / "h200-assumed.json", help="a file of step times")
    add("--load-s", type=amount, help="to load the model, in place of the file's")
    add("--cpu-busy", type=amount, default=Plant.cpu_busy, help="cores that a busy worker uses")
    add("--spot", action="store_true", help="nodes are cheaper, and are lost now and then")
    add("--spot-loss", type=amount, default=0.05, help="losses of a node per hour; assumed")
    add("--step-s", type=more_than_none, default=5.0, help="seconds of a simulated step")
    add("--seed", type=int, default=1)
    add("--validate", action="store_true", help="compare with recorded real runs instead")
    add("--real", type=Path, default=DATA / "real", help="their folder, as simulate.real writes it")
    add("--json", type=Path, help="write all figures to a file as well")
    return parser.parse_args(arguments)


def setups_of(options: argparse.Namespace, steps: StepTimes) -> Iterator[Setup]:
    plant = Plant(
        load_s=steps.load_s if options.load_s is None else options.load_s,
        cpu_busy=options.cpu_busy,
        spot_loss_per_hour=options.spot_loss if options.spot else 0.0,
    )
    traffic = night(
        images=options.images,
        day_jobs=options.day_jobs,
        interactive=options.interactive,
        question=QUESTION,
    )
    first = Setup(
        traffic, choose("fixed", 1), 1, steps, plant=plant, step_s=options.step_s, seed=options.seed
    )
    for most in options.gpus:
        for policy in options.policies:
            yield replace(first, policy=choose(policy, most), most=most)


if __name__ == "__main__":
    main()
