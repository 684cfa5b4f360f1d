"""The reference solution's exercises against closed forms, enumeration and plain loops."""

import math
from fractions import Fraction

import lab16_llm_rl as lab
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import END, PAD, answer, plain_log_probs, plain_verdict, small_model, used_tokens

from labutils import rollout
from labutils.model import Transformer
from labutils.task import (
    Problems,
    encode_prompts,
    encode_responses,
    response_mask,
    sample_problems,
)
from labutils.training import Estimator

digit_lists = st.lists(st.integers(0, 9), min_size=2, max_size=8)
reward_tables = st.integers(2, 8).flatmap(
    lambda group: st.lists(st.lists(st.floats(-2, 2, width=32), min_size=group, max_size=group), min_size=1, max_size=4)
)


@given(digit_lists, st.booleans())
def test_encoding_agrees_with_the_batched_encoding(digits, worked):
    problems = Problems.from_digits([digits])
    assert lab.running_states(digits) == [answer(digits[: i + 1]) for i in range(len(digits))]
    assert lab.encode_prompt(digits) == encode_prompts(problems)[0].tolist()
    response = lab.encode_response(digits, worked)
    padded = encode_responses(problems, torch.tensor([worked]))[0].tolist()
    assert response == padded[: len(response)]
    assert response[-1] == END


def test_the_plain_log_probs_are_the_definition_and_the_engines():
    model = small_model()
    prompts = encode_prompts(sample_problems(6, torch.Generator().manual_seed(0))).repeat_interleave(2, 0)
    responses = rollout.generate(model, prompts, generator=torch.Generator().manual_seed(1))
    found = lab.response_log_probs(model, prompts, responses)
    assert torch.allclose(found, plain_log_probs(model, prompts, responses), atol=1e-12)
    assert torch.allclose(found, rollout.response_log_probs(model, prompts, responses), atol=1e-12)


def test_the_pretraining_loss_is_a_mean_over_tokens_not_over_responses():
    responses = torch.tensor([[13, 5, END, PAD], [12, 1, 2, 13]])
    log_probs = torch.tensor([[-1.0, -2.0, -3.0, 0.0], [-1.0, -1.0, -1.0, -1.0]])
    assert lab.pretraining_loss(log_probs, responses).item() == pytest.approx(10 / 7)


@torch.no_grad()
def test_the_plain_sampler_samples_what_the_engine_scores():
    """The mean log-probability of sampled responses is minus their entropy, by the model's own count."""
    model, prompt = small_model(response_tokens=12), encode_prompts(Problems.from_digits([[1, 2]]))
    prompts = prompt.expand(1000, -1)
    for temperature in (1.0, 0.6):
        own = lab.sample_responses(model, prompts, temperature, torch.Generator().manual_seed(0))
        fast = rollout.generate(model, prompt, 1000, temperature, torch.Generator().manual_seed(1))
        assert own.shape == fast.shape
        means, variances = [], []
        for responses in (own, fast):
            assert (responses[~response_mask(responses)] == PAD).all()
            scores = rollout.response_log_probs(model, prompts, responses).sum(1)
            means.append(scores.mean())
            variances.append(scores.var() / len(scores))
        # Six standard errors of the difference: a false alarm has probability 2e-9.
        assert abs(means[0] - means[1]) < 6 * math.sqrt(sum(variances))


@torch.no_grad()
def test_the_plain_sampler_follows_the_argmax_near_temperature_zero():
    model, prompts = (
        small_model(seed=4),
        encode_prompts(sample_problems(10, torch.Generator().manual_seed(8))),
    )
    own = lab.sample_responses(model, prompts, 1e-4, torch.Generator().manual_seed(0))
    assert torch.equal(own, rollout.generate(model, prompts, 1, 1e-4, torch.Generator().manual_seed(0)))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(8, 14), min_size=12, max_size=12), min_size=1, max_size=6))
