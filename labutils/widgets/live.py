"""Training from the notebook: one try after another with chosen settings, their learning curves side by side."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import ipywidgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from labutils import training
from labutils.errors import LabError
from labutils.model import TemperedTransformer, Transformer
from labutils.plots import AXIS_LABELS, COLOURS, Picture
from labutils.results import estimator_title
from labutils.task import Problems
from labutils.training import Estimator, History, ReinforcementSettings, StepFunction, Summary
from labutils.widgets.display import DESCRIPTION, WIDE, Explorer, Shown, Text, TextTable, failure

METRICS = ("accuracy", "writes_states", "kl", "length")
AXIS_TOPS = {"accuracy": 1.05, "writes_states": 1.05, "kl": 3.0, "length": 12.5}  # unless a value lies above
TRY_COLOURS = [colour for name, colour in COLOURS.items() if name != "pretrained"]
SHORT = ReinforcementSettings(steps=100, evaluate_every=10, evaluation_problems=10)  # a try takes under 10 s

_one_training = threading.Lock()  # two at once would each take twice as long


@dataclass
class Try:
    """One training: its settings, and what has been measured so far (step -> metrics)."""

    name: str
    estimator: Estimator
    temperature: float
    settings: ReinforcementSettings
    history: dict[int, dict[str, float]] = field(default_factory=dict)
    steps: int = 0
    state: str = "training"


class _Stopped(Exception):
    pass


class LiveBench(Explorer):
    """See `live_bench`."""

    def __init__(
        self,
        start: Transformer,
        step_function: StepFunction,
        estimators: Mapping[str, Estimator],
        evaluate: Callable[[Transformer, torch.Generator], dict[str, float]],
        finished: list[History],
        settings: ReinforcementSettings,
    ):
        self.start, self.step_function, self.estimators = start, step_function, estimators
        self.evaluate, self.finished, self.settings = evaluate, finished, settings
        self.tries: list[Try] = []
        self.message = "Choose the settings and press Train."
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._make_controls()
        self._starting_values = self._measure_start()
        super().__init__(
            [self.estimator, self.group_size, self.step_size],
            [self.length_cost, self.temperature],
            [self.train, self.stop, self.reset],
        )

    def _make_controls(self) -> None:
        titles = [(estimator_title(name), name) for name in self.estimators]
        self.estimator = ipywidgets.Dropdown(options=titles, description="estimator", style=DESCRIPTION)
        self.length_cost = ipywidgets.FloatSlider(
            0.0,
            min=0.0,
            max=0.3,
            step=0.01,
            description="length cost (reward per token)",
            style=DESCRIPTION,
            layout={"width": WIDE},
        )
        self.temperature = ipywidgets.FloatSlider(
            1.0,
            min=0.5,
            max=2.0,
            step=0.1,
            description="temperature in training",
            style=DESCRIPTION,
            layout={"width": WIDE},
        )
        self.group_size = ipywidgets.SelectionSlider(
            options=[2, 4, 8, 16, 32], value=8, description="group size", style=DESCRIPTION
        )
        self.step_size = ipywidgets.SelectionSlider(
            options=[3e-5, 1e-4, 3e-4, 1e-3, 3e-3], value=3e-4, description="step size", style=DESCRIPTION
        )
        self.train = ipywidgets.Button(description="Train", button_style="primary")
        self.stop = ipywidgets.Button(description="Stop", disabled=True)
        self.reset = ipywidgets.Button(description="Reset")
        self._take_over_cost()
        self.estimator.observe(lambda _: self._take_over_cost(), "value")
        self.train.on_click(lambda _: self._start_training())
        self.stop.on_click(lambda _: self._stop.set())
        self.reset.on_click(lambda _: self._forget())

    def _take_over_cost(self) -> None:
        self.length_cost.value = self.estimators[self.estimator.value].length_cost

    def _measure_start(self) -> dict[str, float]:
        """The starting model's metrics; empty where the exercises that measure them fail, which the message says."""
        try:
            return self._measure(self.start, torch.Generator().manual_seed(training.EVALUATION_SEED))
        except LabError as error:
            self.message = str(error)
            return {}

    def _measure(self, policy: Transformer, generator: torch.Generator) -> dict[str, float]:
        """The metrics. Raises `LabError` where the exercises that measure them fail."""
        try:
            values = self.evaluate(policy, generator)
            return {metric: float(values[metric]) for metric in METRICS}
        except Exception as error:
            raise LabError(failure("evaluating the policy", error)) from error

    def wait(self) -> None:
        """Return when no training is under way."""
        if self._thread is not None:
            self._thread.join()

    def draw(self) -> list[Shown]:
        """The state of the training, the curves, and the table of tries."""
        return [
            Text(self.message),
            _picture(self.tries, self._starting_values, self.finished, self.settings.steps),
            _table(self.tries),
        ]

    def _start_training(self) -> None:
        if not _one_training.acquire(blocking=False):
            self.message = "A training is under way; stop it or wait until it ends."
            self.refresh()
            return
        estimator = replace(
            self.estimators[self.estimator.value],
            length_cost=self.length_cost.value,
            group_size=self.group_size.value,
        )
        settings = replace(self.settings, step_size=self.step_size.value, seed=len(self.tries))
        self.tries.append(Try(self.estimator.value, estimator, self.temperature.value, settings))
        self._stop.clear()
        self._set_running(True)
        self._thread = threading.Thread(target=self._run, args=(self.tries[-1],), daemon=True)
        self._thread.start()

    def _run(self, current: Try) -> None:
        self.message, begun = f"Try {len(self.tries)} is training.", time.monotonic()
        try:
            self._reinforce(current)
            current.state = "finished"
        except _Stopped:
            current.state = "stopped"
        except (Exception, SystemExit) as error:
            current.state = "failed"
            name = getattr(self.step_function, "__name__", "the step function")
            self.message = str(error) if isinstance(error, LabError) else failure(name, error)
        finally:
            if current.state != "failed":
                seconds = time.monotonic() - begun
                self.message = f"Try {len(self.tries)} {current.state} after {current.steps} steps, {seconds:.1f} s."
            self._set_running(False)
            self.refresh()
            _one_training.release()  # last, so that no other try starts before this one's buttons are set

    def _reinforce(self, current: Try) -> None:
        """Train one try; each evaluation is published as it comes."""

        def step_function(
            policy: Transformer,
            optimizer: torch.optim.Optimizer,
            problems: Problems,
            estimator: Estimator,
            generator: torch.Generator,
        ) -> dict[str, float]:
            if self._stop.is_set():
                raise _Stopped
            metrics = self.step_function(policy, optimizer, problems, estimator, generator)
            current.steps += 1
            return metrics

        def evaluate(policy: Transformer, generator: torch.Generator) -> dict[str, float]:
            assert isinstance(policy, TemperedTransformer)  # a copy of the policy below
            metrics = self._measure(policy.at_temperature_1(), generator)
            current.history[current.steps] = metrics
            self.refresh()
            return metrics

        policy = TemperedTransformer(self.start, current.temperature)
        with training.one_thread():  # leaves a core to the notebook, so that its buttons answer
            training.reinforce(
                policy, step_function, current.estimator, evaluate, current.settings, None, {}, progress=False
            )

    def _set_running(self, running: bool) -> None:
        self.train.disabled = self.reset.disabled = running
        self.stop.disabled = not running

    def _forget(self) -> None:
        self.tries.clear()
        self.message = "Choose the settings and press Train."
        self.refresh()


