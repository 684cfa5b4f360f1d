"""The same prompt answered by several models, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import ipywidgets
import torch
from matplotlib.figure import Figure

from labutils import rollout
from labutils.model import Transformer
from labutils.plots import Picture
from labutils.task import encode_prompts
from labutils.widgets.display import (
    DIRECT_COLOUR,
    OTHER_COLOUR,
    WORKED_COLOUR,
    Explorer,
    Shown,
    TextTable,
    digits_field,
    in_words,
    read_digits,
    temperature_slider,
)

SAMPLES = 200  # responses behind the shares
WRITTEN_OUT = 6  # of which so many are shown
COLOURS = {"direct": DIRECT_COLOUR, "worked": WORKED_COLOUR, "other": OTHER_COLOUR}

# Each response's text, form and whether it is right, as `in_words` gives them.
Words = list[tuple[str, str, str]]


class SideBySide(Explorer):
    """See `side_by_side`."""

    def __init__(self, models: Mapping[str, Transformer]):
        self.models = models
        self.seed = 0
        self.digits, self.temperature = digits_field("4716"), temperature_slider()
        self.resample = ipywidgets.Button(description="Resample")
        super().__init__([self.digits, self.temperature, self.resample])
        self.refresh_on(self.digits, self.temperature)
        self.resample.on_click(self._sample_again)

    def draw(self) -> list[Shown]:
        """Responses of each model, the shares, and the bars."""
        problem, words = read_digits(self.digits.value), {}
        for name, model in self.models.items():
            generator = torch.Generator().manual_seed(self.seed)
            responses = rollout.generate(model, encode_prompts(problem), SAMPLES, self.temperature.value, generator)
            words[name] = in_words(problem, responses)
        samples = [
            [f"{text}   {answer}, {form}" for text, form, answer in column]
            for column in (sampled[:WRITTEN_OUT] for sampled in words.values())
        ]
        return [TextTable(list(words), list(zip(*samples, strict=True))), _shares_table(words), _picture(words)]

    def _sample_again(self, _: ipywidgets.Button) -> None:
        self.seed += 1
        self.refresh()


def side_by_side(models: Mapping[str, Transformer]) -> SideBySide:
    """Type a problem, and see how each model answers it: six responses, and what 200 of them are.

    models: title -> model. Every model samples with the same random numbers.
    """
    return SideBySide(models)


def _share(words: Words, form: str | None, answer: str | None) -> float:
    """The share of responses of this form and answer; None stands for any."""
    return sum(form in (None, f) and answer in (None, a) for _, f, a in words) / len(words)


def _shares_table(words: Mapping[str, Words]) -> TextTable:
    rows = [
        [
            name,
            *(f"{_share(sampled, form, None):.2f}" for form in ("direct", "worked")),
            f"{_share(sampled, None, 'right'):.2f}",
        ]
        for name, sampled in words.items()
    ]
    return TextTable([f"shares of {SAMPLES} responses", "direct", "worked", "right"], rows)


def _picture(words: Mapping[str, Words]) -> Picture:
    """A bar for each model, cut by form and answer; wrong answers are hatched."""
    figure = Figure(figsize=(9, 1.1 + 0.45 * len(words)), layout="constrained")
    axis, names = figure.add_subplot(), list(words)
    left = [0.0] * len(names)
    for form, colour in COLOURS.items():
        for answer in ("right", "wrong"):
            shares = [_share(words[name], form, answer) for name in names]
            if not any(shares):
                continue
            hatch = "///" if answer == "wrong" else None
            label = f"{form}, {answer}"
            axis.barh(names, shares, left=left, color=colour, edgecolor="black", hatch=hatch, label=label)
            left = [a + b for a, b in zip(left, shares, strict=True)]
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel(f"share of {SAMPLES} responses")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=6, fontsize="small", frameon=False)
    described = "; ".join(
        f"{name}: worked {_share(sampled, 'worked', None):.2f}, right {_share(sampled, None, 'right'):.2f}"
        for name, sampled in words.items()
    )
    alt = f"A bar for each model, cut into the shares of direct and worked responses, right and wrong. {described}."
    return Picture(figure, alt)
