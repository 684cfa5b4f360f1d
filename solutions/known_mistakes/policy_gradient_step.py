"""Variants of `policy_gradient_step`.

A step has many parts, and a mistake is in one of them: `step` builds the function from the parts that are right
but for those it is given. The correct variants, and the mistakes in how the parts are put together, are written
out in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lab16_llm_rl import policy_loss, response_log_probs, rewards_with_cost, sample_responses
from torch import Tensor

from known_mistakes import Bank, Function
from labutils import rollout
from labutils.model import Transformer
from labutils.task import ARROW, END, PAD, RESPONSE_TOKENS, Problems, encode_prompts, response_mask
from labutils.training import Estimator
from labutils.verifier import verify

bank = Bank("policy_gradient_step")

Metrics = dict[str, Any]
Optimizer = torch.optim.Optimizer
Random = torch.Generator | None


# The parts, as they are right -------------------------------------------------------------------------------------


def sample(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    """(N * G, 12) responses, a problem's in a row."""
    return rollout.generate(policy, encode_prompts(problems), group, generator=generator)


def judge(problems: Problems, responses: Tensor, group: int) -> Tensor:
    """(N * G,) bool: correct."""
    return verify(problems.repeat_interleave(group), responses)


def count(responses: Tensor) -> Tensor:
    """(N * G,) lengths."""
    return response_mask(responses).sum(1)


def reward(correct: Tensor, lengths: Tensor, estimator: Estimator) -> Tensor:
    """(N, G) rewards."""
    return rewards_with_cost(correct, lengths, estimator.length_cost)


