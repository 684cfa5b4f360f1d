"""Golden data: the right outcome of every case, and the outcomes of known mistakes. Numbers and words, no code.

labutils/data/checks/EXERCISE.json is {"expected": {case: [right outcome, other right outcomes]}, "mistakes": {name:
{case: outcome}}}, where a mistake holds the cases in which it differs from the expected. null stands for a wrong
outcome that is another each time. `solutions/golden.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from labutils.checks.values import Plain, first_difference


@dataclass(frozen=True)
class Golden:
    """expected: case -> right outcomes, of which any will do. mistakes: name -> case -> outcome where it is wrong."""

    expected: Mapping[str, list[Plain]]
    mistakes: Mapping[str, Mapping[str, Plain]]

    def is_right(self, case: str, outcome: Plain, tolerance: float) -> bool:
        """Whether the outcome is one of the right ones."""
        return any(first_difference(outcome, right, tolerance) is None for right in self.expected[case])

    def name_mistake(self, outcomes: Mapping[str, Plain], tolerances: Mapping[str, float]) -> str | None:
        """The known mistake whose outcomes these are in every case, None if there is none.

        A function that raises in every case is not named: everybody's errors look alike. Nor is one whose outcomes are
        those of two mistakes.
        """
        wrong = {case for case in outcomes if not self.is_right(case, outcomes[case], tolerances[case])}
        if all(isinstance(outcome, str) and outcome.startswith("raised ") for outcome in outcomes.values()):
            return None
        names = [
            name
            for name, mistake in self.mistakes.items()
            if mistake.keys() == wrong
            and all(
                mistake[case] is None or first_difference(outcomes[case], mistake[case], tolerances[case]) is None
                for case in wrong
            )
        ]
        return names[0] if len(names) == 1 else None


@cache
def read_golden(exercise: str) -> Golden:
    """The golden data of the exercise."""
    data = json.loads(files("labutils").joinpath("data", "checks", f"{exercise}.json").read_text(encoding="utf-8"))
    return Golden(data["expected"], data["mistakes"])