def test_the_summary_is_plain_counting(responses):
    digits = [[4, 7, 1]] * len(responses)
    summary = lab.summarize(Problems.from_digits(digits), torch.tensor(responses))
    count = len(responses)
    assert summary == {
        "accuracy": pytest.approx(sum(plain_verdict([4, 7, 1], r) for r in responses) / count),
        "writes_states": pytest.approx(sum(r[0] == 12 for r in responses) / count),
        "length": pytest.approx(sum(used_tokens(r) for r in responses) / count),
    }


def test_rewards_are_float32_and_the_cost_counts_every_token():
    correct, lengths = torch.tensor([[True, False]]), torch.tensor([[12, 3]])
    rewards = lab.rewards_with_cost(correct, lengths, 0.02)
    assert rewards.dtype == torch.float32
    assert rewards.tolist() == [pytest.approx([1 - 0.24, -0.06])]
    assert lab.rewards_with_cost(correct, lengths).tolist() == [[1.0, 0.0]]


@settings(deadline=None)
@given(reward_tables)
def test_advantages_are_their_formulas(table):
    rewards = torch.tensor(table, dtype=torch.float64)
    overall = rewards.mean().item()
    for i, group in enumerate(table):
        size, total = len(group), sum(group)
        mean = total / size
        deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / (size - 1))
        for j, reward in enumerate(group):
            close = pytest.approx
            assert lab.reinforce_advantages(rewards)[i, j] == close(reward - overall, abs=1e-9)
            leave_one_out = (total - reward) / (size - 1)
            assert lab.rloo_advantages(rewards)[i, j] == close(reward - leave_one_out, abs=1e-9)
            assert lab.dr_grpo_advantages(rewards)[i, j] == close(reward - mean, abs=1e-9)
            if deviation > 0.1:
                expected = (reward - mean) / (deviation + 1e-4)
                assert lab.grpo_advantages(rewards)[i, j] == close(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.76])
def test_a_group_of_equal_rewards_has_no_advantage(value):
    rewards = torch.full((2, 8), value)
    for advantages in (lab.rloo_advantages, lab.grpo_advantages, lab.dr_grpo_advantages):
        assert advantages(rewards).abs().max() <= 1e-3 * (value not in (0.0, 1.0)) + 1e-6


MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])


@pytest.mark.parametrize("mask", [MASK, MASK.bool(), MASK.double()])
def test_weights_by_hand(mask):
    third = 1 / 3
    assert lab.sum_weights(mask).tolist() == [pytest.approx([third * m for m in row]) for row in MASK.tolist()]
    means = [[m * third / sum(row) for m in row] for row in MASK.tolist()]
    assert lab.mean_weights(mask).tolist() == [pytest.approx(row) for row in means]
    constant = [[m / 36 for m in row] for row in MASK.tolist()]
    assert lab.constant_weights(mask).tolist() == [pytest.approx(row) for row in constant]


def test_an_empty_mask_weighs_nothing():
    mask = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    for weights in (lab.sum_weights, lab.mean_weights, lab.constant_weights):
        assert weights(mask)[0].tolist() == [0.0, 0.0]


def test_the_policy_loss_climbs_towards_the_advantage():
    log_probs = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]], requires_grad=True)
    advantages = torch.tensor([0.5, -1.0], requires_grad=True)
    weights = torch.tensor([[0.5, 0.5], [0.5, 0.0]])
    loss = lab.policy_loss(log_probs, advantages, weights)
    assert loss.item() == pytest.approx(-(0.5 * 0.5 * -3.0 + 0.5 * -1.0 * -0.5))
    loss.backward()
    assert log_probs.grad.tolist() == [pytest.approx([-0.25, -0.25]), pytest.approx([0.5, 0.0])]
    assert advantages.grad is None


