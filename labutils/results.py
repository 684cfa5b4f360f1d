"""The lab's tables: their text, laid out as in the course, and the expected values beside them.

part1 is metric -> digits -> value, and so is part1_shipped, of the checkpoint that comes with the lab; part2 is
estimator -> step -> metric -> value; part3 is model -> metric -> digits -> value, with pass_at_k -> digits -> k ->
value among the metrics. The tables of the experiments are what tells a run apart -> metric -> value.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from labutils.errors import LabError
from labutils.tolerance import Deviation, Table, bands, deviations, entries, is_number

Keys = tuple[str, ...]  # what leads to one number of a table
Rows = list[tuple[tuple[str, ...], list[list[Keys]]]]  # labels, and the numbers in each column

TABLE_MIME = "application/vnd.lab16.table+json"
CHECK_MIME = "application/vnd.lab16.check+json"
PART2_METRICS = ("accuracy", "writes_states", "kl")
PART2_LEGEND = "accuracy / rate of writing the states / KL from the pretrained model (nats per response)"
METRICS = {"accuracy": "accuracy", "writes_states": "writes states", "length": "length"}
EXPERIMENT_METRICS = METRICS | {
    "take_off": "take-off (step)",
    "writes_states_2": "writes, 2 digits",
    "writes_states_4": "writes, 4 digits",
    "writes_states_8": "writes, 8 digits",
    "kl": "KL (nats)",
    "reward": "accepted",
    "length_right": "length if right",
    "length_wrong": "length if wrong",
}
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
    "part1_shipped": "Part 1: the pretrained model that comes with the lab, by number of digits",
    "part2": "Part 2: reinforcement learning, five estimators, mean of the seeds",
    "part3": "Part 3: before and after reinforcement learning, by number of digits",
    "rare": "Rarer demonstrations",
    "habit": "Breaking the habit",
    "kl": "KL regularization",
    "hacking": "Reward hacking",
    "length": "Length bias",
}


def estimator_title(name: str) -> str:
    """The estimator's name as it is written in tables and figures; a student's own stays as it is."""
    return ESTIMATOR_TITLES.get(name, name)


def course_tables() -> dict[str, Table]:
    """The course's numbers, of the full profile, in the layout of `tables.json`."""
    tables: dict[str, Table] = json.loads(
        files("labutils").joinpath("data", "expected.json").read_text(encoding="utf-8")
    )["full"]
    return tables


def band_means(bands: Table) -> dict[str, Any]:
    """The mean of the correct runs behind each band, nested like the bands."""
    return {key: band_means(value) if isinstance(value, Mapping) else value[2] for key, value in bands.items()}


def notebook_view(part: str, profile: str, table: Table) -> TableView:
    """The table as a notebook shows it. Expected are the means of correct runs, which start from the same model."""
    found = bands(profile, part)
    return TableView(part, profile, table, found and band_means(found), found, "the mean of correct runs")


def require_finite(name: str, table: Table) -> None:
    """Raise `LabError` for a value of nested tables that is no finite number, naming it by its keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            require_finite(f"{name} {key}", value)
        elif not is_number(value):
            raise LabError(f"{name} {key} is {value!r}; every number of a table must be finite")


def mean_of_seeds(curves: Table) -> dict[str, Any]:
    """Part 2's table from its curves: estimator -> seed -> step -> metric becomes estimator -> step -> metric."""
    table: dict[str, Any] = {}
    for estimator, seeds in curves.items():
        runs = list(seeds.values())
        table[estimator] = {
            str(step): {metric: sum(run[step][metric] for run in runs) / len(runs) for metric in PART2_METRICS}
            for step in runs[0]
        }
    return table


