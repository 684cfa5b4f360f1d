"""The cases of the exercises of going further, but for the training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import log

import torch

from labutils.checks.case import Case, Inputs, call_case, gradient_of
from labutils.checks.guard import Guarded
from labutils.checks.values import Finding, Plain, plain, require_tensor, scalar, tensor_values
from labutils.task import ARROW, COLON, END, EQUALS, PAD, VOCABULARY, Problems

# entropy_bonus ---------------------------------------------------------------------------------------------------

LOGITS = [
    [[0.0, 1.0, 2.0], [0.5, 0.5, 0.5], [9.0, 0.0, -4.0]],
    [[1.0, -1.0, 0.0], [3.0, 3.0, 0.0], [0.25, 0.0, -0.25]],
]
LENGTHS = [[1, 1, 0], [1, 1, 1]]


def _logits(dtype: torch.dtype = torch.bool, rows: int = 2, factor: float = 1.0) -> Inputs:
    logits = (factor * torch.tensor(LOGITS[:rows])).requires_grad_()
    return {"logits": logits, "mask": torch.tensor(LENGTHS[:rows], dtype=dtype)}


def _uniform() -> Inputs:
    return {"logits": torch.full((2, 4, VOCABULARY), 0.7), "mask": torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]]).bool()}


def _scalar(function: Guarded, inputs: Inputs) -> Plain:
    return scalar(function(*inputs.values()))


def _gradient_at(name: str, function: Guarded, inputs: Inputs) -> Plain:
    return gradient_of(function, function(*inputs.values()), inputs[name])


ENTROPY = [
    Case("two responses of 2 and 3 tokens, three tokens to choose from", _logits, _scalar),
    Case("a float mask", partial(_logits, torch.float32), _scalar),
    Case("a single response", partial(_logits, rows=1), _scalar),
    Case("all 15 tokens equally likely", _uniform, _scalar, exact=log(VOCABULARY)),
    Case("logits so far apart that probabilities are 0", partial(_logits, factor=100.0), _scalar),
    Case("the gradient at the logits", _logits, partial(_gradient_at, "logits")),
]

# k1_penalized_rewards, k3_loss -----------------------------------------------------------------------------------

POLICY = [[-1.0, -2.0, 0.0, 0.0], [-0.5, -0.25, -3.0, -1.5], [-4.0, 0.0, 0.0, 0.0]]
REFERENCE = [[-2.0, -1.5, 0.0, 0.0], [-0.75, -1.25, -2.0, -4.0], [-1.0, 0.0, 0.0, 0.0]]
MASK = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


def _pair(dtype: torch.dtype = torch.bool, rows: int = 3, same: bool = False) -> Inputs:
    return {
        "policy_log_probs": torch.tensor(POLICY[:rows], requires_grad=True),
        "reference_log_probs": torch.tensor((POLICY if same else REFERENCE)[:rows]),
        "mask": torch.tensor(MASK[:rows], dtype=dtype),
    }


def _rewards(strength: float, dtype: torch.dtype = torch.bool, rows: int = 3, same: bool = False) -> Inputs:
    rewards = torch.tensor([1.0, 0.0, 0.5][:rows])
    return {"rewards": rewards, **_pair(dtype, rows, same), "strength": strength}


def _constants(function: Guarded, inputs: Inputs) -> Plain:
    result = require_ordinary(function(*inputs.values()))
    if result.requires_grad:
        raise Finding("rewards that carry a gradient, which then flows through the advantages")
    return tensor_values(result)


def require_ordinary(result: object) -> torch.Tensor:
    """The result itself, if it is an ordinary tensor. `Finding` for anything else."""
    require_tensor(result)
    assert isinstance(result, torch.Tensor)
    return result


PENALIZED = [
    Case("a strength of 0.5, responses of 2, 4 and 1 tokens", partial(_rewards, 0.5), _constants),
    Case("a float mask", partial(_rewards, 0.5, torch.float32), _constants),
    Case("a strength of 2", partial(_rewards, 2.0), _constants),
    Case("a strength of 0", partial(_rewards, 0.0), _constants),
    Case("a single response", partial(_rewards, 0.5, rows=1), _constants),
    Case("the policy itself as reference", partial(_rewards, 0.5, same=True), _constants),
]
K3 = [
    Case("responses of 2, 4 and 1 tokens", _pair, _scalar),
    Case("a float mask", partial(_pair, torch.float32), _scalar),
    Case("a single response", partial(_pair, rows=1), _scalar),
    Case("the policy itself as reference", partial(_pair, same=True), _scalar),
    Case("the gradient at the policy's log-probs", _pair, partial(_gradient_at, "policy_log_probs")),
]

# verify_form, verify_anywhere ------------------------------------------------------------------------------------

# Responses to 4 7 1, whose states are 4, 9, 8.
TRIED = {
    "direct and worked answers": (
        [ARROW, 8, END],
        [ARROW, 3, END],
        [COLON, 4, 9, 8, ARROW, 8, END],
        [COLON, 4, 9, 8, ARROW, 3, END],
        [COLON, 4, 9, 7, ARROW, 7, END],
        [COLON, 3, ARROW, 3, END],
        [COLON, 4, 9, ARROW, 2, END],
    ),
    "forms that are nearly right": (
        [COLON, ARROW, 8, END],
        [4, 9, 8, ARROW, 8, END],
        [COLON, 4, COLON, 8, ARROW, 8, END],
        [COLON, 4, PAD, 8, ARROW, 8, END],
        [COLON, 4, 9, ARROW, ARROW, 8, END],
        [COLON, 4, 9, 8, ARROW, EQUALS, END],
        [COLON, 4, 9, 8, 8, END],
        [COLON, 4, 9, 8, ARROW, 8, 8, END],
    ),
    "without an end, and with tokens after it": (
        [COLON, 4, 9, 8, ARROW, 8, 8, 8],
        [COLON, 4, 9, 8, ARROW, 3, END, 8],
        [COLON, 4, 1, 2, ARROW, 3, END, 8],
        [COLON, 4, ARROW, 8, END, 1, END],
        [END, COLON, 8, ARROW, 8, END],
        [ARROW, 3, END, ARROW, 8, END],
        [COLON, END, 8, ARROW, 8, END],
        [8, END],
    ),
}


def _responses(rows: Sequence[Sequence[int]], columns: int = 8) -> Inputs:
    padded = [[*row, *[PAD] * (columns - len(row))] for row in rows]
    return {"problems": Problems.from_digits([[4, 7, 1]] * len(rows)), "responses": torch.tensor(padded)}


def _other_problems() -> Inputs:
    rows = [[ARROW, 1, END, PAD], [ARROW, 0, END, PAD], [ARROW, 7, END, PAD], [COLON, 0, ARROW, 0]]
    return {"problems": Problems.from_digits([[2, 5], [0, 0], [3, 3], [1, 7]]), "responses": torch.tensor(rows)}


def _verdicts(result: object) -> Plain:
    """Nested lists of 0 and 1 from a tensor of booleans, or of numbers that stand for them."""
    return plain(require_tensor(result).double().tolist())


VERDICTS = [
    *(call_case(name, _verdicts, partial(_responses, rows)) for name, rows in TRIED.items()),
    call_case("a problem each, with the answers 1, 0, 2 and 0", _verdicts, _other_problems),
    call_case("a single response", _verdicts, partial(_responses, [[COLON, 4, 9, 8, ARROW, 8, END]], 7)),
]

CASES: Mapping[str, Sequence[Case]] = {
    "entropy_bonus": ENTROPY,
    "k1_penalized_rewards": PENALIZED,
    "k3_loss": K3,
    "verify_form": VERDICTS,
    "verify_anywhere": VERDICTS,
}
