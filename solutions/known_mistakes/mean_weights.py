"""Variants of `mean_weights`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank

bank = Bank("mean_weights")


@bank.mistake("a response with an empty mask gives NaN")
def nan_when_empty(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1, keepdim=True) / len(mask)


@bank.mistake("each response is averaged over the padded width, not over its own tokens")
def padded_width(mask: Tensor) -> Tensor:
    return mask.float() / mask.shape[1] / len(mask)


@bank.mistake("the weights are not divided by the number of responses")
def not_divided(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1, keepdim=True).clamp(min=1)


@bank.mistake("the weights average over all tokens of the batch, so that long responses count more")
def all_tokens(mask: Tensor) -> Tensor:
    return mask.float() / mask.sum()


@bank.mistake("the tokens of each position are counted instead of the tokens of each response")
def wrong_axis(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(0).clamp(min=1) / len(mask)


@bank.mistake("the tokens of a response are not averaged but summed")
def summed(mask: Tensor) -> Tensor:
    return mask.float() / len(mask)


@bank.mistake("the weights are divided by the response's length twice")
def twice(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True).clamp(min=1)
    return mask.float() / tokens / tokens / len(mask)


@bank.mistake("the weights are divided by the square root of the response's length")
def square_root(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1, keepdim=True).clamp(min=1).sqrt() / len(mask)


@bank.mistake("tokens outside the mask have weights too")
def unmasked(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True).clamp(min=1)
    return (1 / tokens / len(mask)).expand(mask.shape)


@bank.mistake("the longest response's length is taken for all")
def longest(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1).max() / len(mask)


@bank.mistake("the length leaves out one token")
def one_token_less(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True) - 1
    return mask.float() / tokens.clamp(min=1) / len(mask)


@bank.mistake("1 is added to every length, not only to a length of 0")
def one_token_more(mask: Tensor) -> Tensor:
    return mask.float() / (mask.float().sum(1, keepdim=True) + 1) / len(mask)


@bank.mistake("responses with an empty mask are not counted as responses")
def empty_not_counted(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True)
    return mask.float() / tokens.clamp(min=1) / (tokens > 0).sum()


@bank.mistake("a response with an empty mask gets equal weights instead of 0")
def uniform_when_empty(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True)
    own = torch.where(tokens > 0, mask / tokens.clamp(min=1), 1 / mask.shape[1])
    return own / len(mask)


@bank.mistake("keepdim is missing: the lengths lie along the wrong axis")
def no_keepdim(mask: Tensor) -> Tensor:
    return mask.float() / mask.float().sum(1).clamp(min=1) / len(mask)


@bank.right("torch.where for the empty mask")
def by_case(mask: Tensor) -> Tensor:
    tokens = mask.float().sum(1, keepdim=True)
    return torch.where(tokens > 0, mask.float() / (tokens * len(mask)), 0.0)


@bank.right("NaN replaced by 0")
def nan_replaced(mask: Tensor) -> Tensor:
    own = mask.float() / mask.float().sum(1, keepdim=True)
    return torch.nan_to_num(own, nan=0.0) / len(mask)


@bank.right("a loop over responses")
def loop(mask: Tensor) -> Tensor:
    weights = torch.zeros(mask.shape)
    for i, row in enumerate(mask.bool()):
        if row.any():
            weights[i, row] = 1 / (int(row.sum()) * len(mask))
    return weights


@bank.right("einsum of the mask with a factor per response, in float64")
def factor_per_response(mask: Tensor) -> Tensor:
    tokens = mask.double().sum(1)
    factor = 1 / (tokens.clamp(min=1) * mask.shape[0])
    return torch.einsum("br,b->br", mask.double(), factor)


@bank.right("a tiny number added to the length")
def tiny_number(mask: Tensor) -> Tensor:
    return mask.float() / (mask.float().sum(1, keepdim=True) + 1e-9) / len(mask)