@dataclass(frozen=True)
class Block:
    """Rows of a table under one heading.

    heading: names of the label columns. columns: names of the others. forms: how the numbers of a cell are written.
    expected_labels, label_widths, width: of the text form, in characters.
    """

    heading: tuple[str, ...]
    columns: list[str]
    rows: Rows
    forms: tuple[str, ...]
    expected_labels: tuple[str, ...]
    label_widths: tuple[int, ...]
    width: int = 8

    def line(self, labels: Sequence[str], cells: Sequence[str]) -> str:
        """A line of the text form."""
        start = "".join(f"{label:<{width}}" for label, width in zip(labels, self.label_widths, strict=True))
        return "  " + start + "".join(f"{cell:>{self.width}}" for cell in cells)


@dataclass(frozen=True)
class TableView:
    """A part's table as text, as HTML and as numbers, with the expected value and the band of each number.

    part: one of TITLES. expected, bands: nested like the table, None where there are
    none. source: of the expected values, "the course" or "the mean of correct runs". A number outside its band is
    marked "!" in either form.
    """

    part: str
    profile: str
    table: Table
    expected: Table | None = None
    bands: Table | None = None
    source: str = "the course"

    def __str__(self) -> str:
        lines = [f"=== {self._title()} ==="]
        if self.part == "part2":
            lines.append(f"  {PART2_LEGEND}")
        for block in _blocks(self.part, self.table):
            lines.append(block.line(block.heading, block.columns))
            for labels, cells in block.rows:
                lines.append(block.line(labels, [self._text(block, cell) for cell in cells]))
                if self.expected:
                    expected = [_numbers_text(self.expected, block, cell) for cell in cells]
                    lines.append(block.line(block.expected_labels, expected))
        return "\n".join(lines + [f"  {line}" for line in self._verdict()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        numbers = {"part": self.part, "profile": self.profile, "table": self.table}
        return {"text/plain": str(self), "text/html": self._html(), TABLE_MIME: numbers}

    def _title(self) -> str:
        return TITLES[self.part] + ("" if self.expected else " (no expected values for this profile)")

    def _text(self, block: Block, cell: list[Keys]) -> str:
        return _numbers_text(self.table, block, cell) + ("!" if self._is_outside(cell) else "")

    @cached_property
    def _outside(self) -> list[Deviation]:
        return [] if self.bands is None else deviations(self.table, self.bands)

    def _is_outside(self, cell: list[Keys]) -> bool:
        return any(deviation.path in cell for deviation in self._outside)

    def _verdict(self) -> list[str]:
        if self.bands is None:
            return []
        count = sum(1 for _ in entries(self.bands))
        if not self._outside:
            return [f"all {count} numbers lie in their bands"]
        heading = f"{len(self._outside)} of {count} numbers lie outside their bands (marked !):"
        return [heading, *(f"  {deviation}" for deviation in self._outside)]

    def _html(self) -> str:
        legend = f"<p>{PART2_LEGEND}</p>" if self.part == "part2" else ""
        shown = [f"the expected value, {self.source}", *(["the band of correct runs"] if self.bands else [])]
        key = f"<p>In each cell: your number; <small>{'; '.join(shown)}.</small></p>"
        tables = "".join(self._block_html(block) for block in _blocks(self.part, self.table))
        verdict = "".join(f"<br>{html.escape(line)}" for line in self._verdict())
        return f"<p><b>{self._title()}</b>{verdict}</p>{legend}{key if self.expected else ''}{tables}"

    def _block_html(self, block: Block) -> str:
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in (*block.heading, *block.columns))
        rows = ""
        for labels, cells in block.rows:
            names = "".join(f'<th style="text-align:left">{html.escape(label)}</th>' for label in labels)
            rows += f"<tr>{names}{''.join(self._cell_html(block, cell) for cell in cells)}</tr>"
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def _cell_html(self, block: Block, cell: list[Keys]) -> str:
        style = "border:2px solid #D55E00;" if self._is_outside(cell) else ""
        lines = [f"<b>{self._text(block, cell)}</b>"]
        if self.expected:
            lines.append(f"<small>{_numbers_text(self.expected, block, cell)}</small>")
        if self.bands:
            lines.append(f"<small>{_bands_text(self.bands, block, cell)}</small>")
        return f'<td style="text-align:right;white-space:nowrap;{style}">{"<br>".join(lines)}</td>'


def _blocks(part: str, table: Table) -> list[Block]:
    layouts = {"part1": _part1, "part1_shipped": _part1, "part2": _part2, "part3": _part3}
    return layouts.get(part, _experiment)(table)


def _part1(table: Table) -> list[Block]:
    digits = _in_order(table["accuracy"])
    rows: Rows = [((title,), [[(metric, n)] for n in digits]) for metric, title in METRICS.items()]
    return [Block(("digits",), digits, rows, ("{:.2f}",), ("  expected",), (18,))]


def _part2(table: Table) -> list[Block]:
    names = _in_order(table, ESTIMATOR_TITLES)
    titles = [estimator_title(name) for name in names]
    steps = _in_order(next(iter(table.values())))
    rows: Rows = [((step,), [[(name, step, metric) for metric in PART2_METRICS] for name in names]) for step in steps]
    return [Block(("step",), titles, rows, ("{:.2f}", "{:.2f}", "{:4.1f}"), ("expect",), (8,), 22)]


def _part3(table: Table) -> list[Block]:
    digits = _in_order(table["pretrained"]["accuracy"])
    rows: Rows = [
        ((METRICS[metric] if model == "pretrained" else "", title), [[(model, metric, n)] for n in digits])
        for metric in METRICS
        for model, title in MODEL_TITLES.items()
    ]
    by_length = Block(("digits", ""), digits, rows, ("{:.2f}",), ("", "expected"), (15, 15))
    first = table["pretrained"]["pass_at_k"]
    ks = _in_order(next(iter(first.values())))
    rows = [
        ((n if model == "pretrained" else "", MODEL_TITLES[model]), [[(model, "pass_at_k", n, k)] for k in ks])
        for n in _in_order(first)
        for model in MODEL_TITLES
        if "pass_at_k" in table[model]
    ]
    titles = [f"pass@{k}" for k in ks]
    return [by_length, Block(("digits", "model"), titles, rows, ("{:.3f}",), ("", "expected"), (15, 15))]


def _experiment(table: Table) -> list[Block]:
    metrics = [metric for metric in EXPERIMENT_METRICS if any(metric in row for row in table.values())]
    rows: Rows = [((label,), [[(label, metric)] for metric in metrics]) for label in sorted(table)]
    titles = [EXPERIMENT_METRICS[metric] for metric in metrics]
    return [Block(("settings",), titles, rows, ("{:.2f}",), ("  expected",), (max(map(len, table)) + 2,), 18)]


def _in_order(keys: Iterable[str], first: Iterable[str] = ()) -> list[str]:
    """Numbers by size, after the names in `first`, before all others: a saved notebook keeps no order."""
    names = list(first)
    place = {name: number - len(names) for number, name in enumerate(names)}
    return sorted(keys, key=lambda key: place.get(key, int(key) if key.isdecimal() else sys.maxsize))


def _numbers_text(table: Table, block: Block, cell: list[Keys]) -> str:
    values = [_lookup(table, keys) for keys in cell]
    if None in values:
        return "-"
    return " / ".join(_number_text(form, value) for form, value in zip(block.forms, values, strict=True))


def _bands_text(bands: Table, block: Block, cell: list[Keys]) -> str:
    texts = []
    for form, keys in zip(block.forms, cell, strict=True):
        band = _lookup(bands, keys)
        texts.append("-" if band is None else "\u2013".join(_number_text(form, limit).strip() for limit in band[:2]))
    return " / ".join(texts)


def _number_text(form: str, value: float) -> str:
    text = form.format(value)
    return text if any(digit in text for digit in "123456789") else text.replace("-", " ")  # no "-0.0"


def _lookup(table: Any, keys: Keys) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table
