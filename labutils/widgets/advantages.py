"""Advantages and token weights of the estimators, for rewards and lengths set by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from labutils.errors import LabError
from labutils.plots import Picture
from labutils.results import estimator_title
from labutils.task import RESPONSE_TOKENS
from labutils.training import Estimator
from labutils.widgets.display import DESCRIPTION, Explorer, Shown, Text, TextTable, failure

GROUP = 8
SHORTEST = 3  # tokens of a direct response
STARTING_REWARDS = (1, 0, 0, 0, 1, 0, 0, 0)
STARTING_LENGTHS = (6, 3, 3, 12, 3, 6, 3, 3)
ROWS = GROUP + 1  # the second group's responses are all alike: one row stands for them


class AdvantageBench(Explorer):
    """See `advantage_bench`."""

    def __init__(self, estimators: Mapping[str, Estimator]):
        # Rewards are set by hand here, so an estimator that differs by its length cost alone shows nothing new.
        self.estimators = {name: item for name, item in estimators.items() if item.length_cost == 0}
        self.rewards = [
            ipywidgets.Checkbox(
                bool(reward), description=f"response {i} is right", indent=False, layout={"width": "170px"}
            )
            for i, reward in enumerate(STARTING_REWARDS, 1)
        ]
        self.lengths = [
            ipywidgets.IntSlider(length, SHORTEST, RESPONSE_TOKENS, description=f"tokens of {i}")
            for i, length in enumerate(STARTING_LENGTHS, 1)
        ]
        for slider in self.lengths:
            slider.continuous_update, slider.style = False, DESCRIPTION
        self.second_group = ipywidgets.Dropdown(
            options=[("all wrong", 0.0), ("all right", 1.0)], description="the second group is", style=DESCRIPTION
        )
        pairs = [
            ipywidgets.HBox(pair, layout=ipywidgets.Layout(width="440px"))
            for pair in zip(self.rewards, self.lengths, strict=True)
        ]
        super().__init__(pairs, [self.second_group])
        self.refresh_on(*self.rewards, *self.lengths, self.second_group)

    def draw(self) -> list[Shown]:
        """The advantages, what is wrong with a function, and the grids."""
        rewards = torch.tensor([[float(box.value) for box in self.rewards], [self.second_group.value] * GROUP])
        lengths = torch.tensor([slider.value for slider in self.lengths] + [SHORTEST] * GROUP)
        mask = torch.arange(RESPONSE_TOKENS) < lengths[:, None]
        results = {name: _apply(estimator, rewards, mask) for name, estimator in self.estimators.items()}
        mistakes = [Text(f"{estimator_title(name)}: {item}") for name, item in results.items() if isinstance(item, str)]
        return [_table(rewards, lengths, results), *mistakes, _picture(results)]


def advantage_bench(estimators: Mapping[str, Estimator]) -> AdvantageBench:
    """Set eight rewards and lengths, and see each estimator's advantages and how hard each token is pushed.

    Two groups of eight responses make the batch. The second one's rewards are all equal and its responses have 3
    tokens; one row stands for all of it. The grids show weight times advantage of each token, the coefficient of its
    log-probability in the objective. The numbers come from the functions of the estimators without a length cost;
    a function that raises, or returns something else than finite numbers of the right shape, gives one line.
    """
    return AdvantageBench(estimators)


# The advantages (G + 1,) and weight times advantage (G + 1, R) of an estimator, or one line that says what is wrong.
Result = tuple[Tensor, Tensor] | str


def _apply(estimator: Estimator, rewards: Tensor, mask: Tensor) -> Result:
    try:
        advantages = _call(estimator.advantages, rewards)
        weights = _call(estimator.weights, mask)
    except LabError as error:
        return str(error)
    advantages = advantages.flatten()[:ROWS]
    return advantages, weights[:ROWS] * advantages[:, None]


def _call(function: Callable[[Tensor], Tensor], argument: Tensor) -> Tensor:
    """What the function returns, as float32. Raises `LabError` unless that is finite and has the argument's shape."""
    name = getattr(function, "__name__", "the function")
    try:
        value = function(argument.clone())
    except Exception as error:
        raise LabError(failure(name, error)) from error
    if not isinstance(value, Tensor):
        raise LabError(f"{name} returned a {type(value).__name__}; a tensor is needed")
    if value.shape != argument.shape:
        raise LabError(f"{name} returned shape {tuple(value.shape)}; {tuple(argument.shape)} is needed")
    value = value.detach().float()
    if not value.isfinite().all():
        raise LabError(f"{name} returned a value that is not finite")
    return value


def _table(rewards: Tensor, lengths: Tensor, results: Mapping[str, Result]) -> TextTable:
    header = ["response", "reward", "tokens", *(f"{estimator_title(name)} advantage" for name in results)]
    rows = [
        [
            _row_name(i),
            f"{rewards.flatten()[i]:.0f}",
            str(int(lengths[i])),
            *("-" if isinstance(item, str) else f"{item[0][i]:+.3f}" for item in results.values()),
        ]
        for i in range(ROWS)
    ]
    return TextTable(header, rows)


def _picture(results: Mapping[str, Result]) -> Picture:
    lines = (len(results) + 1) // 2
    figure = Figure(figsize=(10.4, 3.1 * lines))
    figure.subplots_adjust(left=0.075, right=0.99, top=1 - 0.1 / lines, bottom=0.14 / lines, wspace=0.17, hspace=0.33)
    for index, (name, result) in enumerate(results.items()):
        axis = figure.add_subplot(lines, 2, index + 1)
        axis.set_title(f"{estimator_title(name)}: weight x advantage (thousandths)", fontsize=10, loc="left")
        if isinstance(result, str):
            axis.text(0.5, 0.5, "no numbers: see the line above", ha="center", va="center", transform=axis.transAxes)
            axis.set_axis_off()
        else:
            _grid(axis, result[1])
    alt = (
        "A grid for each estimator, a row for each response of the first group and one for the second group, a column "
        "for each token: weight times advantage in thousandths. "
        + " ".join(_described(name, result) for name, result in results.items())
    )
    return Picture(figure, alt)


def _grid(axis: Axes, values: Tensor) -> None:
    """Cells (G + 1, R) in colours that diverge from 0, each with its number; cells of exactly 0 stay empty."""
    thousandths = 1000 * values
    largest = max(thousandths.abs().max().item(), 1e-6)
    axis.imshow(thousandths.numpy(), cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    for row, column in thousandths.nonzero().tolist():
        value = thousandths[row, column].item()
        colour = "white" if abs(value) > 0.6 * largest else "black"
        axis.text(column, row, f"{value:+.3g}", ha="center", va="center", fontsize=7.5, color=colour)
    axis.axhline(GROUP - 0.5, color="black", linewidth=1)
    axis.set_xticks(range(2, RESPONSE_TOKENS, 3), labels=[str(i + 1) for i in range(2, RESPONSE_TOKENS, 3)], fontsize=8)
    axis.set_yticks(range(ROWS), labels=[_row_name(i) for i in range(ROWS)], fontsize=8)
    axis.tick_params(length=0)
    axis.set_xlabel("token of the response", fontsize=8, labelpad=1)


def _described(name: str, result: Result) -> str:
    if isinstance(result, str):
        return f"{estimator_title(name)}: no numbers."
    low, high = (1000 * result[1]).aminmax()
    return f"{estimator_title(name)}: {low:.3g} to {high:.3g}."


def _row_name(index: int) -> str:
    return f"{index + 1}" if index < GROUP else "group 2"
