"""Variants of `pretraining_loss`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import END, PAD, RESPONSE_TOKENS, response_mask

bank = Bank("pretraining_loss")


@bank.mistake("the mean is over the padded width, not over the response tokens")
def padded_width(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.mean()


@bank.mistake("the sum is divided by 12 tokens a response, whatever the responses' width and length")
def always_twelve(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum() / (len(responses) * RESPONSE_TOKENS)


@bank.mistake("each response is averaged over its own tokens first, so that tokens of short responses count more")
def mean_of_means(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -(log_probs.sum(1) / response_mask(responses).sum(1)).mean()


@bank.mistake("the loss is a mean over responses of the sum over tokens")
def per_response(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum(1).mean()


@bank.mistake("the loss is a sum over all tokens, not a mean")
def summed(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum()


@bank.mistake("the sign is flipped: minimising it makes the responses less likely")
def flipped(log_probs: Tensor, responses: Tensor) -> Tensor:
    return log_probs.sum() / response_mask(responses).sum()


@bank.mistake("`<end>` is left out of the loss")
def end_left_out(log_probs: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses) & (responses != END)
    return -(log_probs * mask).sum() / mask.sum()


@bank.mistake("`<end>` is left out of the number of tokens")
def end_not_counted(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum() / (response_mask(responses) & (responses != END)).sum()


@bank.mistake("the first token of the response is left out of the loss")
def first_left_out(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs[:, 1:].sum() / response_mask(responses)[:, 1:].sum()


@bank.mistake("tokens are counted by being no padding, although a padding token can stand before `<end>`")
def counted_by_padding(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum() / (responses != PAD).sum()


@bank.mistake("a padding token before `<end>` is left out of the loss")
def padding_left_out(log_probs: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses) & (responses != PAD)
    return -(log_probs * mask).sum() / mask.sum()


@bank.mistake("tokens are counted by log-probs other than 0, although a certain token has log-prob 0")
def counted_by_log_prob(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum() / (log_probs != 0).sum()


@bank.mistake("one padding token after `<end>` is counted too")
def one_more_counted(log_probs: Tensor, responses: Tensor) -> Tensor:
    counted = (response_mask(responses).sum(1) + 1).clamp(max=responses.shape[1])
    return -log_probs.sum() / counted.sum()


@bank.mistake("each position is averaged over the batch first")
def by_position(log_probs: Tensor, responses: Tensor) -> Tensor:
    counts = response_mask(responses).sum(0)
    return -(log_probs.sum(0) / counts.clamp(min=1))[counts > 0].mean()


@bank.mistake("the loss uses probabilities, not log-probabilities")
def probabilities(log_probs: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses)
    return -(log_probs.exp() * mask).sum() / mask.sum()


@bank.mistake("the exponential of the loss is returned")
def perplexity(log_probs: Tensor, responses: Tensor) -> Tensor:
    return (-log_probs.sum() / response_mask(responses).sum()).exp()


@bank.mistake("the loss is a plain number, from which no gradient flows")
def plain_number(log_probs: Tensor, responses: Tensor) -> float:
    return -log_probs.sum().item() / int(response_mask(responses).sum())


@bank.mistake("one loss per response is returned, not a mean over the batch")
def vector(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs.sum(1) / response_mask(responses).sum(1)


@bank.mistake("a response without `<end>` is left out")
def unended_left_out(log_probs: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses) & (responses == END).any(1, keepdim=True)
    return -(log_probs * mask).sum() / mask.sum().clamp(min=1)


@bank.right("the mean of the masked log-probs")
def masked_mean(log_probs: Tensor, responses: Tensor) -> Tensor:
    return -log_probs[response_mask(responses)].mean()


@bank.right("a mask by cumulative sum")
def cumulative(log_probs: Tensor, responses: Tensor) -> Tensor:
    ended = (responses == END).long()
    mask = (ended.cumsum(1) - ended == 0).to(log_probs.dtype)
    return -(log_probs * mask).sum() / mask.sum()


@bank.right("a loop over responses")
def loop(log_probs: Tensor, responses: Tensor) -> Tensor:
    total, count = torch.zeros(()), 0
    for scores, response in zip(log_probs, responses.tolist(), strict=True):
        length = response.index(END) + 1 if END in response else len(response)
        total = total - scores[:length].sum()
        count += length
    return total / count


@bank.right("responses weighted by their share of the tokens, in float64")
def weighted(log_probs: Tensor, responses: Tensor) -> Tensor:
    lengths = response_mask(responses).sum(1).double()
    means = log_probs.double().sum(1) / lengths
    return -(means * lengths / lengths.sum()).sum()


@bank.right("einsum of log-probs and a float mask")
def with_einsum(log_probs: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses).to(log_probs.dtype)
    return torch.einsum("br,br->", log_probs, mask).neg().div(mask.sum())
