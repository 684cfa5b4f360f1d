"""The lab's tables: their text, laid out as in the course, and the expected values beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from labutils.errors import LabError

# Nested tables of numbers: part1 is metric -> digits -> value; part2 is estimator -> step -> metric -> value; part3
# is model -> metric -> digits -> value, with pass_at_k -> digits -> k -> value among the metrics.
Table = Mapping[str, Any]

METRICS = {"accuracy": "accuracy", "writes_states": "writes states", "length": "length"}
ESTIMATOR_TITLES = {
    "reinforce": "REINFORCE",
    "rloo": "RLOO",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "dr_grpo_cost": "Dr. GRPO + cost",
}
MODEL_TITLES = {"pretrained": "pretrained", "dr_grpo": "Dr. GRPO", "dr_grpo_cost": "+ length cost"}
TITLES = {
    "part1": "Part 1: the pretrained model, by number of digits",
    "part2": "Part 2: reinforcement learning, five estimators, mean of the seeds",
    "part3": "Part 3: before and after reinforcement learning, by number of digits",
}


def expected_tables(profile: str) -> Table | None:
    """The course's numbers for a profile, in the layout of `tables.json`; None where there are none."""
    text = files("labutils").joinpath("data", "expected.json").read_text()
    tables: dict[str, Table] = json.loads(text)
    return tables.get(profile)


def require_finite(name: str, table: Table) -> None:
    """Raise `LabError` for a value of nested tables that is no finite number, naming it by its keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            require_finite(f"{name} {key}", value)
        elif not isinstance(value, (int, float)) or not math.isfinite(value):
            raise LabError(f"{name} {key} is {value!r}; every number of a table must be finite")


def mean_of_seeds(curves: Table) -> dict[str, Any]:
    """Part 2's table from its curves: estimator -> seed -> step -> metric becomes estimator -> step -> metric."""
    table: dict[str, Any] = {}
    for estimator, seeds in curves.items():
        runs = list(seeds.values())
        table[estimator] = {
            str(step): {
                metric: sum(run[step][metric] for run in runs) / len(runs)
                for metric in ("accuracy", "writes_states", "kl")
            }
            for step in runs[0]
        }
    return table


def table_text(part: str, table: Table, expected: Table | None) -> str:
    """The table of "part1", "part2" or "part3" as text, the expected values in the line below each line."""
    lines = {"part1": _part1_lines, "part2": _part2_lines, "part3": _part3_lines}[part]
    note = "" if expected else " (no expected values for this profile)"
    return "\n".join([f"=== {TITLES[part]}{note} ===", *lines(table, expected)])


def _part1_lines(table: Table, expected: Table | None) -> list[str]:
    lines = [_line("digits", table["accuracy"])]
    for metric, title in METRICS.items():
        lines += _pair(title, table[metric], expected and expected[metric], "{:.2f}")
    return lines


def _part2_lines(table: Table, expected: Table | None) -> list[str]:
    titles = [ESTIMATOR_TITLES.get(name, name) for name in table]
    lines = ["  accuracy / rate of writing the states / KL from the pretrained model (nats per response)"]
    lines.append(_line("step", titles, 8, 22))
    for step in next(iter(table.values())):
        lines.append(_line(step, [_triple(runs[step]) for runs in table.values()], 8, 22))
        if expected:
            cells = [_triple(expected.get(name, {}).get(step)) for name in table]
            lines.append(_line("expect", cells, 8, 22))
    return lines


def _part3_lines(table: Table, expected: Table | None) -> list[str]:
    lines = [_line("digits", table["pretrained"]["accuracy"], 30)]
    for metric, metric_title in METRICS.items():
        for model, title in MODEL_TITLES.items():
            label = f"{metric_title if model == 'pretrained' else '':<15}{title}"
            goal = expected and expected[model][metric]
            lines += _pair(label, table[model][metric], goal, "{:.2f}", 30, 15)
    lines.append("  pass@k")
    first = table["pretrained"]["pass_at_k"]
    ks = [f"pass@{k}" for k in next(iter(first.values()))]
    lines.append(_line(f"{'digits':<15}model", ks, 30))
    for digits in first:
        for model in (name for name in MODEL_TITLES if "pass_at_k" in table[name]):
            label = f"{digits if model == 'pretrained' else '':<15}{MODEL_TITLES[model]}"
            goal = expected and expected[model]["pass_at_k"][digits]
            lines += _pair(label, table[model]["pass_at_k"][digits], goal, "{:.3f}", 30, 15)
    return lines


def _pair(
    label: str,
    measured: Table,
    expected: Table | None,
    form: str,
    label_width: int = 18,
    indent: int = 2,
) -> list[str]:
    lines = [_line(label, [form.format(value) for value in measured.values()], label_width)]
    if expected:
        cells = [form.format(expected[key]) if key in expected else "-" for key in measured]
        lines.append(_line(" " * indent + "expected", cells, label_width))
    return lines


def _triple(metrics: Table | None) -> str:
    if metrics is None:
        return "-"
    return f"{metrics['accuracy']:.2f} / {metrics['writes_states']:.2f} / {metrics['kl']:4.1f}"


def _line(label: str, cells: Sequence[str] | Table, label_width: int = 18, width: int = 8) -> str:
    return f"  {label:<{label_width}}" + "".join(f"{cell:>{width}}" for cell in cells)
