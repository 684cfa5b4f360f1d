"""The straightforward implementation: the plain forward pass over all 21 positions, no cache, nothing shared.

What the lab would be without its engine, and the baseline of its speed. The estimator is Dr. GRPO.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labutils.model import Transformer
from labutils.task import END, PAD, PROMPT_TOKENS, Problems, encode_prompts, response_mask
from labutils.verifier import verify


def response_log_probs(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """(B, R) log-probabilities in nats, 0 after `<end>`: one forward pass over every position of every row."""
    tokens = torch.cat([prompts, responses], 1)
    predictions = model(tokens)[:, PROMPT_TOKENS - 1 : -1].log_softmax(-1)
    return predictions.gather(-1, responses[:, :, None])[:, :, 0] * response_mask(responses)


@torch.no_grad()
def generate(model: Transformer, prompts: Tensor, samples_per_prompt: int) -> Tensor:
    """(N * samples_per_prompt, 12) responses at temperature 1: a forward pass over all positions for each token."""
    rows = prompts.repeat_interleave(samples_per_prompt, 0)
    length = model.config.positions - PROMPT_TOKENS
    tokens = torch.cat([rows, torch.full((len(rows), length), PAD)], 1)
    ended = torch.zeros(len(rows), dtype=torch.bool)
    for position in range(PROMPT_TOKENS, PROMPT_TOKENS + length):
        probabilities = model(tokens)[:, position - 1].softmax(-1)
        token = torch.multinomial(probabilities, 1)[:, 0].masked_fill(ended, PAD)
        tokens[:, position] = token
        ended |= token == END
        if ended.all():
            break
    return tokens[:, PROMPT_TOKENS:]


def policy_gradient_step(
    policy: Transformer, optimizer: torch.optim.Optimizer, problems: Problems, group_size: int
) -> None:
    """One step of Dr. GRPO: sample, verify, score, one gradient step."""
    prompts = encode_prompts(problems)
    responses = generate(policy, prompts, group_size)
    correct = verify(problems.repeat_interleave(group_size), responses).float().view(-1, group_size)
    advantages = (correct - correct.mean(1, keepdim=True)).view(-1, 1)
    log_probs = response_log_probs(policy, prompts.repeat_interleave(group_size, 0), responses)
    loss = -(advantages * log_probs).sum() / responses.numel()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
