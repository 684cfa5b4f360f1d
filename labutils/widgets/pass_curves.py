"""pass@k against k, from the number of correct responses to each problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import ipywidgets
from matplotlib.figure import Figure

from labutils.errors import LabError
from labutils.plots import Picture
from labutils.tolerance import is_number
from labutils.widgets.display import Explorer, Shown, TextTable, failure

SAMPLES = 64  # responses to each problem
COLOURS = ("#000000", "#D55E00", "#CC79A7", "#0072B2", "#009E73")
MARKED_KS = (1, 2, 4, 8, 16, 32, 64)
Estimate = Callable[[int, int, int], float]


class PassAtKExplorer(Explorer):
    """See `pass_at_k_explorer`."""

    def __init__(self, counts: Mapping[str, Sequence[int]], pass_at_k: Estimate):
        self.counts, self.estimate = counts, pass_at_k
        self._curves: dict[str, list[float]] = {}  # the counts never change, so one computation serves every redraw
        self.k = ipywidgets.IntSlider(8, 1, SAMPLES, description="k", continuous_update=False)
        self.naive = ipywidgets.Checkbox(False, description="show the naive 1 - (1 - c/n)^k", indent=False)
        super().__init__([self.k, self.naive])
        self.refresh_on(self.k, self.naive)

    def draw(self) -> list[Shown]:
        """The values at k, and the curves."""
        if not self._curves:
            self._curves = {name: curve(column, self._checked) for name, column in self.counts.items()}
        naive = {}
        if self.naive.value:
            naive = {name: curve(column, naive_estimate) for name, column in self.counts.items()}
        header = ["model", f"pass@{self.k.value}"] + (["naive", "bias"] if naive else [])
        rows = []
        for name, values in self._curves.items():
            value = values[self.k.value - 1]
            row = [name, f"{value:.3f}"]
            if naive:
                biased = naive[name][self.k.value - 1]
                row += [f"{biased:.3f}", f"{biased - value:+.3f}"]
            rows.append(row)
        return [TextTable(header, rows), _picture(self._curves, naive, self.k.value)]

    def _checked(self, n: int, c: int, k: int) -> float:
        name = getattr(self.estimate, "__name__", "pass_at_k")
        try:
            value = self.estimate(n, c, k)
        except Exception as error:
            raise LabError(f"with n={n}, c={c}, k={k}: {failure(name, error)}") from error
        if not is_number(value):
            raise LabError(f"{name}(n={n}, c={c}, k={k}) returned {str(value)[:40]}; a finite number is needed")
        return value


def pass_at_k_explorer(counts: Mapping[str, Sequence[int]], pass_at_k: Estimate) -> PassAtKExplorer:
    """pass@k of each model against k, a slider that reads the values off, and on demand the naive estimate's bias.

    counts: title -> the number of correct responses out of 64, one for each problem.
    pass_at_k: the exercise, (n, c, k) -> probability. Raises `LabError` for a count outside 0 to 64, or none at all.
    """
    for name, column in counts.items():
        if not column:
            raise LabError(f"no counts for {name}; at least one problem is needed")
        if wrong := [count for count in column if not 0 <= count <= SAMPLES]:
            raise LabError(f"count {wrong[0]} of {name}; allowed are 0 to {SAMPLES}")
    return PassAtKExplorer(counts, pass_at_k)


def curve(counts: Sequence[int], estimate: Estimate) -> list[float]:
    """The mean over problems of `estimate(64, c, k)`, for k = 1 to 64."""
    problems = Counter(counts)  # problems with equal counts share one computation
    return [
        sum(number * estimate(SAMPLES, c, k) for c, number in problems.items()) / len(counts)
        for k in range(1, SAMPLES + 1)
    ]


def naive_estimate(n: int, c: int, k: int) -> float:
    """1 - (1 - c/n)^k: the share of correct responses put in place of the probability. Biased downwards."""
    return 1 - (1 - c / n) ** k


def _picture(curves: Mapping[str, list[float]], naive: Mapping[str, list[float]], k: int) -> Picture:
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axis, ks = figure.add_subplot(), range(1, SAMPLES + 1)
    for index, (name, values) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        axis.plot(ks, values, color=colour, label=name)
        axis.plot([k], [values[k - 1]], "o", color=colour)
        if naive:
            axis.plot(ks, naive[name], "--", color=colour, label=f"{name}, naive")
    axis.axvline(k, color="grey", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_xticks(MARKED_KS, labels=[str(mark) for mark in MARKED_KS])
    axis.minorticks_off()
    axis.set_ylim(0, 1.03)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("k (responses per problem)")
    axis.set_ylabel("pass@k (share of problems)")
    axis.legend(loc="lower right", fontsize="small")
    read_off = "; ".join(f"{name} {values[k - 1]:.3f}" for name, values in curves.items())
    also = ", and dashed the naive estimates, which lie below" if naive else ""
    return Picture(figure, f"pass@k against k from 1 to 64, a line for each model{also}. At k = {k}: {read_off}.")