def advantage(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    """(N * G,) advantages."""
    return estimator.advantages(rewards).flatten()


def weigh(responses: Tensor, estimator: Estimator) -> Tensor:
    """(N * G, 12) token weights."""
    return estimator.weights(response_mask(responses))


def score(policy: Transformer, prompts: Tensor, responses: Tensor, group: int) -> Tensor:
    """(N * G, 12) log-probs."""
    return rollout.response_log_probs(policy, prompts.repeat_interleave(group, 0), responses)


def update(optimizer: Optimizer, loss: Tensor) -> None:
    """One gradient step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def report(rewards: Tensor, loss: Tensor) -> Metrics:
    """What the step returns."""
    return {"reward": rewards.mean().item(), "loss": loss.item()}


def step(
    sample: Callable[[Transformer, Problems, int, Random], Tensor] = sample,
    judge: Callable[[Problems, Tensor, int], Tensor] = judge,
    count: Callable[[Tensor], Tensor] = count,
    reward: Callable[[Tensor, Tensor, Estimator], Tensor] = reward,
    advantage: Callable[[Tensor, Problems, Estimator], Tensor] = advantage,
    weigh: Callable[[Tensor, Estimator], Tensor] = weigh,
    score: Callable[[Transformer, Tensor, Tensor, int], Tensor] = score,
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor] = policy_loss,
    update: Callable[[Optimizer, Tensor], None] = update,
    report: Callable[[Tensor, Tensor], Metrics] = report,
) -> Function:
    """`policy_gradient_step` built from these parts."""

    def policy_gradient_step(
        policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
    ) -> Metrics:
        group = estimator.group_size
        responses = sample(policy, problems, group, generator)
        shape = (len(problems), group)
        correct, lengths = judge(problems, responses, group), count(responses)
        rewards = reward(correct.view(shape), lengths.view(shape), estimator)
        advantages = advantage(rewards, problems, estimator)
        log_probs = score(policy, encode_prompts(problems), responses, group)
        loss = loss_of(log_probs, advantages, weigh(responses, estimator))
        update(optimizer, loss)
        return report(rewards, loss)

    return policy_gradient_step


# Sampling ---------------------------------------------------------------------------------------------------------


def greedy(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), group, temperature=1e-4, generator=generator)


def low_temperature(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), group, temperature=0.5, generator=generator)


def high_temperature(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), group, temperature=2.0, generator=generator)


def no_generator(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), group)


def fixed_seed(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), group, generator=torch.Generator().manual_seed(0))


def same_seed(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    prompts = encode_prompts(problems)
    rounds = [rollout.generate(policy, prompts, generator=torch.Generator().manual_seed(0)) for _ in range(group)]
    return torch.stack(rounds, 1).flatten(0, 1)


def one_response(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems), generator=generator).repeat_interleave(group, 0)


def tiled(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    return rollout.generate(policy, encode_prompts(problems).repeat(group, 1), generator=generator)


@torch.no_grad()
def top_p(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    sequences = encode_prompts(problems).repeat_interleave(group, 0)
    for _ in range(RESPONSE_TOKENS):
        probabilities, order = policy(sequences)[:, -1].softmax(-1).sort(-1, descending=True)
        before = probabilities.cumsum(-1) - probabilities
        drawn = torch.multinomial(probabilities.masked_fill(before >= 0.9, 0.0), 1, generator=generator)
        sequences = torch.cat([sequences, order.gather(-1, drawn)], 1)
    responses = sequences[:, -RESPONSE_TOKENS:]
    return responses.masked_fill(~response_mask(responses), PAD)


def not_ending(policy: Transformer, problems: Problems, group: int, generator: Random) -> Tensor:
    responses = sample(policy, problems, group, generator)
    return responses.masked_fill(responses == END, PAD)


bank.mistake("the most likely response is taken, none is drawn")(step(sample=greedy))
bank.mistake("the responses are sampled at temperature 0.5 and scored at 1")(step(sample=low_temperature))
bank.mistake("the responses are sampled at temperature 2 and scored at 1")(step(sample=high_temperature))
bank.mistake("the responses are sampled with top-p and scored with the full distribution")(step(sample=top_p))
bank.mistake("the generator is ignored")(step(sample=no_generator))
bank.mistake("every step draws from the same fixed seed")(step(sample=fixed_seed))
bank.mistake("every response of a group is drawn from the same seed, so that all are equal")(step(sample=same_seed))
bank.mistake("one response per problem is sampled and then copied")(step(sample=one_response))
bank.mistake("the prompts are sampled in the order of repeat, where repeat_interleave is needed")(step(sample=tiled))
bank.mistake("`<end>` is removed from the responses before they are verified")(step(sample=not_ending))


# Verdicts, lengths and rewards ------------------------------------------------------------------------------------


def tiled_problems(problems: Problems, responses: Tensor, group: int) -> Tensor:
    return verify(Problems.join([problems] * group), responses)


def first_of_group(problems: Problems, responses: Tensor, group: int) -> Tensor:
    return verify(problems, responses[::group]).repeat_interleave(group)


def first_responses(problems: Problems, responses: Tensor, group: int) -> Tensor:
    return verify(problems, responses[: len(problems)]).repeat(group)


def unrepeated(problems: Problems, responses: Tensor, group: int) -> Tensor:
    return verify(problems, responses)


def answer_anywhere(problems: Problems, responses: Tensor, group: int) -> Tensor:
    answers = problems.repeat_interleave(group).answers
    return ((responses == answers[:, None]) & response_mask(responses)).any(1)


def well_formed(problems: Problems, responses: Tensor, group: int) -> Tensor:
    before = torch.roll(responses, 2, 1)
    return ((responses == END) & (before == ARROW)).any(1)


def full_width(responses: Tensor) -> Tensor:
    return torch.full((len(responses),), RESPONSE_TOKENS)


def without_end(responses: Tensor) -> Tensor:
    return (response_mask(responses) & (responses != END)).sum(1)


def no_cost(correct: Tensor, lengths: Tensor, estimator: Estimator) -> Tensor:
    return rewards_with_cost(correct, lengths)


def cost_added(correct: Tensor, lengths: Tensor, estimator: Estimator) -> Tensor:
    return rewards_with_cost(correct, lengths, -estimator.length_cost)


def plus_minus_one(correct: Tensor, lengths: Tensor, estimator: Estimator) -> Tensor:
    return 2 * correct.float() - 1 - estimator.length_cost * lengths


bank.mistake("the problems are repeated in another order than the responses")(step(judge=tiled_problems))
bank.mistake("only the first response of each group is verified, and its verdict given to all")(
    step(judge=first_of_group)
)
bank.mistake("only the first N responses are verified")(step(judge=first_responses))
bank.mistake("the problems are not repeated for the verifier")(step(judge=unrepeated))
bank.mistake("the right digit is rewarded anywhere in the response, not only as the answer")(
    step(judge=answer_anywhere)
)
bank.mistake("the form of the response is rewarded, not its answer")(step(judge=well_formed))
bank.mistake("every response pays for 12 tokens, whatever its length")(step(count=full_width))
bank.mistake("the lengths leave out `<end>`")(step(count=without_end))
bank.mistake("the rewards leave out the cost per token")(step(reward=no_cost))
bank.mistake("the cost per token is added to the reward")(step(reward=cost_added))
bank.mistake("a wrong response gets -1 instead of 0")(step(reward=plus_minus_one))


# Advantages and weights -------------------------------------------------------------------------------------------


def by_column(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return estimator.advantages(rewards).T.flatten()


def one_group(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return estimator.advantages(rewards.view(1, -1)).flatten()


def transposed(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return estimator.advantages(rewards.T).T.flatten()


def reshaped(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return estimator.advantages(rewards.reshape(rewards.shape[::-1])).flatten()


def plain_rewards(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return rewards.flatten()


def always_group_mean(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)).flatten()


def normalised_again(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    advantages = estimator.advantages(rewards).flatten()
    return (advantages - advantages.mean()) / (advantages.std() + 1e-4)


def positive_only(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    return estimator.advantages(rewards).flatten().clamp(min=0)


def merged_prompts(rewards: Tensor, problems: Problems, estimator: Estimator) -> Tensor:
    """Groups keyed by the prompt's text."""
    advantages = torch.empty_like(rewards)
    prompts = [tuple(row) for row in encode_prompts(problems).tolist()]
    for prompt in set(prompts):
        rows = [i for i, other in enumerate(prompts) if other == prompt]
        merged = estimator.advantages(rewards[rows].view(1, -1))
        advantages[rows] = merged.view(len(rows), -1).to(advantages.dtype)
    return advantages.flatten()


def weights_without_end(responses: Tensor, estimator: Estimator) -> Tensor:
    return estimator.weights(response_mask(responses) & (responses != END))


def weights_of_full_width(responses: Tensor, estimator: Estimator) -> Tensor:
    return estimator.weights(torch.ones_like(responses, dtype=torch.bool))


def shifted_weights(responses: Tensor, estimator: Estimator) -> Tensor:
    return estimator.weights(response_mask(responses).roll(1, 1))


def constant(responses: Tensor, estimator: Estimator) -> Tensor:
    return response_mask(responses).float() / responses.numel()


bank.mistake("the advantages are flattened column by column, in another order than the responses")(
    step(advantage=by_column)
)
bank.mistake("the whole batch is one group for the estimator")(step(advantage=one_group))
bank.mistake("the rewards are transposed for the estimator, so that groups run across problems")(
    step(advantage=transposed)
)
bank.mistake("the rewards are given to the estimator in shape (G, N)")(step(advantage=reshaped))
bank.mistake("the rewards are used as advantages")(step(advantage=plain_rewards))
bank.mistake("the advantages are always the reward less the group's mean, whatever the estimator")(
    step(advantage=always_group_mean)
)
bank.mistake("the advantages are centred and scaled once more")(step(advantage=normalised_again))
bank.mistake("responses with a negative advantage are left out")(step(advantage=positive_only))
bank.mistake("equal prompts are merged into one group")(step(advantage=merged_prompts))
bank.mistake("the mask leaves out `<end>`")(step(weigh=weights_without_end))
bank.mistake("the mask covers the padded width")(step(weigh=weights_of_full_width))
bank.mistake("the mask is shifted by one token")(step(weigh=shifted_weights))
bank.mistake("the weights are always 1 / (B * 12), whatever the estimator")(step(weigh=constant))


# Log-probs, loss, update and report -------------------------------------------------------------------------------


def tiled_prompts(policy: Transformer, prompts: Tensor, responses: Tensor, group: int) -> Tensor:
    return rollout.response_log_probs(policy, prompts.repeat(group, 1), responses)


def without_gradient(policy: Transformer, prompts: Tensor, responses: Tensor, group: int) -> Tensor:
    with torch.no_grad():
        return score(policy, prompts, responses, group)


def same_position(policy: Transformer, prompts: Tensor, responses: Tensor, group: int) -> Tensor:
    sequences = torch.cat([prompts.repeat_interleave(group, 0), responses], 1)
    log_probs = policy(sequences)[:, -RESPONSE_TOKENS:].log_softmax(-1)
    return log_probs.gather(-1, responses[:, :, None])[:, :, 0] * response_mask(responses)


def at_half_temperature(policy: Transformer, prompts: Tensor, responses: Tensor, group: int) -> Tensor:
    sequences = torch.cat([prompts.repeat_interleave(group, 0), responses], 1)
    log_probs = (policy(sequences)[:, -RESPONSE_TOKENS - 1 : -1] / 0.5).log_softmax(-1)
    return log_probs.gather(-1, responses[:, :, None])[:, :, 0] * response_mask(responses)


def negated(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return -policy_loss(log_probs, advantages, weights)


def of_probabilities(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return policy_loss(log_probs.exp(), advantages, weights)


def mean_loss(log_probs: Tensor, advantages: Tensor, weights: Tensor) -> Tensor:
    return policy_loss(log_probs, advantages, weights) / len(log_probs)


def accumulate(optimizer: Optimizer, loss: Tensor) -> None:
    loss.backward()
    optimizer.step()


def cleared(optimizer: Optimizer, loss: Tensor) -> None:
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()


def not_stepped(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()


def stepped_twice(optimizer: Optimizer, loss: Tensor) -> None:
    update(optimizer, loss)
    optimizer.step()


def clipped(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


def decayed(optimizer: Optimizer, loss: Tensor) -> None:
    update(optimizer, loss)
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.999)


def slowed(optimizer: Optimizer, loss: Tensor) -> None:
    update(optimizer, loss)
    for group in optimizer.param_groups:
        group["lr"] = 0.99 * group["lr"] + 1e-5


def head_alone(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        for parameter in group["params"][:-2]:
            parameter.grad = None
    optimizer.step()


def summed_reward(rewards: Tensor, loss: Tensor) -> Metrics:
    return {"reward": rewards.sum().item(), "loss": loss.item()}


def tensor_loss(rewards: Tensor, loss: Tensor) -> Metrics:
    return {"reward": rewards.mean().item(), "loss": loss.detach()}


def tensor_reward(rewards: Tensor, loss: Tensor) -> Metrics:
    return {"reward": rewards.mean(), "loss": loss.item()}


def positive_rewards(rewards: Tensor, loss: Tensor) -> Metrics:
    return {"reward": (rewards > 0).float().mean().item(), "loss": loss.item()}


def no_report(rewards: Tensor, loss: Tensor) -> Metrics:
    return {}


bank.mistake("the prompts are repeated in another order than the responses: repeat instead of repeat_interleave")(
    step(score=tiled_prompts)
)
bank.mistake("the policy's log-probs carry no gradient")(step(score=without_gradient))
bank.mistake("the logits at position t are scored against token t")(step(score=same_position))
bank.mistake("the responses are sampled at temperature 1 and scored at 0.5")(step(score=at_half_temperature))
bank.mistake("the sign of the loss is flipped: the step lowers the reward")(step(loss_of=negated))
bank.mistake("probabilities stand in the loss where log-probabilities belong")(step(loss_of=of_probabilities))
bank.mistake("the loss is divided by the number of responses once more")(step(loss_of=mean_loss))
bank.mistake("zero_grad() is missing: gradients of earlier steps add up")(step(update=accumulate))
bank.mistake("step() finds no gradient: zero_grad() comes after backward(), or backward() is missing")(
    step(update=cleared)
)
bank.mistake("optimizer.step() is missing")(step(update=not_stepped))
bank.mistake("optimizer.step() is called twice with the same gradient")(step(update=stepped_twice))
bank.mistake("the gradient is clipped")(step(update=clipped))
bank.mistake("the parameters are changed after the optimizer's step")(step(update=decayed))
bank.mistake("the step size is changed")(step(update=slowed))
bank.mistake("only the output layer is trained")(step(update=head_alone))
bank.mistake("the sum of the rewards is returned, not their mean")(step(report=summed_reward))
bank.mistake("the loss is returned as a tensor, not as a float")(step(report=tensor_loss))
bank.mistake("the reward is returned as a tensor, not as a float")(step(report=tensor_reward))
bank.mistake("the share of positive rewards is returned, not the mean reward")(step(report=positive_rewards))
bank.mistake("nothing is returned about the step: reward and loss are missing")(step(report=no_report))


# Mistakes in how the parts are put together -----------------------------------------------------------------------


@bank.mistake("the group size is fixed at 8")
def group_of_eight(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    responses = sample(policy, problems, 8, generator)
    shape = (len(problems), 8)
    rewards = reward(judge(problems, responses, 8).view(shape), count(responses).view(shape), estimator)
    log_probs = score(policy, encode_prompts(problems), responses, 8)
    loss = policy_loss(log_probs, advantage(rewards, problems, estimator), weigh(responses, estimator))
    update(optimizer, loss)
    return report(rewards, loss)


@bank.mistake("the responses that are scored are not those that were verified: they are sampled a second time")
def sampled_twice(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    responses = sample(policy, problems, group, generator)
    log_probs = score(policy, encode_prompts(problems), responses, group)
    loss = policy_loss(log_probs, advantage(rewards, problems, estimator), weigh(responses, estimator))
    update(optimizer, loss)
    return report(rewards, loss)


@bank.mistake("two gradient steps are taken on the same responses, without importance ratios")
def reused(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    advantages, weights = advantage(rewards, problems, estimator), weigh(responses, estimator)
    for _ in range(2):
        loss = policy_loss(score(policy, encode_prompts(problems), responses, group), advantages, weights)
        update(optimizer, loss)
    return report(rewards, loss)


@bank.mistake("micro-batches of unequal size are averaged as if they were equal")
def unequal_micro_batches(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    advantages = advantage(rewards, problems, estimator)
    log_probs = score(policy, encode_prompts(problems), responses, group)
    cut = len(responses) // 3
    losses = [
        policy_loss(log_probs[part], advantages[part], weigh(responses[part], estimator))
        for part in (slice(0, cut), slice(cut, None))
    ]
    loss = torch.stack(losses).mean()
    update(optimizer, loss)
    return report(rewards, loss)


@bank.mistake("the weights are computed after responses of advantage 0 were left out, so that the others count more")
def weighed_too_late(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    advantages = advantage(rewards, problems, estimator)
    scored = advantages != 0
    scored[0] = True
    log_probs = score(policy, encode_prompts(problems), responses, group)[scored]
    loss = policy_loss(log_probs, advantages[scored], weigh(responses[scored], estimator))
    update(optimizer, loss)
    return report(rewards, loss)


@bank.mistake("one gradient step is taken per problem, not one for the batch")
def step_per_problem(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    advantages, weights = advantage(rewards, problems, estimator), weigh(responses, estimator)
    total = torch.zeros(())
    for i in range(len(problems)):
        rows = slice(i * group, (i + 1) * group)
        log_probs = score(policy, encode_prompts(problems[i : i + 1]), responses[rows], group)
        loss = policy_loss(log_probs, advantages[rows], weights[rows])
        update(optimizer, loss)
        total = total + loss.detach()
    return report(rewards, total)


# Correct variants -------------------------------------------------------------------------------------------------


@bank.right("the student's own sampler and scorer on repeated prompts")
def plain_functions(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    repeated = problems.repeat_interleave(estimator.group_size)
    prompts = encode_prompts(repeated)
    responses = sample_responses(policy, prompts, generator=generator)
    mask = response_mask(responses)
    shape = (len(problems), estimator.group_size)
    rewards = rewards_with_cost(verify(repeated, responses).view(shape), mask.sum(1).view(shape), estimator.length_cost)
    loss = policy_loss(
        response_log_probs(policy, prompts, responses), estimator.advantages(rewards).view(-1), estimator.weights(mask)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "reward": float(rewards.mean())}


@bank.right("the engine on repeated prompts, every response scored")
def repeated_prompts(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    repeated = problems.repeat_interleave(estimator.group_size)
    prompts = encode_prompts(repeated)
    responses = rollout.generate(policy, prompts, generator=generator)
    mask = response_mask(responses)
    correct = verify(repeated, responses).unflatten(0, (len(problems), -1))
    rewards = rewards_with_cost(correct, mask.sum(1).view_as(correct), estimator.length_cost)
    log_probs = rollout.response_log_probs(policy, prompts, responses)
    loss = policy_loss(log_probs, estimator.advantages(rewards).flatten(), estimator.weights(mask))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": loss.item()}


@bank.right("one problem at a time, losses added up")
def problem_by_problem(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, prompts = estimator.group_size, encode_prompts(problems)
    groups = [rollout.generate(policy, prompt, group, generator=generator) for prompt in prompts.split(1)]
    correct = [verify(problems[i : i + 1].repeat_interleave(group), own) for i, own in enumerate(groups)]
    lengths = [response_mask(own).sum(1) for own in groups]
    rewards = rewards_with_cost(torch.stack(correct), torch.stack(lengths), estimator.length_cost)
    weights = estimator.weights(response_mask(torch.cat(groups))).unflatten(0, (len(problems), group))
    loss = torch.zeros(())
    for i, advantages in enumerate(estimator.advantages(rewards)):
        log_probs = rollout.response_log_probs(policy, prompts[i : i + 1].repeat(group, 1), groups[i])
        loss = loss + policy_loss(log_probs, advantages, weights[i])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": loss.item()}


@bank.right("gradients accumulated over two unequal parts of the batch")
def accumulated(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    group, shape = estimator.group_size, (len(problems), estimator.group_size)
    responses = sample(policy, problems, group, generator)
    rewards = reward(judge(problems, responses, group).view(shape), count(responses).view(shape), estimator)
    advantages, weights = advantage(rewards, problems, estimator), weigh(responses, estimator)
    prompts, cut = encode_prompts(problems).repeat_interleave(group, 0), len(responses) // 3
    total = 0.0
    optimizer.zero_grad()
    for part in (slice(0, cut), slice(cut, None)):
        log_probs = rollout.response_log_probs(policy, prompts[part], responses[part])
        loss = policy_loss(log_probs, advantages[part], weights[part])
        loss.backward()
        total += loss.item()
    optimizer.step()
    return {"reward": rewards.mean().item(), "loss": total}


@bank.right("one round of responses after another, put in order by stack")
def round_by_round(
    policy: Transformer, optimizer: Optimizer, problems: Problems, estimator: Estimator, generator: Random
) -> Metrics:
    prompts, rounds = encode_prompts(problems), range(estimator.group_size)
    responses = torch.stack([rollout.generate(policy, prompts, generator=generator) for _ in rounds], 1)
    correct = torch.stack([verify(problems, responses[:, g]) for g in rounds], 1)
    mask = response_mask(responses.flatten(0, 1))
    rewards = rewards_with_cost(correct, mask.sum(1).view_as(correct), estimator.length_cost)
    advantages, weights = estimator.advantages(rewards), estimator.weights(mask).view_as(responses)
    losses = [
        policy_loss(response_log_probs(policy, prompts, responses[:, g]), advantages[:, g], weights[:, g])
        for g in rounds
    ]
    loss = torch.stack(losses).sum()
    policy.zero_grad()
    loss.backward()
    optimizer.step()
    return {"reward": rewards.double().mean().item(), "loss": loss.item()}
