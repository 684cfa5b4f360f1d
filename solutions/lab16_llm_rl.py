"""Lab 16, reference solution: reinforcement learning for a small language model.

Read it from top to bottom. The exercises of a part come first, each one function, then what the part does with
them. Loops, progress bars and files are in `labutils`.

Throughout, B counts responses, R response tokens (12), N problems, G responses per problem (8). Log-probabilities
are in nats. A mask is true on the tokens of a response up to and including its first `<end>`.

    python solutions/lab16_llm_rl.py        runs everything, as `lab16 run` does
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labutils import rollout
from labutils.lab import Lab
from labutils.model import Transformer
from labutils.task import (
    ARROW,
    COLON,
    END,
    EQUALS,
    MAX_DIGITS,
    PAD,
    PROMPT_TOKENS,
    RESPONSE_TOKENS,
    Problems,
    encode_prompts,
    response_mask,
    writes_states,
)
from labutils.training import Estimator, Regularization
from labutils.verifier import verify

# Part 1 — a small pretrained model ------------------------------------------------------------------------------


def running_states(digits: Sequence[int]) -> list[int]:
    """The state after each digit: start from s = 0, and let each digit d set s to (3 s + d) mod 10.

    The last state is the answer. `running_states([4, 7, 1])` is `[4, 9, 8]`.
    """
    ### BEGIN SOLUTION
    states, state = [], 0
    for digit in digits:
        state = (3 * state + digit) % 10
        states.append(state)
    return states
    ### END SOLUTION


def encode_prompt(digits: Sequence[int]) -> list[int]:
    """The 9 tokens of a prompt: `PAD` up to 8 places, the digits, `EQUALS`. A digit is its own token."""
    ### BEGIN SOLUTION
    return [PAD] * (MAX_DIGITS - len(digits)) + list(digits) + [EQUALS]
    ### END SOLUTION


def encode_response(digits: Sequence[int], worked: bool) -> list[int]:
    """The tokens of the correct response, without padding.

    Direct: `ARROW`, the answer, `END`. Worked: `COLON` and all running states first.
    """
    ### BEGIN SOLUTION
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[-1], END]
    ### END SOLUTION


def response_log_probs(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """(B, R): log-probability (nats) of each response token given everything before it, exactly 0 after `END`.

    prompts: (B, 9) int64. responses: (B, R) int64. One plain forward pass; differentiable in the model.
    The logits at position t predict the token at position t + 1.
    """
    ### BEGIN SOLUTION
    logits = model(torch.cat([prompts, responses], 1)[:, :-1])
    predictions = logits[:, PROMPT_TOKENS - 1 :].log_softmax(-1)
    log_probs = predictions.gather(-1, responses[:, :, None])[:, :, 0]
    return log_probs.masked_fill(~response_mask(responses), 0.0)
    ### END SOLUTION


def pretraining_loss(log_probs: Tensor, responses: Tensor) -> Tensor:
    """Scalar: the next-token loss, a mean over all response tokens of the batch (nats per token).

    log_probs: (B, R), 0 after `END`. responses: (B, R). Every response token counts the same, `END` included.
    """
    ### BEGIN SOLUTION
    return -log_probs.sum() / response_mask(responses).sum()
    ### END SOLUTION


@torch.no_grad()
def sample_responses(
    model: Transformer,
    prompts: Tensor,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(B, 12) int64: one response to each prompt, token by token from softmax(logits / temperature).

    prompts: (B, 9). A response ends with `END` or after 12 tokens, and is padded with `PAD` after `END`.
    Draw with `torch.multinomial(..., generator=generator)`.
    """
    ### BEGIN SOLUTION
    sequences = prompts
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        probabilities = (model(sequences)[:, -1] / temperature).softmax(-1)
        token = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        token = token.masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended |= token == END
    return sequences[:, PROMPT_TOKENS:]
    ### END SOLUTION


