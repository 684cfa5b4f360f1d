"""The experiments: what their record holds, what their tables and pictures show, and every claim of the text."""

import math
from statistics import mean, stdev

import build
import lab16_llm_rl as solution
import pytest
from calibrate import BANDS
from going_further import record
from matplotlib.collections import LineCollection

from labutils import going_further, sweep
from labutils.checkpoints import read_json
from labutils.experiment_plots import by_digits, curves, frontier, label
from labutils.experiments import Exercises, Outcome, RunSettings
from labutils.going_further import EXPERIMENTS, RECORD, course_rows, groups, numbers, run_experiment, table
from labutils.sweep import Row
from labutils.tolerance import bands, deviations

SEEDS = 8
experiments = pytest.mark.parametrize("name", EXPERIMENTS)


def test_the_record_and_the_bands_are_made_from_the_sweeps():
    assert read_json(RECORD) == record.record(), "run `python benchmarks/going_further/record.py`"
    assert read_json(BANDS)["any"] == record.bands_of_all(), "run `python benchmarks/going_further/record.py`"


@experiments
def test_eight_seeds_stand_behind_every_setting(name):
    for found in groups(name, course_rows(name)).values():
        assert sorted(row.settings.seed for row in found) == list(range(SEEDS))


@experiments
def test_the_bands_are_of_the_runs_in_the_notebook(name):
    labels = [label(settings, EXPERIMENTS[name].varied) for settings in record.notebook_runs(name)]
    assert bands("full", name) == bands("quick", name)
    assert sorted(bands("full", name)) == sorted(labels)


@experiments
def test_a_tables_numbers_are_those_of_the_runs_and_lie_in_the_bands(name):
    """Of seed 0, which the notebook runs; a number of another setting is outside."""
    labels = {label(settings, EXPERIMENTS[name].varied) for settings in record.notebook_runs(name)}
    rows = [found[0] for key, found in groups(name, record.rows_of(name)).items() if key in labels]
    shown = table(name, rows)
    assert deviations(shown.table, shown.bands) == []
    assert set(shown.table) == labels
    metric = EXPERIMENTS[name].metrics[-1]
    for row in rows:
        assert shown.table[label(row.settings, EXPERIMENTS[name].varied)][metric] == row.last[metric]


def row(seed=0, history=None, **settings):
    return Row(RunSettings(seed=seed, **settings), {}, Outcome(history or {0: {"accuracy": 0.0}}, []))


@pytest.mark.parametrize(
    ("rates", "step"),
    [
        ([0.1, 0.3, 0.7], 15.0),
        ([0.5, 0.6, 0.9], 0.0),
        ([0.1, 0.6, 0.2], 8.0),
        ([0.1, 0.2, 0.3], 20.0),
        ([0.9] * 3, 20.0),
    ],
)
def test_the_take_off_is_where_the_rate_passes_one_half(rates, step):
    found = row(history={10 * i: {"writes_states": rate} for i, rate in enumerate(rates)}).take_off
    assert found == pytest.approx(step)


def test_a_metric_that_a_run_lacks_is_left_out_of_the_table():
    history = {0: {"accuracy": 0.5, "length_right": 4.0}}
    assert numbers("length", [row(history=history, estimator="grpo")]) == {
        "estimator grpo": {"length_right": 4.0, "accuracy": 0.5}
    }


def test_an_experiment_is_computed_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exercises = Exercises.of_module(solution)
    sizes = {"steps": 1, "problems": 1, "evaluation_problems": 1, "evaluate_every": 1}
    runs = [RunSettings(**sizes, seed=seed) for seed in (1, 0)]
    first = run_experiment(runs, exercises)
    assert [row.settings for row in first] == runs
    assert going_further.RESULTS.exists()
    monkeypatch.setattr(sweep, "_compute", lambda *_: pytest.fail("it was computed again"))
    assert run_experiment(runs, exercises) == first


def test_curves_are_means_with_bands_and_own_runs_are_dots():
    those = [row(seed, {0: {"accuracy": 0.1}, 5: {"accuracy": 0.2 + 0.1 * seed}}) for seed in range(3)]
    own = [row(7, {0: {"accuracy": 0.0}, 5: {"accuracy": 0.9}})]
    picture = curves({"a": those}, ["accuracy"], {"a": own, "b": own})
    (axis,) = picture.figure.axes
    line, dots, others = axis.lines
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.3])
    assert (list(dots.get_ydata()), dots.get_color()) == ([0.0, 0.9], line.get_color())
    assert others.get_color() != line.get_color()
    (band,) = axis.collections
    assert band.get_paths()[0].get_extents().ymax == pytest.approx(0.4)
    assert [text.get_text() for text in picture.figure.legends[0].texts] == ["a", "b"]


def test_a_metric_that_is_missing_at_a_step_leaves_a_gap():
    those = [row(0, {0: {"length_wrong": 3.0}, 5: {}}), row(1, {0: {"length_wrong": 5.0}, 5: {"length_wrong": 9.0}})]
    (axis,) = curves({"a": those}, ["length_wrong"]).figure.axes
    assert list(axis.lines[0].get_ydata()) == [4.0, 9.0]


def test_by_digits_shows_the_last_step():
    last = {f"{metric}_{n}": n / 10 for n in range(2, 9) for metric in ("writes_states", "accuracy")}
    picture = by_digits({"a": [row(0, {0: {}, 5: last}), row(1, {0: {}, 5: last})]}, {"b": [row(0, {9: last})]})
    for axis in picture.figure.axes:
        assert [list(line.get_ydata()) for line in axis.lines] == [[n / 10 for n in range(2, 9)]] * 2
        assert isinstance(axis.collections[0], LineCollection)
    assert "2 settings" in picture.alt