def live_bench(
    start: Transformer,
    step_function: StepFunction,
    estimators: Mapping[str, Estimator],
    summarize: Summary,
    kl_per_response: Callable[[Tensor, Tensor, Tensor], Tensor],
    curves: Mapping[str, Mapping[int, History]],
    settings: ReinforcementSettings = SHORT,
) -> LiveBench:
    """Choose an estimator and its settings, press Train, and watch the learning curves grow beside the earlier tries.

    curves: finished runs to compare with, estimator -> seed -> step -> metrics, drawn in grey as far as a try goes.

    Training runs in a thread of its own, one at a time, so that Stop works; it takes effect after the step under way.
    Try number i (from 0) trains with seed i. The temperature divides the logits of the policy while it trains, when
    it samples and when it is scored (`TemperedTransformer`); all evaluations are at temperature 1. Choosing an
    estimator sets the length cost to its own. A function that raises gives one line.

    settings: the sizes of a try; its step size and seed are replaced by the chosen ones.
    """
    problems = training.evaluation_set(settings.evaluation_problems)

    def evaluate(policy: Transformer, generator: torch.Generator) -> dict[str, float]:
        return training.evaluate_policy(policy, start, problems, summarize, kl_per_response, generator)

    finished = [run for seeds in curves.values() for run in seeds.values()]
    return LiveBench(start, step_function, estimators, evaluate, finished, settings)


