"""Variants of `response_log_probs`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from known_mistakes import Bank
from labutils.model import Transformer
from labutils.task import END, PAD, PROMPT_TOKENS, response_mask

bank = Bank("response_log_probs")


def _logits(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """(B, R, 15): the logits that predict the response tokens."""
    return model(torch.cat([prompts, responses], 1)[:, :-1])[:, PROMPT_TOKENS - 1 :]


def _pick(log_probs: Tensor, responses: Tensor) -> Tensor:
    """(B, R): of (B, R, 15), the entries of the response tokens."""
    return log_probs.gather(-1, responses[:, :, None])[:, :, 0]


@bank.mistake("the logits at position t are scored against token t")
def same_position(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(torch.cat([prompts, responses], 1))[:, PROMPT_TOKENS:]
    return _pick(logits.log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("the logits at position t are scored against token t + 2")
def two_ahead(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(torch.cat([prompts, responses], 1))[:, PROMPT_TOKENS - 2 : -2]
    return _pick(logits.log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("tokens after `<end>` keep their log-probs")
def no_mask(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses)


@bank.mistake("the mask leaves out `<end>`")
def end_left_out(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    mask = (responses == END).cumsum(1) == 0
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("the mask includes one token after `<end>`")
def one_more(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses)
    mask = torch.cat([mask[:, :1], mask[:, :-1]], 1)
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("the mask goes by padding tokens, not by the place of `<end>`")
def masked_by_padding(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * (responses != PAD)


@bank.mistake("the response is cut at the first padding token, although one can stand before `<end>`")
def cut_at_padding(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    mask = ((responses == PAD).cumsum(1) == 0) & response_mask(responses)
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("a response without `<end>` is cut off after its first token")
def unended_cut(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    end = (responses == END).int().argmax(1, keepdim=True)
    mask = torch.arange(responses.shape[1]) <= end
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("a response without `<end>` gets log-prob 0 everywhere")
def unended_dropped(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    mask = response_mask(responses) & (responses == END).any(1, keepdim=True)
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("the mask runs to the last `<end>`, not to the first")
def last_end(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    ended = (responses == END).long()
    later = ended.flip(1).cumsum(1).flip(1)
    mask = (later > 0) | (ended.sum(1, keepdim=True) == 0)
    return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * mask


@bank.mistake("tokens after `<end>` get minus infinity instead of 0")
def minus_infinity(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    log_probs = _pick(_logits(model, prompts, responses).log_softmax(-1), responses)
    return log_probs.masked_fill(~response_mask(responses), -torch.inf)


@bank.mistake("the mask is inverted: tokens up to `<end>` get 0")
def inverted(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    log_probs = _pick(_logits(model, prompts, responses).log_softmax(-1), responses)
    return log_probs.masked_fill(response_mask(responses), 0.0)


@bank.mistake("probabilities are returned, not their logarithms")
def probabilities(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).softmax(-1), responses) * response_mask(responses)


@bank.mistake("the logits are returned without a softmax")
def raw_logits(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses), responses) * response_mask(responses)


@bank.mistake("the softmax is taken twice")
def softmax_twice(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    log_probs = _logits(model, prompts, responses).softmax(-1).log_softmax(-1)
    return _pick(log_probs, responses) * response_mask(responses)


@bank.mistake("the softmax runs over the positions, not over the tokens of the vocabulary")
def over_positions(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).log_softmax(1), responses) * response_mask(responses)


@bank.mistake("the softmax runs over the batch, not over the tokens of the vocabulary")
def over_batch(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).log_softmax(0), responses) * response_mask(responses)


@bank.mistake("the logarithm is to base 2, not natural")
def base_two(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _pick(_logits(model, prompts, responses).softmax(-1).log2(), responses) * response_mask(responses)


@bank.mistake("the sign is flipped: minus the log-prob is returned")
def flipped(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return -_pick(_logits(model, prompts, responses).log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("the most likely token is scored, not the token of the response")
def most_likely(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return _logits(model, prompts, responses).log_softmax(-1).amax(-1) * response_mask(responses)


@bank.mistake("no gradient reaches the model")
def no_gradient(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    with torch.no_grad():
        return _pick(_logits(model, prompts, responses).log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("the prompt's tokens are scored too")
def with_prompt(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    sequences = torch.cat([prompts, responses], 1)
    log_probs = _pick(model(sequences[:, :-1]).log_softmax(-1), sequences[:, 1:])
    log_probs[:, PROMPT_TOKENS - 1 :] *= response_mask(responses)
    return log_probs


@bank.mistake("the first token of the response is not scored")
def first_missing(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(torch.cat([prompts, responses], 1)[:, :-1])[:, PROMPT_TOKENS:]
    return _pick(logits.log_softmax(-1), responses[:, 1:]) * response_mask(responses)[:, 1:]


@bank.mistake("the model sees the response without the prompt")
def without_prompt(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(torch.cat([prompts[:, -1:], responses], 1)[:, :-1])
    return _pick(logits.log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("the model sees the prompt only, so that every token is scored as if it came first")
def prompt_only(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(prompts)[:, -1:].expand(-1, responses.shape[1], -1)
    return _pick(logits.log_softmax(-1), responses) * response_mask(responses)


@bank.mistake("the padding before the digits is dropped, which moves every token to another position")
def padding_dropped(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        used = prompt[prompt != PAD]
        logits = model(torch.cat([used, response])[None, :-1])[:, len(used) - 1 :]
        rows.append(_pick(logits.log_softmax(-1), response[None]))
    return torch.cat(rows) * response_mask(responses)


@bank.mistake("one sum per response is returned, not one log-prob per token")
def summed(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    return (_pick(_logits(model, prompts, responses).log_softmax(-1), responses) * response_mask(responses)).sum(1)


@bank.mistake("the log-probs of a response are accumulated from token to token")
def accumulated(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    log_probs = _pick(_logits(model, prompts, responses).log_softmax(-1), responses)
    return log_probs.cumsum(1) * response_mask(responses)


@bank.right("a forward pass over all tokens, then a shift")
def full_forward(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = model(torch.cat([prompts, responses], dim=1))
    log_probs = torch.log_softmax(logits, dim=-1)[:, PROMPT_TOKENS - 1 : -1]
    return _pick(log_probs, responses) * response_mask(responses)


@bank.right("cross_entropy")
def cross_entropy(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = _logits(model, prompts, responses)
    scores = -F.cross_entropy(logits.transpose(1, 2), responses, reduction="none")
    return torch.where(response_mask(responses), scores, 0.0)


@bank.right("a distribution object")
def categorical(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    distribution = torch.distributions.Categorical(logits=_logits(model, prompts, responses))
    return distribution.log_prob(responses).masked_fill(~response_mask(responses), 0.0)


@bank.right("one-hot tokens and einsum")
def one_hot(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    log_probs = _logits(model, prompts, responses).log_softmax(-1)
    chosen = F.one_hot(responses, log_probs.shape[-1]).to(log_probs.dtype)
    return torch.einsum("brv,brv,br->br", log_probs, chosen, response_mask(responses).to(log_probs.dtype))


@bank.right("the token's logit less logsumexp")
def log_sum_exp(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    logits = _logits(model, prompts, responses)
    ended = (responses == END).long().cumsum(1)
    before = torch.cat([torch.zeros_like(ended[:, :1]), ended[:, :-1]], 1) == 0
    return (_pick(logits, responses) - logits.logsumexp(-1)) * before


@bank.right("one response and one token at a time")
def loop(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        scores, ended = [], False
        for t, token in enumerate(response.tolist()):
            logits = model(torch.cat([prompt, response[:t]])[None])[0, -1]
            scores.append(logits.log_softmax(-1)[token] * (not ended))
            ended = ended or token == END
        rows.append(torch.stack(scores))
    return torch.stack(rows)
