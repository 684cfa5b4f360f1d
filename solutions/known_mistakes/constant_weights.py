"""Variants of `constant_weights`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import RESPONSE_TOKENS

bank = Bank("constant_weights")


@bank.mistake("the padded width of the batch is taken for max_tokens")
def padded_width(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / mask.numel()


@bank.mistake("each response is still averaged over its own tokens")
def own_tokens(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / mask.float().sum(1, keepdim=True).clamp(min=1) / len(mask)


@bank.mistake("max_tokens is ignored: the constant is always 1 / (B * 12)")
def always_twelve(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / (len(mask) * 12)


@bank.mistake("the weights are not divided by the number of responses")
def not_divided(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / max_tokens


@bank.mistake("the weights are not divided by max_tokens")
def no_constant(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / len(mask)


@bank.mistake("tokens outside the mask have weights too")
def unmasked(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return torch.full(mask.shape, 1 / (len(mask) * max_tokens))


@bank.mistake("the weights are divided by the number of tokens in the batch")
def all_tokens(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / mask.sum()


@bank.mistake("the longest response's length is taken for max_tokens")
def longest(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / (len(mask) * mask.float().sum(1).max())


@bank.mistake("the weights are divided by the response's length and by max_tokens")
def both(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True).clamp(min=1)
    return mask.float() / tokens / (len(mask) * max_tokens)


@bank.mistake("the brackets are missing: the weights are multiplied by max_tokens")
def no_brackets(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / len(mask) * max_tokens


@bank.mistake("the number of responses is added to max_tokens, not multiplied")
def added(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / (len(mask) + max_tokens)


@bank.mistake("the last token of each response has no weight")
def last_dropped(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    positions = torch.arange(mask.shape[1])
    last = mask.sum(1, keepdim=True) - 1
    return mask.float() * (positions < last) / (len(mask) * max_tokens)


@bank.mistake("responses with an empty mask are not counted as responses")
def empty_not_counted(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    responses = (mask.sum(1) > 0).sum().clamp(min=1)
    return mask.float() / (responses * max_tokens)


@bank.mistake("there is one weight per response, not one per token")
def per_response(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float().sum(1) / (len(mask) * max_tokens)


@bank.right("torch.where")
def by_case(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return torch.where(mask.bool(), 1 / (len(mask) * max_tokens), 0.0)


@bank.right("divided by the number of responses, then by max_tokens")
def in_two_steps(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    return mask.float() / len(mask) / max_tokens


@bank.right("a constant tensor with zeros outside the mask")
def masked_fill(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    weights = torch.full(mask.shape, 1 / (mask.shape[0] * max_tokens))
    return weights.masked_fill(~mask.bool(), 0.0)


@bank.right("a loop over responses and tokens")
def loop(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    rows = mask.tolist()
    return torch.tensor([[float(token) / (len(rows) * max_tokens) for token in row] for row in rows])


@bank.right("float64, a factor broadcast over responses and tokens")
def broadcast(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    factor = torch.full((mask.shape[0], 1), 1 / max_tokens, dtype=torch.float64) / mask.shape[0]
    return factor * mask