def _picture(tries: list[Try], start: Mapping[str, float], finished: list[History], steps: int) -> Picture:
    figure = Figure(figsize=(10.4, 3.4))
    figure.subplots_adjust(left=0.055, right=0.99, top=0.97, bottom=0.24, wspace=0.3)
    for index, metric in enumerate(METRICS):
        axis = figure.add_subplot(1, len(METRICS), index + 1)
        if start:
            axis.axhline(start[metric], color="grey", linestyle=":", label="start")
        for number, run in enumerate(finished):
            points = [(step, metrics[metric]) for step, metrics in run.items() if step <= steps]
            label = None if number else "finished runs"
            axis.plot(*zip(*points, strict=True), color="silver", linewidth=0.8, label=label)
        for number, item in enumerate(tries):
            _draw_try(axis, number, item, metric, latest=item is tries[-1])
        axis.set_xlim(0, 1.08 * steps)
        axis.set_ylim(0, max(AXIS_TOPS[metric], axis.get_ylim()[1]))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("training step")
        axis.set_ylabel(AXIS_LABELS[metric], fontsize=8.5)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, fontsize=9, frameon=False)
    alt = (
        "Accuracy, rate of writing the states, KL from the pretrained model and response length against the training "
        f"step; dotted the start, grey {len(finished)} finished runs; tries: {len(tries)}, their latest values in the "
        "table."
    )
    return Picture(figure, alt)


def _draw_try(axis: Axes, number: int, item: Try, metric: str, latest: bool) -> None:
    """A line with the try's number at its end; the latest is thick."""
    points = [(step, metrics[metric]) for step, metrics in list(item.history.items())]  # the thread adds to it
    if not points:
        return
    colour = TRY_COLOURS[number % len(TRY_COLOURS)]
    style = ("-", "--", ":")[number // len(TRY_COLOURS) % 3]
    label = f"{number + 1}: {estimator_title(item.name)}"
    axis.plot(*zip(*points, strict=True), style, color=colour, linewidth=2.2 if latest else 0.9, label=label)
    place, offset = points[-1], (3, 0)
    if math.isfinite(place[1]):
        axis.annotate(str(number + 1), place, offset, textcoords="offset points", va="center", fontsize=9, color=colour)


def _table(tries: list[Try]) -> TextTable:
    header = [
        "try", "estimator", "length cost", "temperature", "group size", "step size", "state", "step",
        "accuracy", "writes states", "KL", "length",
    ]  # fmt: skip
    rows = []
    for number, item in enumerate(tries, 1):
        latest = item.history[max(item.history)] if item.history else {}
        rows.append(
            [
                str(number),
                estimator_title(item.name),
                f"{item.estimator.length_cost:.2f}",
                f"{item.temperature:.1f}",
                str(item.estimator.group_size),
                f"{item.settings.step_size:g}",
                item.state,
                str(max(item.history, default=0)),
                *(f"{latest[metric]:.2f}" if metric in latest else "-" for metric in METRICS),
            ]
        )
    return TextTable(header, rows)