def test_the_frontier_marks_every_run():
    runs = [row(seed, {9: {"kl": seed, "accuracy": 0.5, "writes_states": 0.1}}) for seed in range(3)]
    picture = frontier({"a": runs}, {"b": runs[:1]})
    assert [list(line.get_xdata()) for line in picture.figure.axes[0].lines if len(line.get_xdata())] == [
        [0, 1, 2],
        [0],
    ]


# The claims of the text. What holds for each of eight seeds would come with probability 1 / 256, if a seed went either
# way with equal chances.


def values(experiment, metric, **settings):
    return list(build.seed_values(experiment, metric, **settings).values())


def onward(rate, estimator):
    return values("rare", "take_off", pretraining="onward", worked_rate=rate, estimator=estimator)


def test_claim_rarity_delays_the_take_off_and_no_estimator_misses_it():
    for estimator in ("reinforce", "rloo", "grpo", "dr_grpo"):
        ten, one, tenth = (onward(rate, estimator) for rate in (0.1, 0.01, 0.001))
        assert max(ten) < min(one) <= max(one) < min(tenth) <= max(tenth) < 200


def test_claim_what_was_learned_badly_is_unlearned():
    for row in course_rows("rare"):
        if row.settings.pretraining == "scratch":
            assert max(metrics["writes_states"] for metrics in row.history.values()) < 0.02
            assert row.last["writes_states"] < 0.002


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("estimator", ["reinforce", "rloo", "dr_grpo"])
def test_claim_grpo_takes_off_last(rate, estimator):
    assert all(one < grpo for one, grpo in zip(onward(rate, estimator), onward(rate, "grpo"), strict=True))


def test_claim_only_cost_and_temperature_together_break_the_habit():
    def writes(digits, **settings):
        return values("habit", f"writes_states_{digits}", **settings)

    assert min(writes(2, length_cost=0.02)) > 0.99
    assert min(writes(2, length_cost=0.07)) > 0.8
    assert min(writes(2, length_cost=0.07, entropy_bonus=0.2)) > 0.8
    assert min(writes(2, length_cost=0.02, temperature=1.5, entropy_bonus=0.05)) > 0.99
    for bonus in (0.0, 0.05, 0.2):
        broken = {"length_cost": 0.07, "temperature": 1.5, "entropy_bonus": bonus}
        assert max(writes(2, **broken)) < 0.4
        assert min(writes(4, **broken)) > 0.95
        assert min(writes(8, **broken)) > 0.9
    assert max(writes(2, length_cost=0.1)) < 0.1
    assert max(writes(8, length_cost=0.1)) < 0.9
    assert max(values("habit", "accuracy", length_cost=0.1)) < min(values("habit", "accuracy", length_cost=0.07))


def test_claim_a_weak_verifier_is_satisfied_without_solving():
    assert min(values("hacking", "reward", verifier="form")) > 0.99
    assert max(values("hacking", "accuracy", verifier="form")) < 0.2
    assert min(values("hacking", "reward", verifier="anywhere", length_cost=0.02)) > 0.95
    assert max(values("hacking", "accuracy", verifier="anywhere", length_cost=0.02)) < 0.02
    by_chance = values("hacking", "accuracy", verifier="anywhere")
    assert min(by_chance) < 0.2
    assert max(by_chance) > 0.9


def test_claim_the_estimators_do_not_part_in_length():
    """At the end the mean difference is within two standard errors of 0; early, GRPO's responses are longer."""
    for metric in ("length_right", "length_wrong"):
        early, late = (
            [one - other for one, other in zip(*pair, strict=True)]
            for pair in (
                [values("length", metric, step=step, estimator=name) for name in ("grpo", "dr_grpo")]
                for step in (25, 400)
            )
        )
        assert mean(early) > 3 * stdev(early) / SEEDS**0.5  # by Student's distribution 1 in 100 with no difference
        assert abs(mean(late)) < 2 * stdev(late) / SEEDS**0.5


def penalized(place, strength):
    """The writing rate at which the gain of 0.75 and the penalty balance, by bisection; the reference's is 0.1."""

    def slope(w):
        k1 = math.log(w / (1 - w)) - math.log(0.1 / 0.9)
        return 0.75 - strength * (k1 if place == "k1-reward" else 0.9 / (1 - w) - 0.1 / w)

    low, high = 0.01, 0.999
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


@pytest.mark.parametrize(
    ("place", "strength", "written"),
    [("k1-reward", 0.1, "0.99"), ("k1-reward", 0.3, "0.57"), ("k1-reward", 1.0, "0.19"),
     ("k3-loss", 0.1, "0.88"), ("k3-loss", 0.3, "0.66"), ("k3-loss", 1.0, "0.23")],
)  # fmt: skip
def test_claim_a_penalty_stops_the_switch_where_it_balances_the_gain(place, strength, written):
    computed = penalized(place, strength)
    assert abs(computed - float(written)) < 0.006
    assert abs(mean(values("kl", "writes_states_6", kl=place, kl_strength=strength)) - computed) < 0.05


def test_claim_k1_in_the_loss_restrains_nothing_and_adds_noise():
    free = {metric: values("kl", metric) for metric in ("kl", "accuracy")}
    for strength in (0.3, 1.0):
        held = {metric: values("kl", metric, kl="k1-loss", kl_strength=strength) for metric in free}
        assert mean(held["kl"]) > mean(free["kl"]) - 2 * stdev(free["kl"]) / SEEDS**0.5
    assert max(held["accuracy"]) < min(free["accuracy"])
