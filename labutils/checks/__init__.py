"""Self-checks: whether a student's function is right, and if not, which mistake it makes.

Every exercise has cases: fixed inputs, and an outcome in plain data. The outcomes are compared with golden data: the
right ones, and those of known mistakes, by which a mistake is named.

    guard    runs the function under limits         values   outcomes as plain data
    case     what a case is                         models   small models with known predictions
    part1, sampling, part2, step, part3, further    the cases of each exercise
    golden   outcomes, right and of known mistakes  report   what is shown
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from labutils.checks import further, part1, part2, part3, sampling, step
from labutils.checks.case import Case
from labutils.checks.golden import read_golden
from labutils.checks.guard import WAIT, Guarded, Interrupted, Stopped, limits, name_and_text
from labutils.checks.report import Report
from labutils.checks.values import Finding, Plain, block, first_difference, plain, short
from labutils.errors import LabError
from labutils.model import Transformer
from labutils.task import PAD, Problems
from labutils.training import one_thread

__all__ = ["CASES", "Observation", "Report", "check", "observe"]

CASES: Mapping[str, Sequence[Case]] = {
    **part1.CASES,
    **sampling.CASES,
    **part2.CASES,
    **step.CASES,
    **part3.CASES,
    **further.CASES,
}
SECONDS = 1.7  # of CPU time, for all cases of a check together, which leaves time to report within two


def check(function: Callable[..., Any]) -> Report:
    """Whether the function is right, by its name's exercise; never raises for what the function does.

    Raises `LabError` when its name is no exercise's.
    """
    exercise = getattr(function, "__name__", "")
    if exercise not in CASES:
        raise LabError(f"{exercise!r} has no self-check; allowed are functions called {', '.join(CASES)}")
    return _report(exercise, observe(function, SECONDS))


@dataclass
class Observation:
    """What a function did. outcomes: case -> outcome, of the cases that the time sufficed for.

    details: case -> its outcome in more words, where there are any. stopped: the time was up. printed: what it printed.
    """

    outcomes: dict[str, Plain] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    printed: str = ""


def observe(function: Callable[..., Any], seconds: float, seed: int = 0) -> Observation:
    """What the function does in every case, within the seconds of CPU time for all of them together.

    seed: of all that is drawn, so that what a check says does not change from one time to the next.
    """
    if function.__name__ in step.CASES:
        step.warm_up()
    observed = Observation()
    try:
        with one_thread(), torch.random.fork_rng(devices=[]), limits(function, seconds) as output:
            torch.manual_seed(2**20 + seed)  # no seed that a student would set, which would go unnoticed
            for case in CASES[function.__name__]:
                _observe_case(case, Guarded(function, seed), observed)
    except Stopped:
        observed.stopped = True
    except Interrupted:
        raise KeyboardInterrupt from None
    observed.printed = output.text
    return observed


def _observe_case(case: Case, function: Guarded, observed: Observation) -> None:
    try:
        observed.outcomes[case.name] = case.outcome(function, case.inputs())
    except Finding as finding:
        observed.outcomes[case.name], observed.details[case.name] = finding.word, finding.detail
    except Exception as error:  # what came is of a shape or kind that the case did not think of
        observed.outcomes[case.name] = "something that cannot be used"
        observed.details[case.name] = f"something that cannot be used ({': '.join(name_and_text(error))})"


def _report(exercise: str, observed: Observation) -> Report:
    known, cases, found = read_golden(exercise), CASES[exercise], observed.outcomes
    passed = {
        case.name: case.name in found and known.is_right(case.name, found[case.name], case.tolerance) for case in cases
    }
    failing = next((case for case in cases if not passed[case.name]), None)
    report = Report(
        exercise,
        passed=failing is None,
        score=sum(passed.values()) / len(cases),
        cases=tuple(passed.items()),
        notes=(f"It printed: {observed.printed}",) if observed.printed else (),
    )
    if failing is None:
        return report
    if failing.name not in found:
        time = f"{SECONDS:g} seconds of computing, or {WAIT * SECONDS:g} in all,"
        return replace(report, diagnosis=f"{failing.name}: did not finish within {time} and was stopped")
    if found[failing.name] == "not written yet":
        return replace(report, diagnosis=observed.details[failing.name])
    got, right = observed.details.get(failing.name, found[failing.name]), known.expected[failing.name][0]
    mistake = None if observed.stopped else known.name_mistake(found, {case.name: case.tolerance for case in cases})
    diagnosis = _sentence(mistake or failing.name, got, right, failing.tolerance)
    return replace(report, diagnosis=diagnosis, example=_example(failing, block(got), block(right)))


def _sentence(what: str, got: Plain, right: Plain, tolerance: float) -> str:
    """The diagnosis; beside an outcome in words, only an expected one that is short."""
    pair = first_difference(got, right, tolerance) or (got, right)
    if isinstance(pair[1], (list, dict)):
        return f"{what}: {pair[0]}"
    return f"{what}: got {short(*pair)}, expected {short(*reversed(pair))}"


def _example(case: Case, got: str, expected: str) -> str:
    """The case in full, one block for each input, for what came and for what was expected."""
    parts = [f"Case: {case.name}"]
    shown = {name: _shown(value) for name, value in case.inputs().items()}
    for name, text in {**shown, "expected": expected, "got": got}.items():
        parts.append(f"{name} =" + ("\n" + text if "\n" in text else f" {text}"))
    return "\n".join(parts)


def _shown(value: Any) -> str:
    """An input as a report prints it."""
    if isinstance(value, Problems):
        return block([[digit for digit in row if digit != PAD] for row in value.digits.tolist()])
    if isinstance(value, Tensor):
        return block(plain(value.tolist()))
    if isinstance(value, Transformer):
        return "a small transformer"
    return block(value)
