"""The five experiments of the notebook `going_further`: their tables, and the runs that their answers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import joblib

from labutils.checkpoints import read_json
from labutils.experiment_plots import grouped
from labutils.experiments import Exercises, Outcome, RunSettings
from labutils.results import TableView, notebook_view
from labutils.runs import local_processes
from labutils.sweep import Database, Row, sweep
from labutils.tolerance import DATA, notebook_profile

RESULTS = Path("results", "experiments.sqlite")  # beside the notebook
RECORD = DATA / "experiments.json"


@dataclass(frozen=True)
class Experiment:
    """varied: the settings that tell its runs apart. metrics: what its table shows of a run, after the last step."""

    varied: tuple[str, ...]
    metrics: tuple[str, ...]


EXPERIMENTS = {
    "rare": Experiment(("pretraining", "worked_rate", "estimator"), ("take_off", "accuracy")),
    "habit": Experiment(
        ("length_cost", "entropy_bonus", "temperature"),
        ("writes_states_2", "writes_states_4", "writes_states_8", "accuracy"),
    ),
    "kl": Experiment(("kl", "kl_strength"), ("writes_states", "kl", "accuracy")),
    "hacking": Experiment(("verifier", "length_cost"), ("reward", "accuracy", "length")),
    "length": Experiment(("estimator",), ("length_right", "length_wrong", "accuracy")),
}


def run_experiment(runs: Sequence[RunSettings], exercises: Exercises) -> list[Row]:
    """The runs, computed on all cores; those that have finished before come from the file in `results`."""
    with local_processes(joblib.cpu_count()) as jobs:
        return sweep(runs, exercises, Database(RESULTS), jobs)


def groups(name: str, rows: Sequence[Row], **settings: Any) -> dict[str, list[Row]]:
    """The rows of this experiment that have these settings, by what tells its runs apart."""
    chosen = [row for row in rows if all(getattr(row.settings, key) == value for key, value in settings.items())]
    return grouped(chosen, [key for key in EXPERIMENTS[name].varied if key not in settings])


def table(name: str, rows: Sequence[Row]) -> TableView:
    """The experiment's table, of a run each, beside what eight seeds gave."""
    return notebook_view(name, notebook_profile(), numbers(name, rows))


def numbers(name: str, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """What tells a run apart -> metric -> value. A metric that a run lacks is left out."""
    found = {}
    for label, (row, *_) in groups(name, rows).items():
        metrics = EXPERIMENTS[name].metrics
        values = row.last | ({"take_off": row.take_off} if "take_off" in metrics else {})
        found[label] = {metric: values[metric] for metric in metrics if metric in values}
    return found


@cache
def course_rows(name: str) -> list[Row]:
    """The runs that the course's answer to this experiment comes from, with the metrics that it needs."""
    return [_row(**kept) for kept in read_json(RECORD)[name]["runs"]]


def _row(settings: dict[str, Any], steps: list[int], metrics: dict[str, list[float | None]], samples: Any) -> Row:
    history: dict[int, dict[str, float]] = {step: {} for step in steps}
    for name, values in metrics.items():
        for step, value in zip(steps, values, strict=True):
            if value is not None:  # as the length of wrong responses where there were none
                history[step][name] = value
    return Row(RunSettings(**settings), {}, Outcome(history, [(text, *verdicts) for text, *verdicts in samples]))
