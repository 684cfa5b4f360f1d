"""From the files of the sweeps to what comes with the lab: the runs behind the answers of going_further, and bands.

`python benchmarks/going_further/record.py` writes labutils/data/experiments.json and the bands of its tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # called as a script, its folder alone is on the path

import build  # noqa: E402
from calibrate import BANDS  # noqa: E402
from calibration import EXCURSIONS, band  # noqa: E402

from labutils.checkpoints import read_json, write_json  # noqa: E402
from labutils.experiment_plots import label  # noqa: E402
from labutils.experiments import SAMPLES, RunSettings  # noqa: E402
from labutils.going_further import EXPERIMENTS, RECORD, groups, numbers  # noqa: E402
from labutils.sweep import Database, Row  # noqa: E402
from labutils.task import MAX_DIGITS, MIN_DIGITS  # noqa: E402
from labutils.tolerance import deviations  # noqa: E402

DIGITS = range(MIN_DIGITS, MAX_DIGITS + 1)
BY_DIGITS = [f"{metric}_{digits}" for metric in ("writes_states", "accuracy") for digits in DIGITS]
# Experiment -> the metrics that its pictures show, and whether at every step or at the last alone.
SHOWN = {
    "rare": (["accuracy", "writes_states", "silent"], True),
    "habit": (["accuracy", "length", *BY_DIGITS], False),
    "kl": (["accuracy", "writes_states", "kl", *BY_DIGITS], False),
    "hacking": (["accuracy", "reward", "length", "kl"], True),
    "length": (["accuracy", "length", "length_right", "length_wrong"], True),
}
RATES = ("accuracy", "reward", "writes_states")
DECIMALS = 4


def main() -> None:
    """Write both files."""
    write_json(RECORD, record(), indent=None)
    write_json(BANDS, read_json(BANDS) | {"any": bands_of_all()})


def rows_of(name: str) -> list[Row]:
    """The finished runs of an experiment's sweeps."""
    return Database(HERE / f"{name}.sqlite").rows()


def record() -> dict[str, Any]:
    """Experiment -> its runs, and of how many tables of a seed, left out of the bands in turn, how many leave them."""
    return {
        name: {
            "left_out": left_out_alarms(rows_of(name), name),
            "runs": [_kept(row, *SHOWN[name], samples=name == "hacking") for row in rows_of(name)],
        }
        for name in SHOWN
    }


def _kept(row: Row, metrics: list[str], every_step: bool, samples: bool) -> dict[str, Any]:
    steps = sorted(row.history) if every_step else [max(row.history)]
    default = {field.name: field.default for field in fields(RunSettings)}
    values = {
        name: [None if name not in row.history[step] else round(row.history[step][name], DECIMALS) for step in steps]
        for name in metrics
    }
    return {
        "settings": {key: value for key, value in asdict(row.settings).items() if value != default[key]},
        "steps": steps,
        "metrics": values,
        "samples": [list(sample) for sample in row.outcome.samples] if samples else [],
    }


def bands_of_all() -> dict[str, Any]:
    """Experiment -> what tells a run apart -> metric -> band."""
    return {name: bands_of(rows_of(name), name) for name in EXPERIMENTS}


def bands_of(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """[low, high, mean] of a new run's numbers, for the settings that the notebook runs: see `calibration.band`."""
    wanted = {label(settings, EXPERIMENTS[name].varied) for settings in notebook_runs(name)}
    seeds = {key: numbers_by_seed(name, those) for key, those in groups(name, rows).items() if key in wanted}
    entries = sum(len(found) for found in seeds.values())
    return {key: {metric: _band(metric, values, entries) for metric, values in found.items()}
            for key, found in seeds.items()}  # fmt: skip


def notebook_runs(name: str) -> list[RunSettings]:
    """The runs of the experiment's table, as the notebook's cell lists them."""
    (cell,) = [cell for cell in build.source_cells("going_further") if cell.metadata["id"] == f"{name}-runs"]
    names: dict[str, Any] = {"RunSettings": RunSettings}
    exec(cell.source, names)
    runs: list[RunSettings] = names["runs"]
    return runs


def numbers_by_seed(name: str, rows: Sequence[Row]) -> dict[str, list[float]]:
    """Metric -> its value in each run."""
    tables = [next(iter(numbers(name, [row]).values())) for row in rows]
    return {metric: [table[metric] for table in tables if metric in table] for metric in EXPERIMENTS[name].metrics}


def _band(metric: str, values: list[float], entries: int) -> list[float]:
    mean = sum(values) / len(values)
    strayed = EXCURSIONS * max(abs(value - mean) for value in values)
    is_rate = metric.startswith(RATES)
    # A response of the evaluation is the smallest change of a rate; of steps, tokens and nats it is small beside 0.01.
    smallest = 1 / (SAMPLES * RunSettings().evaluation_problems) if is_rate else 0.01
    return band(("rate" if is_rate else "kl",), values, smallest, 1, entries, strayed)


def left_out_alarms(rows: Sequence[Row], name: str) -> list[int]:
    """[failed, all] tables of one seed that leave the bands of the other seeds' runs."""
    seeds = sorted({row.settings.seed for row in rows})
    failed = 0
    for seed in seeds:
        others = bands_of([row for row in rows if row.settings.seed != seed], name)
        failed += bool(deviations(numbers(name, [row for row in rows if row.settings.seed == seed]), others))
    return [failed, len(seeds)]


if __name__ == "__main__":
    main()
