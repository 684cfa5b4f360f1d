"""Independent computations that the tests compare with: slow, plain, and using nothing of what they check."""

from __future__ import annotations

import torch
from torch import Tensor

from labutils.model import ModelConfig, Transformer

PAD, EQUALS, COLON, ARROW, END = 10, 11, 12, 13, 14


def small_model(seed: int = 0, response_tokens: int = 12, dtype: torch.dtype = torch.float64) -> Transformer:
    """Two layers of width 16, in double precision, so that a wrong number stands out from rounding."""
    config = ModelConfig(layers=2, width=16, heads=2, positions=9 + response_tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(config).to(dtype)


def used_tokens(response: list[int]) -> int:
    return response.index(END) + 1 if END in response else len(response)


def plain_log_probs(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """Row by row and token by token: log softmax of the plain forward pass of everything before the token."""
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        logits = model(torch.cat([prompt, response])[None, :-1])[0, len(prompt) - 1 :]
        used = used_tokens(response.tolist())
        picked = [logits[t].log_softmax(-1)[response[t]] for t in range(used)]
        rows.append(torch.stack(picked + [logits.new_zeros(())] * (len(response) - used)))
    return torch.stack(rows)


def answer(digits: list[int]) -> int:
    """The final state in closed form: the sum of 3^(n-i) d_i, modulo 10."""
    return sum(3 ** (len(digits) - 1 - i) * digit for i, digit in enumerate(digits)) % 10


def plain_verdict(digits: list[int], response: list[int]) -> bool:
    """The verifier read aloud: cut at the first <end>, look at the last two tokens before it."""
    if END not in response:
        return False
    before = response[: response.index(END)]
    return len(before) >= 2 and before[-2] == ARROW and before[-1] == answer(digits)
