"""Pictures of experiments: runs of the same settings are one colour, whatever their seeds.

Lines, bands and bars show the runs that are compared with; dots show the reader's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labutils.experiments import RunSettings
from labutils.plots import AXIS_LABELS, COLOURS, Picture, panels
from labutils.sweep import Row
from labutils.task import MAX_DIGITS, MIN_DIGITS

LINES = [(colour, style) for style in ("-", "--", ":", "-.") for colour in COLOURS.values()]
MOST_LINES = len(LINES)  # in a picture; beyond that nobody can tell them apart
MARKERS = "osD^vPX*"
DIGITS = range(MIN_DIGITS, MAX_DIGITS + 1)
BESIDE = 0.06  # digits between the bars of two settings
LEGEND_CHARACTERS = 110  # in a line

Groups = Mapping[str, Sequence[Row]]  # what their settings are -> runs that differ in nothing but the seed


def differing(rows: Sequence[Row]) -> list[str]:
    """The settings in which the rows differ, the seed aside."""
    names = [field.name for field in fields(RunSettings) if field.name != "seed"]
    return [name for name in names if len({getattr(row.settings, name) for row in rows}) > 1]


def grouped(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """The rows by the values of these settings."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(label(row.settings, names), []).append(row)
    return groups


def label(settings: RunSettings, names: Sequence[str]) -> str:
    """The values of these settings, as text."""
    values = asdict(settings)
    return ", ".join(f"{name} {_text(values[name])}" for name in names) or "all runs"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def curves(groups: Groups, metrics: Sequence[str], own: Groups | None = None) -> Picture:
    """Each metric against the step: the mean over seeds as a line, from the lowest to the highest as a band."""
    own, lines = own or {}, _lines(groups, own)
    figure, axes = panels(len(metrics), (max(6, 3.2 * len(metrics)), 3.9))
    for axis, metric in zip(axes, metrics, strict=True):
        for name, (colour, style) in lines.items():
            if name in groups:
                _band(axis, groups[name], metric, colour, style, name)
            for row in own.get(name, ()):
                steps = [step for step, values in row.history.items() if metric in values]
                dots = [row.history[step][metric] for step in steps]
                axis.plot(steps, dots, ".", color=colour, label=None if name in groups else name)
        axis.set(xlabel="training step", ylabel=AXIS_LABELS[metric])
        axis.set_ylim(bottom=0)
    _legend(figure)
    left_out = len({*groups, *own}) - len(lines)
    alt = (
        f"{', '.join(AXIS_LABELS[metric] for metric in metrics)}, each against the training step: "
        f"a line for each of {len(lines)} settings.{f' {left_out} more settings are not drawn.' if left_out else ''}"
    )
    return Picture(figure, alt)


def _lines(groups: Groups, own: Groups | None) -> dict[str, tuple[str, str]]:
    """Name -> colour and style, of the groups and then of what else is the reader's own.

    Groups that are an estimator each have the colours of the estimators in the other figures.
    """
    estimators = {name: next(iter(rows)).settings.estimator for name, rows in groups.items()}
    fixed: dict[str, tuple[str, str]] = {}
    if len(set(estimators.values())) == len(groups) > 1:
        fixed = {name: (COLOURS[one], "-") for name, one in estimators.items() if one in COLOURS}
    others = [name for name in [*groups, *(own or {})] if name not in fixed]
    free = [line for line in LINES if line not in fixed.values()]
    return fixed | dict(zip(dict.fromkeys(others), free, strict=False))


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = max(1, LEGEND_CHARACTERS // max(map(len, labels), default=LEGEND_CHARACTERS))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, 4), fontsize="small")


def _band(axis: Axes, rows: Sequence[Row], metric: str, colour: str, style: str, name: str) -> None:
    """Of a metric that some runs lack at a step, such as the length of wrong responses, the others' values."""
    steps = sorted(set.intersection(*(set(row.history) for row in rows)))
    found = {step: [row.history[step][metric] for row in rows if metric in row.history[step]] for step in steps}
    values = {step: those for step, those in found.items() if those}
    axis.plot(list(values), [mean(those) for those in values.values()], style, color=colour, label=name)
    low, high = [min(those) for those in values.values()], [max(those) for those in values.values()]
    axis.fill_between(list(values), low, high, color=colour, alpha=0.15)


def by_digits(groups: Groups, own: Groups | None = None) -> Picture:
    """Writing rate and accuracy after the last step against the number of digits; a bar from lowest to highest."""
    own, lines = own or {}, _lines(groups, own)
    figure, axes = panels(2, (10, 4.6))
    for axis, metric in zip(axes, ("writes_states", "accuracy"), strict=True):
        for number, (name, (colour, style)) in enumerate(lines.items()):
            places = [digits + BESIDE * (number - (len(lines) - 1) / 2) for digits in DIGITS]
            if rows := groups.get(name, ()):
                values = [[row.last[f"{metric}_{digits}"] for row in rows] for digits in DIGITS]
                axis.plot(places, [mean(those) for those in values], style, color=colour, label=name)
                axis.vlines(places, [min(those) for those in values], [max(those) for those in values], color=colour)
            for row in own.get(name, ()):
                dots = [row.last[f"{metric}_{digits}"] for digits in DIGITS]
                axis.plot(places, dots, "o", color=colour, markersize=4, label=None if rows else name)
        axis.set(xlabel="number of digits", ylabel=AXIS_LABELS[metric], ylim=(0, 1.03))
    _legend(figure)
    alt = f"Writing rate and accuracy against the number of digits, a line for each of {len(lines)} settings."
    return Picture(figure, alt)


def frontier(groups: Groups, own: Groups | None = None) -> Picture:
    """Accuracy and writing rate after the last step against the KL divergence: a run a mark, of own runs filled."""
    own, lines = own or {}, _lines(groups, own)
    figure, axes = panels(2, (10, 4.6))
    for axis, metric in zip(axes, ("accuracy", "writes_states"), strict=True):
        for number, (name, (colour, _)) in enumerate(lines.items()):
            mark: dict[str, Any] = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "linestyle": ""}
            rows, others = groups.get(name, ()), own.get(name, ())
            axis.plot(*_at_kl(rows, metric), **mark, markerfacecolor="none", label=name if rows else None)
            axis.plot(*_at_kl(others, metric), **mark, markersize=8, label=None if rows else name)
        axis.set(xlabel=AXIS_LABELS["kl"], ylabel=AXIS_LABELS[metric], ylim=(0, 1.03))
        axis.set_xlim(left=0)
    _legend(figure)
    alt = f"Accuracy and writing rate against KL from the starting model, a mark for each run of {len(lines)} settings."
    return Picture(figure, alt)


def _at_kl(rows: Sequence[Row], metric: str) -> tuple[list[float], list[float]]:
    return [row.last["kl"] for row in rows], [row.last[metric] for row in rows]
