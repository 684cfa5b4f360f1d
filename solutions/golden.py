"""Writes the golden data of the self-checks, `python solutions/golden.py`, which `make notebooks` does too.

labutils/data/checks/EXERCISE.json          outcomes of the reference solution and of the bank of known mistakes
labutils/data/checks/scripted.safetensors   the scripted model, trained only where the file is missing: another machine
                                            trains it to other bits, and all golden data would change with them
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import lab16_llm_rl
import torch
from known_mistakes import Bank, Function

import labutils
from labutils.checkpoints import save_model, write_json
from labutils.checks import CASES, observe
from labutils.checks.models import SCRIPTED_CONFIG, UNUSED, scripted_problems, scripted_responses
from labutils.checks.values import first_difference
from labutils.model import Transformer
from labutils.task import PROMPT_TOKENS, VOCABULARY, encode_prompts, response_mask

FOLDER = Path(labutils.__file__).parent / "data" / "checks"
SCRIPTED_MODEL = FOLDER / "scripted.safetensors"
SECONDS = 20.0  # of CPU time: more than a check has, so that a slow machine writes no time-outs into the data
# Correct variants whose outcomes are right, too, where the specification leaves a choice.
ALSO_RIGHT = {"grpo_advantages": ["without Bessel's correction, 1e-6 added"]}


def bank(exercise: str) -> Bank:
    """The variants of the exercise."""
    return importlib.import_module(f"known_mistakes.{exercise}").bank


def exercises() -> list[str]:
    """The exercises of parts 1 to 3: the functions of the reference solution between whose markers a student writes."""
    source = Path(lab16_llm_rl.__file__).read_text(encoding="utf-8")
    return re.findall(r"^def (\w+)\((?:(?!^def )[\s\S])*?### BEGIN SOLUTION", source, re.MULTILINE)


def write() -> None:
    """Write all golden data. A second call changes nothing."""
    if not SCRIPTED_MODEL.exists():
        save_model(SCRIPTED_MODEL, train_scripted_model(), {"made by": "solutions/golden.py"})
    for exercise in CASES:
        write_json(FOLDER / f"{exercise}.json", golden_data(exercise))


def golden_data(exercise: str) -> dict[str, Any]:
    """What `labutils.checks.golden` reads: the right outcomes, and those of each mistake where it differs."""
    expected = right_outcomes(exercise)
    mistakes = {name: wrong_outcomes(function, expected) for name, function in bank(exercise).mistakes.items()}
    return {"expected": expected, "mistakes": mistakes}


def right_outcomes(exercise: str) -> dict[str, list[Any]]:
    """Case -> what is right: what theory gives or else the reference solution, and what is right besides."""
    known, cases = bank(exercise), CASES[exercise]
    right = [getattr(lab16_llm_rl, exercise), *(known.correct[name] for name in ALSO_RIGHT.get(exercise, []))]
    measured = [observe(function, SECONDS).outcomes for function in right]
    expected: dict[str, list[Any]] = {}
    for case in cases:
        expected[case.name] = [case.exact] if case.exact is not None else []
        for outcome in (found[case.name] for found in measured):
            if not any(first_difference(outcome, other, case.tolerance) is None for other in expected[case.name]):
                expected[case.name].append(outcome)
    return expected


def wrong_outcomes(function: Function, expected: dict[str, list[Any]]) -> dict[str, Any]:
    """Case -> outcome where it is wrong, None where it is another with another seed."""
    exercise = function.__name__
    found, other = (observe(function, SECONDS, seed).outcomes for seed in (0, 1000))
    wrong = {}
    for case in CASES[exercise]:
        outcome = found[case.name]
        if all(first_difference(outcome, right, case.tolerance) for right in expected[case.name]):
            steady = first_difference(outcome, other[case.name], case.tolerance) is None
            wrong[case.name] = outcome if steady else None
    return wrong


def train_scripted_model() -> Transformer:
    """Fit the script: each of its tokens certain, unused tokens at 1e-11 to 1e-9, all others below 1e-11."""
    torch.manual_seed(0)
    model = Transformer(SCRIPTED_CONFIG).double()
    problems, responses = scripted_problems(), scripted_responses()
    sequences, mask = torch.cat([encode_prompts(problems), responses], 1)[:, :-1], response_mask(responses)
    unused = torch.tensor(UNUSED)
    wanted = -24.5 + 3 * torch.rand(int(mask.sum()), len(UNUSED), dtype=torch.float64)
    other = torch.ones(int(mask.sum()), VOCABULARY, dtype=torch.bool).scatter_(1, responses[mask][:, None], False)
    other[:, unused] = False
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2500)
    for _ in range(2500):
        logits = model(sequences)[:, PROMPT_TOKENS - 1 :][mask]
        # Differences of logits and not log-probs, whose gradient vanishes where a wrong token is certain.
        behind = logits - logits.gather(1, responses[mask][:, None])
        loss = (behind[:, unused] - wanted).square().mean() + (behind + 28).relu()[other].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.float()


if __name__ == "__main__":
    write()
