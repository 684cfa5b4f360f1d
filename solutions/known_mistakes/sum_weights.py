"""Variants of `sum_weights`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import RESPONSE_TOKENS

bank = Bank("sum_weights")


@bank.mistake("the weights are not divided by the number of responses")
def not_divided(mask: Tensor) -> Tensor:
    return mask.float()


@bank.mistake("each response is averaged over its own tokens")
def own_tokens(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1, keepdim=True).clamp(min=1) / len(mask)


@bank.mistake("the weights average over all tokens of the batch")
def all_tokens(mask: Tensor) -> Tensor:
    return mask.float() / mask.sum()


@bank.mistake("the weights average over the padded width too")
def padded_width(mask: Tensor) -> Tensor:
    return mask.float() / mask.numel()


@bank.mistake("the weights are divided by the width instead of the number of responses")
def width_for_batch(mask: Tensor) -> Tensor:
    return mask.float() / mask.shape[1]


@bank.mistake("every token weighs 1 / (B * 12)")
def constant(mask: Tensor) -> Tensor:
    return mask.float() / (len(mask) * RESPONSE_TOKENS)


@bank.mistake("tokens outside the mask have weights too")
def unmasked(mask: Tensor) -> Tensor:
    return torch.full(mask.shape, 1 / len(mask))


@bank.mistake("each position is averaged over the responses that have it")
def by_position(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(0).clamp(min=1)


@bank.mistake("responses with an empty mask are not counted as responses")
def empty_not_counted(mask: Tensor) -> Tensor:
    return mask.float() / (mask.sum(1) > 0).sum().clamp(min=1)


@bank.mistake("the last token of each response has no weight")
def last_dropped(mask: Tensor) -> Tensor:
    positions = torch.arange(mask.shape[1])
    last = mask.sum(1, keepdim=True) - 1
    return mask.float() * (positions < last) / len(mask)


@bank.mistake("integer division makes every weight 0 or 1")
def integer_division(mask: Tensor) -> Tensor:
    return (mask.long() // len(mask)).float()


@bank.mistake("there is one weight per response, not one per token")
def per_response(mask: Tensor) -> Tensor:
    return mask.float().sum(1) / len(mask)


@bank.mistake("the mask and the inverse of the mask are swapped")
def inverted(mask: Tensor) -> Tensor:
    return (1 - mask.float()) / len(mask)


@bank.right("torch.where")
def by_case(mask: Tensor) -> Tensor:
    return torch.where(mask.bool(), 1 / len(mask), 0.0)


@bank.right("a weight per response, broadcast over the tokens")
def broadcast(mask: Tensor) -> Tensor:
    per_response = torch.full((len(mask), 1), 1 / len(mask))
    return per_response * mask


@bank.right("zeros that are filled where the mask is true")
def filled(mask: Tensor) -> Tensor:
    weights = torch.zeros(mask.shape)
    weights[mask.bool()] = 1 / mask.shape[0]
    return weights


@bank.right("a loop over responses and tokens")
def loop(mask: Tensor) -> Tensor:
    rows = mask.tolist()
    return torch.tensor([[float(token) / len(rows) for token in row] for row in rows])


@bank.right("float64")
def double_precision(mask: Tensor) -> Tensor:
    return mask.double() / mask.shape[0]
