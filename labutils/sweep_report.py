"""What a sweep has found: a table of its runs by setting, and their learning curves as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from labutils.experiment_plots import Groups, curves, differing, grouped
from labutils.plots import save
from labutils.sweep import Database

METRICS = ("accuracy", "writes_states", "kl", "length")


def write(database: Database) -> str:
    """The table as text; the picture is written beside the file, as PNG and SVG."""
    rows = database.rows()
    if not rows:
        return f"{database.path} holds no runs yet"
    groups, stem = grouped(rows, differing(rows)), database.path.with_suffix("")
    save(curves(groups, METRICS), stem)
    return f"{table(groups)}\n\nthe curves are in {stem}.png and {Path(stem).name}.svg"


def table(groups: Groups) -> str:
    """A line per group: seeds, and each metric after the last step, mean and standard deviation over seeds."""
    width = max(map(len, groups))
    lines = [f"{'settings':<{width}}  seeds" + "".join(f"{metric:>16}" for metric in METRICS)]
    for label, rows in groups.items():
        cells = [_spread([row.last[metric] for row in rows]) for metric in METRICS]
        lines.append(f"{label:<{width}}  {len(rows):>5}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join([*lines, "after the last step; mean ± standard deviation over seeds"])


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"