@torch.no_grad()
def test_the_kl_estimate_is_the_divergence_of_two_enumerated_policies():
    """With room for one token a response is that token, and the divergence a sum of 15 terms."""
    policy, reference = small_model(0, 1), small_model(1, 1)
    prompt = encode_prompts(Problems.from_digits([[1, 2, 3]]))
    own, other = (model(prompt)[0, -1].log_softmax(-1) for model in (policy, reference))
    exact = (own.exp() * (own - other)).sum()
    samples = 40_000
    responses = rollout.generate(policy, prompt, samples, generator=torch.Generator().manual_seed(0))
    prompts, mask = prompt.expand(samples, -1), response_mask(responses)
    scores = [rollout.response_log_probs(model, prompts, responses) for model in (policy, reference)]
    estimate = lab.kl_per_response(*scores, mask)
    error = (scores[0] - scores[1]).std() / math.sqrt(samples)
    assert abs(estimate - exact) < 6 * error
    assert lab.kl_per_response(scores[0], scores[0], mask) == 0


def test_kl_is_summed_over_a_response_and_averaged_over_responses():
    own, other = torch.tensor([[-1.0, -1.0], [-2.0, 9.0]]), torch.tensor([[-2.0, -3.0], [-2.5, 0.0]])
    mask = torch.tensor([[1, 1], [1, 0]])
    assert lab.kl_per_response(own, other, mask).item() == pytest.approx((3.0 + 0.5) / 2)


@pytest.mark.parametrize("length_cost", [0.0, 0.02])
def test_a_policy_gradient_step_is_the_plain_gradient_step(length_cost):
    """Skipping responses of advantage 0 and sharing prefixes must not change the step: compare the parameters."""
    torch.manual_seed(0)
    policy, problems = Transformer(), sample_problems(8, torch.Generator().manual_seed(0))
    twin = Transformer()
    twin.load_state_dict(policy.state_dict())
    estimator = Estimator(lab.dr_grpo_advantages, lab.constant_weights, length_cost, group_size=4)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in (policy, twin)]
    metrics = lab.policy_gradient_step(policy, optimizers[0], problems, estimator, torch.Generator().manual_seed(1))
    prompts = encode_prompts(problems)
    responses = rollout.generate(twin, prompts, 4, generator=torch.Generator().manual_seed(1))
    digits = [[d for d in row if d != PAD] for row in problems.digits.tolist() for _ in range(4)]
    rewards = torch.tensor(
        [plain_verdict(d, r) - length_cost * used_tokens(r) for d, r in zip(digits, responses.tolist(), strict=True)]
    )
    advantages = (rewards.view(8, 4) - rewards.view(8, 4).mean(1, keepdim=True)).flatten()
    scores = plain_log_probs(twin, prompts.repeat_interleave(4, 0), responses).sum(1)
    loss = -(advantages * scores).sum() / (32 * 12)
    loss.backward()
    optimizers[1].step()
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert metrics["reward"] == pytest.approx(rewards.mean().item(), abs=1e-6)
    for mine, plain in zip(policy.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, plain, atol=1e-5)


def test_a_step_without_any_advantage_still_moves_with_adams_momentum():
    """Equal rewards everywhere: the gradient is 0, not missing, so that momentum decays as it should."""
    torch.manual_seed(0)
    policy = Transformer()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    policy(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    optimizer.step()
    before = policy.head.bias.detach().clone()
    nothing = Estimator(lambda rewards: rewards * 0, lab.constant_weights)
    generator = torch.Generator().manual_seed(0)
    lab.policy_gradient_step(policy, optimizer, sample_problems(2, generator), nothing, generator)
    assert (policy.head.bias.grad == 0).all()
    assert not torch.equal(before, policy.head.bias)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_ratio_of_binomials(case):
    n, c, k = case
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert lab.pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(10_000, 1, 64), (10_000, 5000, 10), (10_000, 37, 9000)])
def test_pass_at_k_stays_exact_for_many_samples(n, c, k):
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert lab.pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-9)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6), (0, 0, 1)])
def test_pass_at_k_refuses_what_has_no_meaning(n, c, k):
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        lab.pass_at_k(n, c, k)
