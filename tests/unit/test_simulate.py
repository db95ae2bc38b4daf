"""The simulator: no job is lost or invented, bounds hold, and more GPUs do not make it slower."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from app.planner import Demand, Lane, share
from app.states import Priority
from simulate.__main__ import main, read_options
from simulate.arrivals import Arrivals, poisson
from simulate.books import Cohort, Line, Waits
from simulate.loop import Outcome, Setup, Simulation, fair_shares
from simulate.policies import choose, fixed_fleet
from simulate.steps import BadSteps, Question, StepTimes, between, read_steps, steps_of
from simulate.world import DAY_S, HOUR_S, OFFICE_HOURS, Plant, QueueRules, Traffic

QUESTION = Question(own_tokens=80, answer_tokens=10, picture_tokens=260, visual_tokens=256)
FILE = {
    "name": "a file",
    "kind": "assumed",
    "about": "for tests",
    "decode": [[1, 0.02], [128, 0.03]],
    "prompt": [[0, 0.0], [2048, 0.1]],
    "encode": [[256, 0.005]],
    "prepare_s": 0.01,
    "load_s": 60,
}
STEPS = steps_of(FILE)
QUICK = Plant(provision_s=60, pull_s=20, load_s=30, node_idle_s=120)
POLICIES = ("fixed", "cpu", "depth", "ours")
CHATS = Traffic("interactive", Priority.INTERACTIVE, QUESTION, 300, 0, HOUR_S, 120, random=True, expires=True)
SWEEP = Traffic("sweep", Priority.STANDARD, QUESTION, 20_000, 600, 60, 2 * HOUR_S, known=0.1)
NIGHTLY = Traffic("background", Priority.BACKGROUND, QUESTION, 5_000, 0, 600, 4 * HOUR_S)

policies = some.sampled_from(POLICIES)
sizes = some.integers(1, 12)
plants = some.builds(
    Plant,
    provision_s=some.floats(0, 120),
    pull_s=some.floats(0, 30),
    load_s=some.floats(1, 90),
    node_idle_s=some.sampled_from([0.0, 120.0]),
    spot_loss_per_hour=some.sampled_from([0.0, 5.0]),
    spot_notice_s=some.sampled_from([0.0, 120.0]),
)


def a_setup(policy: str = "ours", most: int = 4, **changes: object) -> Setup:
    first = Setup((SWEEP, CHATS, NIGHTLY), choose(policy, most), most, STEPS, plant=QUICK, until_s=2 * HOUR_S)
    first = replace(first, few_step_s=0.0)
    return replace(first, **changes)


def simulated(policy: str = "ours", most: int = 4, **changes: object) -> Outcome:
    return Simulation(a_setup(policy, most, **changes)).run()


def a_check_of_the_books(simulation: Simulation) -> None:
    for name, stream in simulation.streams.items():
        assert stream.came + simulation.arrivals[name].left == stream.traffic.jobs
        assert stream.came == stream.done + stream.expired + stream.waiting + stream.running
        held = sum(station.hand(stream).jobs for station in simulation.fleet.stations())
        assert stream.running == held
        assert min(stream.ready.jobs, stream.queued.jobs, stream.running, stream.lapsed) >= 0
        assert stream.answered.jobs == stream.done


@settings(max_examples=15, deadline=None)
@given(policy=policies, most=sizes, plant=plants, seed=some.integers(0, 9))
def test_at_every_step_each_job_is_in_one_place_and_nobody_has_too_many_workers(
    policy: str, most: int, plant: Plant, seed: int
) -> None:
    simulation = Simulation(a_setup(policy, most, plant=plant, seed=seed, step_s=10.0))
    while not simulation.is_over():
        simulation.step()
        a_check_of_the_books(simulation)
        assert 0 <= simulation.fleet.replicas <= most
        assert simulation.fleet.nodes <= most + simulation.fleet.lost
        queued = [
            one.queued.jobs
            for one in simulation.streams.values()
            if one is not simulation.streams["interactive"]
        ]
        assert sum(queued) <= simulation.setup.rules.window_jobs
    outcome = simulation.outcome()
    assert all(one.done + one.expired == one.traffic.jobs for one in outcome.streams.values())
    assert 0 <= outcome.busy_s <= outcome.node_s * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(policy=some.sampled_from(["fixed", "ours"]), most=sizes, seed=some.integers(0, 9))
def test_more_gpus_are_never_later_but_for_noise(policy: str, most: int, seed: int) -> None:
    few, many = (simulated(policy, gpus, seed=seed, step_s=10.0) for gpus in (most, most + 3))
    assert many.makespan_s("sweep") <= 1.05 * few.makespan_s("sweep") + 60


@pytest.mark.parametrize("notice_s", [0.0, 120.0])
def test_lost_nodes_cost_time_and_no_job(notice_s: float) -> None:
    plant = replace(QUICK, spot_loss_per_hour=20.0, spot_notice_s=notice_s)
    simulation = Simulation(a_setup("fixed", plant=plant, step_s=1.0))
    while not simulation.is_over():
        simulation.step()
        a_check_of_the_books(simulation)
    hit, calm = simulation.outcome(), simulated("fixed")
    assert hit.lost > 5
    assert hit.streams["sweep"].done == SWEEP.jobs
    assert hit.makespan_s("sweep") > calm.makespan_s("sweep")


def test_without_arrivals_scaling_to_zero_costs_nothing_and_a_fixed_fleet_all() -> None:
    nothing = (replace(SWEEP, jobs=0), replace(CHATS, jobs=0))
    assert simulated("ours", traffic=nothing).node_s == 0
    assert simulated("depth", traffic=nothing).node_s == 0
    assert simulated("fixed", traffic=nothing).node_s == 4 * 2 * HOUR_S
    assert simulated("cpu", traffic=nothing).highest == 1


def test_a_seed_gives_the_same_night_and_another_one_another() -> None:
    first, again, other = (simulated(seed=seed) for seed in (1, 1, 2))
    assert first.node_s == again.node_s
    assert first.streams["interactive"].answered.pairs == again.streams["interactive"].answered.pairs
    assert first.node_s != other.node_s


def test_one_gpu_works_as_fast_as_its_step_times_say() -> None:
    sweep = replace(SWEEP, start_s=0, known=0.0)
    outcome = simulated("fixed", 1, traffic=(sweep,), step_s=1.0)
    chunk = QueueRules().chunk_of(QUESTION)
    assert chunk == 64
    assert outcome.makespan_s("sweep") == pytest.approx(
        20_000 / STEPS.jobs_s(3.5 * chunk, QUESTION), rel=0.02
    )


def test_a_worker_that_leaves_hands_back_what_it_does_not_end_in_its_grace() -> None:
    simulation = Simulation(a_setup("fixed", 2, traffic=(replace(SWEEP, start_s=0),), step_s=1.0))
    simulation.step()
    simulation.setup = replace(simulation.setup, policy=fixed_fleet(1))
    simulation.scaler.policy = fixed_fleet(1)
    simulation.step()
    assert len(simulation.fleet.leaving) == 1
    assert simulation.fleet.leaving[0].station.jobs > 0
    for _ in range(40):
        simulation.step()
        a_check_of_the_books(simulation)
    assert simulation.fleet.leaving == []


def test_an_idle_node_is_used_again_and_spares_its_provisioning() -> None:
    simulation = Simulation(a_setup("fixed", 2))
    fleet = simulation.fleet
    fleet.wanted = 1
    fleet.follow(0.0)
    fleet.gone(0.0)
    fleet.wanted = 2
    fleet.follow(10.0)
    assert fleet.starting[0].node_s == 10.0


def test_chat_completions_leave_at_their_deadline_where_no_worker_is() -> None:
    never = replace(QUICK, provision_s=3000.0)
    outcome = simulated("ours", traffic=(CHATS,), plant=never)
    assert outcome.streams["interactive"].expired > 200


ready_jobs = some.lists(some.integers(0, 60), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(room=some.integers(0, 120), ready=ready_jobs, queued=ready_jobs)
def test_shares_are_the_dispatchers(room: int, ready: list[int], queued: list[int]) -> None:
    size = min(len(ready), len(queued))
    ready, queued = ready[:size], queued[:size]
    ours = fair_shares(room, queued, ready)
    lane = Lane("model")
    demands = [Demand(str(n), lane, float(n), (), ready=jobs, more=False) for n, jobs in enumerate(ready)]
    on_broker = {lane: {str(n): jobs for n, jobs in enumerate(queued)}}
    theirs = dict.fromkeys(range(size), 0)
    for demand, jobs in share(room + sum(queued), on_broker, demands):
        theirs[int(demand.tenant_id)] = jobs
    assert sum(ours) == sum(theirs.values())
    assert all(abs(ours[n] - theirs[n]) <= 1 for n in range(size))


@settings(max_examples=15, deadline=None)
@given(jobs=some.integers(0, 5000), step_s=some.sampled_from([5.0, 7.0, 60.0]), random=some.booleans())
def test_all_jobs_of_a_stream_come_and_no_more(jobs: int, step_s: float, random: bool) -> None:
    import random as numbers

    traffic = Traffic("day", Priority.STANDARD, QUESTION, jobs, 600, 7200, 60, OFFICE_HOURS, random=random)
    arrivals, now_s, came = Arrivals(traffic, numbers.Random(1)), 0.0, 0
    while now_s < DAY_S / 4:
        cohort = arrivals.step(now_s, step_s)
        came += cohort.jobs if cohort else 0
        now_s += step_s
    assert came == jobs


def test_poisson_numbers_have_their_mean() -> None:
    import random as numbers

    rng = numbers.Random(1)
    for mean in (0.2, 7.0, 300.0):
        assert sum(poisson(mean, rng) for _ in range(2000)) / 2000 == pytest.approx(mean, rel=0.1)


def test_a_line_serves_first_come_first_and_takes_back_at_its_head() -> None:
    line = Line()
    line.put([Cohort(0, 9, 3), Cohort(1, 9, 3)])
    first = line.take(4)
    assert [(one.arrived_s, one.jobs) for one in first] == [(0, 3), (1, 1)]
    line.put_back(first)
    assert [(one.arrived_s, one.jobs) for one in line] == [(0, 3), (1, 1), (1, 2)]
    assert line.jobs == 6


def test_a_quantile_counts_jobs_and_not_cohorts() -> None:
    waits = Waits()
    waits.add(1.0, 98)
    waits.add(50.0, 1)
    waits.add(99.0, 1)
    assert (waits.quantile(0.5), waits.quantile(0.99), waits.quantile(1.0)) == (1.0, 50.0, 99.0)
    assert waits.mean_s == pytest.approx(2.47)


def test_step_times_lie_on_lines_between_the_points_and_beyond() -> None:
    points = ((10.0, 1.0), (20.0, 3.0))
    assert [between(points, place) for place in (5, 10, 15, 30)] == [0.5, 1.0, 2.0, 5.0]


def test_more_rows_answer_more_and_shared_pictures_and_known_features_spare_work() -> None:
    shared = replace(QUESTION, per_picture=5)
    assert STEPS.jobs_s(1, QUESTION) < STEPS.jobs_s(16, QUESTION) <= STEPS.jobs_s(128, QUESTION)
    assert STEPS.jobs_s(128, QUESTION) == STEPS.jobs_s(500, QUESTION)
    assert STEPS.jobs_s(128, shared) > STEPS.jobs_s(128, QUESTION, cached=1.0) > STEPS.jobs_s(128, QUESTION)


@pytest.mark.parametrize("change", [{"decode": []}, {"decode": [[2, 1], [1, 1]]}, {"kind": "guessed"}])
def test_step_times_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadSteps):
        steps_of(FILE | change)


def test_the_files_of_step_times_say_whether_they_were_measured() -> None:
    folder = Path("simulate/data")
    assert read_steps(folder / "demo-cpu.json").measured
    assumed: StepTimes = read_steps(folder / "h200-assumed.json")
    assert assumed.summary.startswith("ASSUMED, not measured")


def test_the_command_prints_its_assumptions_a_table_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--gpus", "1", "2", "--images", "20000", "--day-jobs", "2000", "--step-s", "30"])
    text = capsys.readouterr().out
    assert text.index("ASSUMED") < text.index("GPUs") < text.index("simulate: images=20000 gpus=2 fixed_h=")
    assert all(f" {policy} " in text for policy in POLICIES)


def test_what_nobody_ever_answers_is_missed() -> None:
    outcome = simulated("fixed", most=0, step_s=3600.0)
    assert outcome.missed == sum(stream.came - stream.known for stream in outcome.streams.values())


@pytest.mark.parametrize(
    "words", ["--gpus -1", "--images -5", "--interactive 2", "--step-s 0", "--load-s nan", "--spot-loss inf"]
)
def test_numbers_that_make_no_sense_are_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        read_options(words.split())