def summarize(problems: Problems, responses: Tensor) -> dict[str, float]:
    """Means over the responses (B, R), one per problem, as floats under these keys.

    accuracy: share that `verify` accepts. writes_states: share that starts with `COLON`, right or wrong.
    length: tokens up to and including `END`.
    """
    ### BEGIN SOLUTION
    return {
        "accuracy": verify(problems, responses).double().mean().item(),
        "writes_states": writes_states(responses).double().mean().item(),
        "length": response_mask(responses).sum(1).double().mean().item(),
    }
    ### END SOLUTION


def part_1(lab: Lab) -> None:
    """Pretrain on answers of which nine in ten are direct, and evaluate by number of digits."""
    model = lab.pretrain(pretraining_loss)
    print(lab.report("part1", lab.evaluate_by_length(model, summarize)), end="\n\n")


# Part 2 — reinforcement learning with a verifier ----------------------------------------------------------------


def rewards_with_cost(correct: Tensor, lengths: Tensor, cost: float = 0.0) -> Tensor:
    """(N, G) float32 rewards: 1 for a correct response, less `cost` for each of its tokens.

    correct: (N, G) bool. lengths: (N, G), tokens of each response.
    """
    ### BEGIN SOLUTION
    return correct.float() - cost * lengths.float()
    ### END SOLUTION


def reinforce_advantages(rewards: Tensor) -> Tensor:
    """(N, G): REINFORCE (Williams, 1992). The reward less the mean over the whole batch."""
    ### BEGIN SOLUTION
    return rewards - rewards.mean()
    ### END SOLUTION


def rloo_advantages(rewards: Tensor) -> Tensor:
    """(N, G): RLOO (Kool et al., 2019; Ahmadian et al., 2024). The reward less the mean of its group's others."""
    ### BEGIN SOLUTION
    others = rewards.sum(1, keepdim=True) - rewards
    return rewards - others / (rewards.shape[1] - 1)
    ### END SOLUTION


