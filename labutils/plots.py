"""The lab's figures. Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import IPython
import matplotlib
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labutils.checkpoints import write_atomically
from labutils.results import estimator_title
from labutils.task import VOCABULARY
from labutils.tolerance import Table

COLOURS = {
    "reinforce": "#0072B2",
    "rloo": "#E69F00",
    "grpo": "#009E73",
    "dr_grpo": "#D55E00",
    "dr_grpo_cost": "#CC79A7",
    "pretrained": "#000000",
}
MARKERS = {
    "reinforce": "o",
    "rloo": "s",
    "grpo": "^",
    "dr_grpo": "D",
    "dr_grpo_cost": "v",
    "pretrained": "o",
}
AXIS_LABELS = {
    "accuracy": "accuracy (share of responses)",
    "writes_states": "writes states (share of responses)",
    "kl": "KL (nats per response)",
    "length": "response length (tokens)",
    "length_right": "length of right responses (tokens)",
    "length_wrong": "length of wrong responses (tokens)",
    "reward": "accepted by the verifier (share)",
    "silent": "groups of equal rewards (share)",
}


@dataclass(frozen=True)
class Picture:
    """A figure with its description, as a notebook shows it; the description stands for it where pictures do not."""

    figure: Figure
    alt: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=90)
        data = base64.b64encode(buffer.getvalue()).decode()
        image = f'<img style="max-width: 100%" alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}">'
        return {"text/html": image, "text/plain": f"[picture: {self.alt}]"}


class LivePicture:
    """A picture that a notebook shows where this is made, and draws anew in place; elsewhere nothing is shown."""

    def __init__(self) -> None:
        shell = IPython.get_ipython() if IPython.core.interactiveshell.InteractiveShell.initialized() else None
        self._handle = display(_Nothing(), display_id=True) if hasattr(shell, "kernel") else None

    def draw(self, picture: Callable[[], Picture]) -> None:
        """Show what the function gives; it is not called where nothing is shown."""
        if self._handle is not None:
            self._handle.update(picture())


class _Nothing:
    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": "", "text/plain": ""}


def pretraining_curve(history: Mapping[int, Table], steps: int) -> Picture:
    """The loss against the step, of `steps` in all, from step -> {"loss": nats per token}; one batch a point."""
    figure, (axis,) = panels(1, (7, 3))
    axis.plot(list(history), [metrics["loss"] for metrics in history.values()], color=COLOURS["reinforce"])
    axis.set_xlim(0, steps)
    axis.set_ylim(0, 3)
    axis.axhline(math.log(VOCABULARY), color="#000000", linestyle=":", label="a uniform guess, ln 15")
    axis.set_xlabel("training step")
    axis.set_ylabel("loss (nats per token)")
    axis.legend(fontsize="small")
    return Picture(figure, "Pretraining loss against the training step, with the loss of a uniform guess as a line.")


def learning_curves(curves: Table, steps: int | None = None) -> Picture:
    """Accuracy, writing rate and KL against the step, from estimator -> seed -> step -> metrics.

    The first seed is solid and the second dashed. steps: where the axis ends while the curves still grow.
    """
    figure, axes = panels(3, (12, 3.8))
    for axis, metric in zip(axes, ("accuracy", "writes_states", "kl"), strict=True):
        for estimator, seeds in curves.items():
            for style, (seed, run) in zip(("-", "--", ":", "-."), seeds.items(), strict=False):
                label = f"{estimator_title(estimator)}, seed {seed}"
                values = {step: metrics[metric] for step, metrics in run.items()}
                _draw(axis, estimator, values, style, label)
        axis.set_xlim(0, steps)
        axis.set_xlabel("training step")
        axis.set_ylabel(AXIS_LABELS[metric])
        axis.set_ylim(0, None if metric == "kl" else 1.03)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small")
    alt = (
        "Three panels against the training step: accuracy, share of responses that write the states, and KL from the "
        "pretrained model, a line for each estimator and seed."
    )
    return Picture(figure, alt)


def by_length(table: Table) -> Picture:
    """Accuracy and response length by number of digits, from part 3's table."""
    figure, axes = panels(2, (9, 3.6))
    for axis, metric in zip(axes, ("accuracy", "length"), strict=True):
        for model in table:
            # The two policies nearly coincide: a dashed line on top leaves both visible.
            _draw(axis, model, table[model][metric], "--" if model == "dr_grpo_cost" else "-", estimator_title(model))
        axis.set_xlabel("number of digits")
        axis.set_ylabel(AXIS_LABELS[metric])
        axis.set_ylim(0, 1.03 if metric == "accuracy" else 12.5)
    axes[0].legend(fontsize="small")
    alt = (
        "Two panels against the number of digits: accuracy and response length, of the pretrained model and of the "
        "two Dr. GRPO policies."
    )
    return Picture(figure, alt)


def pass_at_k(table: Table) -> Picture:
    """pass@k against k on a logarithmic axis, a panel per number of digits, from part 3's table."""
    lengths = list(table["pretrained"]["pass_at_k"])
    figure, axes = panels(len(lengths), (9, 3.2))
    for axis, digits in zip(axes, lengths, strict=True):
        for model in ("pretrained", "dr_grpo"):
            values = table[model]["pass_at_k"][digits]
            _draw(axis, model, values, "-", estimator_title(model))
        axis.set_xscale("log")
        axis.set_xticks([int(k) for k in values], labels=list(values), minor=False)
        axis.minorticks_off()
        axis.set_xlabel("k (responses per problem)")
        axis.set_ylabel("pass@k (share of problems)")
        axis.set_title(f"{digits} digits", fontsize="medium")
        axis.set_ylim(0, 1.03)
    axes[0].legend(fontsize="small", loc="lower right")
    alt = "pass@k against k, a panel for each number of digits, before and after reinforcement learning."
    return Picture(figure, alt)


def save(picture: Picture, stem: Path) -> None:
    """Write the picture as PNG and SVG, each with its description."""
    for suffix in (".png", ".svg"):
        buffer = BytesIO()
        # Fixed ids and no date: the same numbers give the same file.
        with matplotlib.rc_context({"svg.hashsalt": "lab16"}):
            metadata = {"Description": picture.alt} | ({"Date": None} if suffix == ".svg" else {})
            picture.figure.savefig(buffer, format=suffix[1:], dpi=150, metadata=metadata)
        write_atomically(stem.with_suffix(suffix), buffer.getvalue())


def panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches with its axes side by side."""
    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(1, count, index + 1) for index in range(count)]
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _draw(axis: Axes, model: str, values: Table, style: str, label: str) -> None:
    axis.plot(
        [int(key) for key in values],
        list(values.values()),
        style,
        color=COLOURS.get(model),
        marker=MARKERS.get(model, "o"),
        markersize=4,
        linewidth=1.3,
        label=label,
    )
