"""What a self-check says: as text, and as HTML in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from labutils.results import CHECK_MIME


@dataclass(frozen=True)
class Report:
    """The outcome of a self-check.

    exercise: name of the function. passed: every case passed. score: share of the cases that passed, 0 to 1.
    diagnosis: None, or one sentence that names the mistake and shows what came and what was expected.
    cases: (what is looked at, whether it passed), in order.
    example: the first failing case in full: inputs, expected and got; empty where there is none.
    notes: what else is worth knowing, such as what the function printed.
    """

    exercise: str
    passed: bool
    score: float
    diagnosis: str | None = None
    cases: tuple[tuple[str, bool], ...] = ()
    example: str = ""
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """One line: the exercise, passed or not, and how many cases passed."""
        right = sum(passed for _, passed in self.cases)
        return f"{self.exercise}: {_verdict(self.passed)}, {right} of {len(self.cases)} cases"

    def __str__(self) -> str:
        lines = [self.title]
        if self.diagnosis:
            lines += ["", self.diagnosis]
        if self.example:
            lines += ["", self.example]
        lines += ["", *(f"  {_verdict(passed):10} {name}" for name, passed in self.cases)]
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """HTML that takes its text colour from the page, so that it reads on light and on dark."""
        border = "#009E73" if self.passed else "#D55E00"
        parts = [f"<p><strong>{html.escape(self.title)}</strong></p>"]
        if self.diagnosis:
            parts.append(f"<p>{html.escape(self.diagnosis)}</p>")
        if self.example:
            parts.append(f'<pre style="background: none; color: inherit">{html.escape(self.example)}</pre>')
        items = "".join(f"<li>{_verdict(passed)}: {html.escape(name)}</li>" for name, passed in self.cases)
        opened = "" if self.passed else " open"
        parts.append(f"<details{opened}><summary>all cases</summary><ul>{items}</ul></details>")
        parts += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return f'<div style="border-left: 5px solid {border}; padding-left: 1em">{"".join(parts)}</div>'

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        data = {
            "exercise": self.exercise,
            "passed": self.passed,
            "score": self.score,
            "diagnosis": self.diagnosis,
        }
        return {"text/plain": str(self), "text/html": self._repr_html_(), CHECK_MIME: data}


def _verdict(passed: bool) -> str:
    return "✓ passed" if passed else "✗ failed"
