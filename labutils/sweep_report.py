"""What a sweep has found: a table of its runs by setting, and their learning curves as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import mean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labutils.experiments import RunSettings
from labutils.plots import AXIS_LABELS, COLOURS, Picture, save
from labutils.sweep import Database, Row

METRICS = ("accuracy", "writes_states", "kl", "length")
LINES = [(colour, style) for style in ("-", "--", ":", "-.") for colour in COLOURS.values()]
MOST_LINES = len(LINES)  # in the picture; beyond that nobody can tell them apart

Groups = dict[str, list[Row]]  # what their settings are -> runs that differ in nothing but the seed


def write(database: Database) -> str:
    """The table as text; the picture is written beside the file, as PNG and SVG."""
    groups = grouped(database.rows())
    if not groups:
        return f"{database.path} holds no runs yet"
    stem = database.path.with_suffix("")
    save(picture(groups), stem)
    return f"{table(groups)}\n\nthe curves are in {stem}.png and {Path(stem).name}.svg"


def grouped(rows: Sequence[Row]) -> Groups:
    """The runs under the settings in which they differ, the seed aside."""
    names = [field.name for field in fields(RunSettings) if field.name != "seed"]
    values = {name: {getattr(row.settings, name) for row in rows} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    groups: Groups = {}
    for row in rows:
        label = ", ".join(f"{name} {_text(asdict(row.settings)[name])}" for name in differing) or "all runs"
        groups.setdefault(label, []).append(row)
    return groups


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def table(groups: Groups) -> str:
    """A line per group: seeds, and each metric after the last step, mean and standard deviation over seeds."""
    width = max(map(len, groups))
    lines = [f"{'settings':<{width}}  seeds" + "".join(f"{metric:>16}" for metric in METRICS)]
    for label, rows in groups.items():
        last = [row.history[max(row.history)] for row in rows]
        cells = [_spread([metrics[metric] for metrics in last]) for metric in METRICS]
        lines.append(f"{label:<{width}}  {len(rows):>5}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join([*lines, "after the last step; mean ± standard deviation over seeds"])


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def picture(groups: Groups) -> Picture:
    """Each metric against the step: the mean over seeds as a line, from the lowest to the highest as a band."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    shown = list(groups.items())[:MOST_LINES]
    for index, metric in enumerate(METRICS):
        axis = figure.add_subplot(1, len(METRICS), index + 1)
        for (label, rows), (colour, style) in zip(shown, LINES, strict=False):
            _draw(axis, rows, metric, colour, style, label)
        axis.set_xlabel("training step")
        axis.set_ylabel(AXIS_LABELS[metric])
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    left_out = f" {len(groups) - len(shown)} more settings are not drawn." if len(groups) > len(shown) else ""
    alt = f"Accuracy, writing rate, KL and length against the step, a line for each of {len(shown)} settings.{left_out}"
    return Picture(figure, alt)


def _draw(axis: Axes, rows: Sequence[Row], metric: str, colour: str, style: str, label: str) -> None:
    steps = sorted(set.intersection(*(set(row.history) for row in rows)))
    values = [[row.history[step][metric] for row in rows] for step in steps]
    axis.plot(steps, [mean(found) for found in values], style, color=colour, label=label)
    axis.fill_between(
        steps, [min(found) for found in values], [max(found) for found in values], color=colour, alpha=0.15
    )