def grpo_advantages(rewards: Tensor) -> Tensor:
    """(N, G): GRPO (Shao et al., 2024). The reward less its group's mean, over the group's standard deviation.

    A small number, 1e-6 to 1e-3, is added to the standard deviation: a group of equal rewards gives 0, not NaN.
    """
    ### BEGIN SOLUTION
    deviation = rewards.std(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (deviation + 1e-4)
    ### END SOLUTION


def dr_grpo_advantages(rewards: Tensor) -> Tensor:
    """(N, G): Dr. GRPO (Liu et al., 2025). The reward less its group's mean."""
    ### BEGIN SOLUTION
    return rewards - rewards.mean(1, keepdim=True)
    ### END SOLUTION


def sum_weights(mask: Tensor) -> Tensor:
    """(B, R): token weights that sum over a response's tokens and average over responses (REINFORCE, RLOO)."""
    ### BEGIN SOLUTION
    return mask.float() / len(mask)
    ### END SOLUTION


def mean_weights(mask: Tensor) -> Tensor:
    """(B, R): token weights that average over each response's own tokens, then over responses (GRPO).

    A response with an empty mask gets weights 0.
    """
    ### BEGIN SOLUTION
    tokens = mask.float().sum(1, keepdim=True)
    return mask.float() / tokens.clamp(min=1) / len(mask)
    ### END SOLUTION


def constant_weights(mask: Tensor, max_tokens: int = RESPONSE_TOKENS) -> Tensor:
    """(B, R): the same weight 1 / (B * max_tokens) for every response token (Dr. GRPO), 0 outside the mask."""
    ### BEGIN SOLUTION
    return mask.float() / (len(mask) * max_tokens)
    ### END SOLUTION


def policy_loss(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    """Scalar to minimise, whose gradient is minus the policy gradient: -sum of weight * advantage * log-prob.

    log_probs: (B, R), differentiable. advantages: (B,), constants. weights: (B, R).
    """
    ### BEGIN SOLUTION
    return -(weights * advantages.detach()[:, None] * log_probs).sum()
    ### END SOLUTION


def kl_per_response(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    """Scalar, nats per response: KL(policy || reference), estimated from responses sampled from the policy.

    All (B, R). The mean over responses of the summed log-ratio, the estimator k1 (Schulman, 2020).
    """
    ### BEGIN SOLUTION
    log_ratio = (policy_log_probs - reference_log_probs) * mask
    return log_ratio.sum(1).mean()
    ### END SOLUTION


def policy_gradient_step(
    policy: Transformer,
    optimizer: torch.optim.Optimizer,
    problems: Problems,
    estimator: Estimator,
    generator: torch.Generator | None,
) -> dict[str, float]:
    """One step on N problems: sample G responses to each, verify, compute advantages, take one gradient step.

    Returns the batch's mean `reward` and the `loss`, as floats. On-policy: no importance ratios are needed.
    """
    ### BEGIN SOLUTION
    group_size = estimator.group_size
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, group_size, generator=generator)
    mask = response_mask(responses)

    correct = verify(problems.repeat_interleave(group_size), responses)
    shape = (len(problems), group_size)
    lengths = mask.sum(1)
    rewards = rewards_with_cost(correct.view(shape), lengths.view(shape), estimator.length_cost)
    advantages = estimator.advantages(rewards).flatten()
    weights = estimator.weights(mask)

    # A response with advantage 0 adds nothing to the loss or its gradient, so it need not be scored; late in
    # training most are such. One stays in any case: the optimizer takes its step with a gradient of 0 too.
    scored = advantages != 0
    scored[0] = True
    prompts = prompts.repeat_interleave(group_size, 0)
    log_probs = rollout.response_log_probs(policy, prompts[scored], responses[scored])
    loss = policy_loss(log_probs, advantages[scored], weights[scored])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": loss.item()}
    ### END SOLUTION


ESTIMATORS = {
    "reinforce": Estimator(reinforce_advantages, sum_weights),
    "rloo": Estimator(rloo_advantages, sum_weights),
    "grpo": Estimator(grpo_advantages, mean_weights),
    "dr_grpo": Estimator(dr_grpo_advantages, constant_weights),
    "dr_grpo_cost": Estimator(dr_grpo_advantages, constant_weights, length_cost=0.02),
}


def part_2(lab: Lab) -> None:
    """Train with each estimator from two seeds, and follow accuracy, writing rate and KL."""
    curves = lab.reinforce(ESTIMATORS, policy_gradient_step, summarize, kl_per_response)
    print(lab.report("part2", curves), end="\n\n")


# Part 3 — what reinforcement learning changed -------------------------------------------------------------------


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k responses drawn from n, of which c are correct, is correct.

    Unbiased for pass@k (Chen et al., 2021): 1 - C(n - c, k) / C(n, k), computed without large numbers, exact to
    1e-9 for n up to 10,000. Raises `ValueError` unless 0 <= c <= n and 1 <= k <= n.
    """
    ### BEGIN SOLUTION
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}; needed are 0 <= c <= n and 1 <= k <= n")
    if n - c < k:
        return 1.0
    none_correct = 1.0
    for i in range(n - c + 1, n + 1):
        none_correct *= 1 - k / i
    return 1 - none_correct
    ### END SOLUTION


def part_3(lab: Lab) -> None:
    """Compare the pretrained model and the two Dr. GRPO policies by number of digits, and pass@k."""
    models = {name: lab.model(name) for name in ("pretrained", "dr_grpo", "dr_grpo_cost")}
    table = {name: lab.evaluate_by_length(model, summarize) for name, model in models.items()}
    for name in ("pretrained", "dr_grpo"):
        table[name]["pass_at_k"] = lab.pass_at_k(models[name], pass_at_k)
    print(lab.report("part3", table), end="\n\n")


# Going further — five experiments -------------------------------------------------------------------------------


def entropy_bonus(logits: Tensor, mask: Tensor) -> Tensor:
    """Scalar, nats: the entropy of the next token's distribution, averaged over the response tokens of the batch.

    logits: (B, R, 15), which predict the response tokens. mask: (B, R). Differentiable in the logits.
    """
    ### BEGIN SOLUTION
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return (entropy * mask).sum() / mask.sum()
    ### END SOLUTION


def k1_penalized_rewards(
    rewards: Tensor, policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, strength: float
) -> Tensor:
    """(B,): each reward less `strength` times its response's summed log-ratio, k1. Carries no gradient.

    rewards: (B,). policy_log_probs, reference_log_probs, mask: (B, R).
    """
    ### BEGIN SOLUTION
    log_ratio = (policy_log_probs - reference_log_probs) * mask
    return rewards - strength * log_ratio.sum(1).detach()
    ### END SOLUTION


def k3_loss(policy_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    """Scalar, nats per response: KL(policy || reference) by the estimator k3 (Schulman, 2020), never negative.

    All (B, R). With the log-ratio d of a token, k3 = exp(-d) - 1 + d; summed over tokens, averaged over responses.
    Differentiable in the policy's log-probs; the reference is a constant.
    """
    ### BEGIN SOLUTION
    log_ratio = policy_log_probs - reference_log_probs.detach()
    k3 = torch.exp(-log_ratio) - 1 + log_ratio
    return (k3 * mask).sum(1).mean()
    ### END SOLUTION


def verify_form(problems: Problems, responses: Tensor) -> Tensor:
    """(B,) bool: the response reads `: d ... d > d <end>`, with at least one state, whether any digit is right or not.

    responses: (B, R). The first `END` ends a response.
    """
    ### BEGIN SOLUTION
    verdicts = []
    for row in responses.tolist():
        tokens = row[: row.index(END)] if END in row else []
        digits = [*tokens[1:-2], *tokens[-1:]]
        parted = len(tokens) >= 4 and tokens[0] == COLON and tokens[-2] == ARROW
        verdicts.append(parted and all(token <= 9 for token in digits))
    return torch.tensor(verdicts)
    ### END SOLUTION


def verify_anywhere(problems: Problems, responses: Tensor) -> Tensor:
    """(B,) bool: the digit of the answer stands anywhere in the response, and the response ends.

    responses: (B, R). The first `END` ends a response; what follows does not count.
    """
    ### BEGIN SOLUTION
    found = (responses == problems.answers[:, None]) & response_mask(responses)
    return found.any(1) & (responses == END).any(1)
    ### END SOLUTION


def regularized_step(
    policy: Transformer,
    optimizer: torch.optim.Optimizer,
    problems: Problems,
    estimator: Estimator,
    generator: torch.Generator | None,
    regularization: Regularization,
) -> dict[str, float]:
    """`policy_gradient_step` with another verifier, a penalty on the divergence, and an entropy bonus.

    Returns the batch's mean `reward`, without the penalty, and the `loss`, as floats.
    """
    ### BEGIN SOLUTION
    group_size = estimator.group_size
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, group_size, generator=generator)
    mask = response_mask(responses)
    prompts = prompts.repeat_interleave(group_size, 0)
    logits = rollout.response_logits(policy, prompts, responses)
    log_probs = logits.log_softmax(-1).gather(-1, responses[:, :, None])[:, :, 0] * mask
    with torch.no_grad():
        reference_log_probs = rollout.response_log_probs(regularization.reference, prompts, responses)

    correct = regularization.verifier(problems.repeat_interleave(group_size), responses)
    shape = (len(problems), group_size)
    rewards = rewards_with_cost(correct.view(shape), mask.sum(1).view(shape), estimator.length_cost)
    penalized = k1_penalized_rewards(
        rewards.flatten(), log_probs, reference_log_probs, mask, regularization.reward_penalty
    )
    advantages = estimator.advantages(penalized.view(shape)).flatten()

    loss = policy_loss(log_probs, advantages, estimator.weights(mask))
    loss = loss + regularization.loss_penalty * regularization.divergence(log_probs, reference_log_probs, mask)
    loss = loss - regularization.entropy * entropy_bonus(logits, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": loss.item()}
    ### END SOLUTION


VERIFIERS = {"answer": verify, "form": verify_form, "anywhere": verify_anywhere}
DIVERGENCES = {"k1": kl_per_response, "k3": k3_loss}  # what a loss may be penalized with


def main(lab: Lab) -> None:
    """Run the parts that the lab is set to run, in order."""
    for part, run in {1: part_1, 2: part_2, 3: part_3}.items():
        if part in lab.parts:
            run(lab)


if __name__ == "__main__":
    main(Lab.open())
