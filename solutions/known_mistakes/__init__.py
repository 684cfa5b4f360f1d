"""The bank of known mistakes: wrong and correct variants of every exercise, one module each.

A self-check is held to it: every wrong variant fails, nine in ten are named, and no correct variant is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Function = Callable[..., Any]


@dataclass
class Bank:
    """The variants of one exercise.

    mistakes: name of the mistake, one line that a student reads -> the wrong function.
    correct: how it is written -> a function that is right.
    """

    exercise: str
    mistakes: dict[str, Function] = field(default_factory=dict)
    correct: dict[str, Function] = field(default_factory=dict)

    def mistake(self, name: str) -> Callable[[Function], Function]:
        """Register the decorated function as a wrong variant. The name completes "In your function, ..."."""
        return self._register(self.mistakes, name)

    def right(self, name: str) -> Callable[[Function], Function]:
        """Register the decorated function as a correct variant, written differently from the reference."""
        return self._register(self.correct, name)

    def _register(self, variants: dict[str, Function], name: str) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            if name in self.mistakes or name in self.correct:
                raise ValueError(f"two variants of {self.exercise} are called {name!r}")
            function.__name__ = self.exercise  # by which a check knows its exercise
            variants[name] = function
            return function

        return register
