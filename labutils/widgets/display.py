"""What the explorers share: controls above a panel, the static picture, digits typed by hand, errors in one line."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from torch import Tensor

from labutils.errors import LabError
from labutils.plots import Picture
from labutils.task import ARROW, MAX_DIGITS, MIN_DIGITS, Problems, decode, writes_states
from labutils.verifier import verify

DIRECT_COLOUR, WORKED_COLOUR, OTHER_COLOUR = "#E69F00", "#56B4E9", "#BBBBBB"  # Okabe and Ito's, and grey
LONGEST_MESSAGE = 160  # characters of an exception's message that are shown
DESCRIPTION = {"description_width": "initial"}  # a label is as wide as its text instead of being cut
WIDE = "380px"  # of a slider with a long label


@dataclass(frozen=True)
class Text:
    """Lines of text, shown in a fixed-width font."""

    text: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {
            "text/html": f'<pre style="white-space: pre-wrap">{html.escape(self.text)}</pre>',
            "text/plain": self.text,
        }


@dataclass(frozen=True)
class TextTable:
    """A table of texts: one header cell for each column, then the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        style = "text-align: left; padding: 1px 14px 1px 0; white-space: pre; line-height: 1.4"
        lines = [
            "".join(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>' for cell in row)
            for tag, row in [("th", self.header), *(("td", row) for row in self.rows)]
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return {"text/html": f"<table>{body}</table>", "text/plain": self._plain()}

    def _plain(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
        )


Shown = Picture | Text | TextTable


class Explorer(ABC):
    """Controls above a panel that shows what `draw` returns for their values.

    A notebook shows it as one output: the widget, and beside it the panel's content as HTML and as text, which
    front ends without widgets show instead. `html` and `text` hold that content.
    """

    def __init__(self, *rows: Sequence[ipywidgets.Widget]):
        layout = {"flex_flow": "row wrap", "grid_gap": "0 14px"}
        boxes = [ipywidgets.HBox(row, layout=layout) for row in rows]
        self._panel = ipywidgets.HTML()
        self._view = ipywidgets.VBox([*boxes, self._panel])
        self.text = ""
        self.refresh()

    @abstractmethod
    def draw(self) -> list[Shown]:
        """What the panel shows at the controls' values. Raises `LabError` for a value that is not allowed."""

    @property
    def html(self) -> str:
        """The panel's content as HTML."""
        return self._panel.value

    def refresh(self, _: Any = None) -> None:
        """Draw again; a control's or button's callback. A value that is not allowed gives one line."""
        try:
            shown = self.draw()
        except LabError as error:
            shown = [Text(str(error))]
        bundles = [item._repr_mimebundle_() for item in shown]
        self.text = "\n\n".join(bundle["text/plain"] for bundle in bundles)
        self._panel.value = "\n".join(bundle["text/html"] for bundle in bundles)

    def refresh_on(self, *controls: ipywidgets.Widget) -> None:
        """Draw again whenever one of the controls has a new value."""
        for control in controls:
            control.observe(self.refresh, "value")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {**self._view._repr_mimebundle_(), "text/html": self.html, "text/plain": self.text}


def digits_field(digits: str) -> ipywidgets.Text:
    """A text field for the digits of a problem; `read_digits` reads it."""
    return ipywidgets.Text(
        digits,
        description="digits (then Enter)",
        placeholder=f"{MIN_DIGITS} to {MAX_DIGITS} digits",
        continuous_update=False,
        style=DESCRIPTION,
    )


def temperature_slider() -> ipywidgets.FloatSlider:
    """A slider for the sampling temperature, 0.1 to 2, at 1."""
    return ipywidgets.FloatSlider(
        1.0, min=0.1, max=2.0, step=0.1, description="temperature", continuous_update=False, style=DESCRIPTION
    )


def read_digits(text: str) -> Problems:
    """The one problem with the digits in `text`; spaces and commas between them are ignored.

    Raises `LabError` unless there are 2 to 8 digits and nothing else.
    """
    digits = text.replace(" ", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit() and MIN_DIGITS <= len(digits) <= MAX_DIGITS):
        raise LabError(f"digits {text!r}; allowed are {MIN_DIGITS} to {MAX_DIGITS} digits, each 0 to 9")
    return Problems.from_digits([[int(digit) for digit in digits]])


def in_words(problem: Problems, responses: Tensor) -> list[tuple[str, str, str]]:
    """For each of the responses (B, R) to one problem: its text, "direct", "worked" or "other", "right" or "wrong".

    Direct responses start with `>`, worked ones with `:`.
    """
    correct = verify(problem.repeat_interleave(len(responses)), responses).tolist()
    worked, direct = writes_states(responses).tolist(), (responses[:, 0] == ARROW).tolist()
    return [
        (
            decode(response),
            "worked" if worked[i] else "direct" if direct[i] else "other",
            "right" if correct[i] else "wrong",
        )
        for i, response in enumerate(responses)
    ]


def failure(name: str, error: BaseException) -> str:
    """One line that says what the function `name` raised."""
    message = " ".join(str(error).split())
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + " ..."
    return f"{name} raised {type(error).__name__}" + (f": {message}" if message else "")
