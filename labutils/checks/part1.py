"""The cases of part 1's exercises, but for sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from labutils.checks.case import Case, Inputs, call_case, gradient_of
from labutils.checks.guard import Guarded
from labutils.checks.models import scripted_model
from labutils.checks.values import Plain, named_numbers, tensor_values, whole_numbers
from labutils.task import ARROW, COLON, END, PAD, Problems, encode_prompts, response_mask

DIGITS = ([4, 7, 1], [0, 0], [9, 9], [3, 0, 5, 0], [1, 9, 7, 5, 3, 1, 9, 7])


def _of_digits(digits: list[int]) -> Case:
    return call_case(f"the digits {_text(digits)}", whole_numbers, lambda: {"digits": list(digits)})


def _response_case(digits: list[int], worked: bool) -> Case:
    name = f"the {'worked' if worked else 'direct'} answer to {_text(digits)}"
    return call_case(name, whole_numbers, lambda: {"digits": list(digits), "worked": worked})


def _text(digits: list[int]) -> str:
    return " ".join(map(str, digits))


# response_log_probs ----------------------------------------------------------------------------------------------

# Beside right ones: padding sampled before `<end>`, tokens after `<end>`, no `<end>` at all, `<end>` first.
SCORED = (
    ([4, 7, 1], [ARROW, 8, END, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD]),
    ([4, 7, 1], [COLON, 4, 9, 8, ARROW, 8, END, PAD, PAD, PAD, PAD, PAD]),
    ([2, 5], [ARROW, PAD, 3, PAD, ARROW, 1, END, 5, END, ARROW, 7, PAD]),
    ([6, 0, 6, 0, 6, 0, 6, 0], [COLON, 1, COLON, PAD, ARROW, 2, ARROW, 3, COLON, 5, 6, 7]),
    ([9, 8], [END, ARROW, 3, END, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD]),
)


def _scored(*rows: int, columns: int = 12) -> Inputs:
    chosen = [SCORED[row] for row in rows]
    return {
        "model": scripted_model(sharpness=0.15),
        "prompts": encode_prompts(Problems.from_digits([digits for digits, _ in chosen])),
        "responses": torch.tensor([response[:columns] for _, response in chosen]),
    }


def _value(function: Guarded, inputs: Inputs) -> Plain:
    return tensor_values(function(*inputs.values()))


def _score_gradient(function: Guarded, inputs: Inputs) -> Plain:
    """The gradient of the summed log-probs at the output bias: 15 numbers, one per token."""
    log_probs = function(*inputs.values())
    tensor_values(log_probs)
    return gradient_of(function, torch.sum(log_probs), inputs["model"].head.bias)


SCORING = [
    Case("a direct and a worked answer", partial(_scored, 0, 1), _value),
    Case("a single response", partial(_scored, 1), _value),
    Case("padding sampled before <end>, and tokens after it", partial(_scored, 2, 0), _value),
    Case("a response without <end>, and one that is <end> alone", partial(_scored, 3, 4), _value),
    Case("responses of 7 tokens", partial(_scored, 1, 0, 2, columns=7), _value),
    Case("the gradient at the model's output bias", partial(_scored, 1, 2, 3), _score_gradient, tolerance=1e-4),
]

# pretraining_loss ------------------------------------------------------------------------------------------------


def _losses(*rows: tuple[list[float], list[int]]) -> Inputs:
    return {
        "log_probs": torch.tensor([log_probs for log_probs, _ in rows], requires_grad=True),
        "responses": torch.tensor([response for _, response in rows]),
    }


def _loss_gradient(function: Guarded, inputs: Inputs) -> Plain:
    """The gradient at the log-probs; beyond <end> those are constants, where it only must not be NaN or infinite."""
    gradient = gradient_of(function, function(*inputs.values()), inputs["log_probs"])
    mask = response_mask(inputs["responses"]).tolist()
    return [
        [value if within or isinstance(value, str) else 0.0 for value, within in zip(*row, strict=True)]
        for row in zip(gradient, mask, strict=True)
    ]


RAGGED = partial(
    _losses,
    ([-1.0, -2.0, -4.0, 0.0, 0.0], [ARROW, 5, END, PAD, PAD]),
    ([-0.5, -0.25, -0.5, -3.0, -1.0], [COLON, 1, 2, 3, ARROW]),
)
ODD = partial(
    _losses,
    ([-1.0, -2.0, -8.0, -0.5, 0.0, 0.0], [PAD, ARROW, PAD, END, PAD, PAD]),
    ([-3.0, 0.0, 0.0, 0.0, 0.0, 0.0], [END, 4, END, 7, PAD, ARROW]),
    ([0.0, -1.0, -0.25, -1.0, -2.0, -7.0], [COLON, 1, 1, ARROW, 1, END]),
)
LOSSES = [
    Case("a response of 3 tokens, and one of 5 without <end>", RAGGED, _value),
    Case("padding before <end>, tokens after <end>, a log-prob of exactly 0", ODD, _value),
    Case("the gradient at the log-probs", RAGGED, _loss_gradient),
]

# summarize -------------------------------------------------------------------------------------------------------


def _summarized(*rows: int) -> Inputs:
    pairs = (
        ([4, 7, 1], [ARROW, 8, END, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD]),  # right
        ([4, 7, 1], [COLON, 4, 9, 8, ARROW, 8, END, PAD, PAD, PAD, PAD, PAD]),  # right, worked
        ([4, 7, 1], [COLON, 4, 9, 8, ARROW, 5, END, PAD, PAD, PAD, PAD, PAD]),  # the states right, the answer wrong
        ([2, 5], [COLON, 3, 3, ARROW, 1, END, ARROW, 1, END, PAD, PAD, PAD]),  # the states wrong, the answer right
        ([2, 5], [ARROW, 1, ARROW, 7, 4, 4, 4, 4, 4, 4, 4, 4]),  # long, not worked, no end
        ([2, 5], [PAD, ARROW, PAD, COLON, ARROW, 1, END, PAD, PAD, PAD, PAD, PAD]),  # padding inside, right
        ([2, 5], [ARROW, 4, END, ARROW, 1, END, COLON, PAD, PAD, PAD, PAD, PAD]),  # right only after the first end
        ([4, 7, 1], [ARROW, 8, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD]),  # right but for <end>
        ([4, 7, 1], [COLON, 4, 9, 8, COLON, 4, 9, 8, 8, 8, ARROW, 8]),  # the same, at the very end
        ([4, 7, 1], [COLON, 8, END, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD]),  # right but for `>`
    )
    chosen = [pairs[row] for row in rows]
    return {
        "problems": Problems.from_digits([digits for digits, _ in chosen]),
        "responses": torch.tensor([response for _, response in chosen]),
    }


_summary = partial(named_numbers, names=("accuracy", "writes_states", "length"))
SUMMARIES = [
    call_case("two right answers, direct and worked, and a wrong one", _summary, partial(_summarized, 0, 1, 2)),
    call_case("a right answer after wrong states", _summary, partial(_summarized, 3)),
    call_case("no <end>, and a right answer without it", _summary, partial(_summarized, 4, 0, 3)),
    call_case("padding inside a response", _summary, partial(_summarized, 5, 2)),
    call_case("tokens after <end>", _summary, partial(_summarized, 6, 3, 0)),
    call_case("the right digit, but no <end>", _summary, partial(_summarized, 7, 8)),
    call_case("the right digit, but no > before it", _summary, partial(_summarized, 9, 1)),
]

CASES: Mapping[str, Sequence[Case]] = {
    "running_states": [_of_digits(digits) for digits in DIGITS],
    "encode_prompt": [_of_digits(digits) for digits in DIGITS],
    "encode_response": [_response_case(digits, worked) for digits in DIGITS for worked in (False, True)],
    "response_log_probs": SCORING,
    "pretraining_loss": LOSSES,
    "summarize": SUMMARIES,
}
