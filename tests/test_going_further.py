"""The experiments: what their record holds, what their tables and pictures show, and every claim of the text."""

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
