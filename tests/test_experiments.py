"""Runs of experiments: what their settings allow, what the step adds, and what is measured."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import lab16_llm_rl as solution
import pytest
import torch
from reference import plain_log_probs, small_model

from labutils import experiments, rollout
from labutils.errors import LabError
from labutils.experiments import Exercises, RunSettings
from labutils.repeating import MOST_TOKENS, encode_repeating
from labutils.task import COLON, END, encode_prompts, response_mask, sample_problems, writes_states
from labutils.training import Regularization, evaluation_set
from labutils.verifier import verify

EXERCISES = Exercises.of_module(solution)
TINY = RunSettings(steps=2, problems=2, evaluation_problems=1, evaluate_every=1)


def starting_model(settings=TINY):
    return experiments.starting_model(settings, Path("nowhere"))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"worked_rate": 1.5}, "worked_rate 1.5; allowed are 0 to 1"),
        ({"worked_rate": float("nan")}, "worked_rate nan; allowed are 0 to 1"),
        ({"length_cost": -0.1}, "length_cost -0.1; allowed are 0 to 1000"),
        ({"temperature": 0.0}, "temperature 0; allowed are 1e-09 to 1000"),
        ({"kl": "k2"}, "kl 'k2'; allowed are none, k1-reward, k1-loss, k3-loss"),
        ({"kl": "k3-loss"}, "kl 'k3-loss' with kl_strength 0; 'none' goes with 0, the others do not"),
        ({"kl_strength": 0.1}, "kl 'none' with kl_strength 0.1; 'none' goes with 0, the others do not"),
        ({"pretraining": "none"}, "pretraining 'none'; allowed are scratch, onward, repeating"),
        ({"pretraining": "repeating"}, "worked_rate 0.1; allowed with pretraining 'repeating' is 0.5"),
        ({"group_size": 1}, "group_size 1; allowed are 2 to 1024"),
        ({"steps": True}, "steps True; allowed is of type int"),
        ({"steps": 1.5}, "steps 1.5; allowed is of type int"),
        ({"seed": -1}, "seed -1; allowed are 0 to 65535"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(changes, line):
    with pytest.raises(LabError) as error:
        RunSettings(**changes)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changes", [{"estimator": "ppo"}, {"verifier": "none"}, {"estimator": "dr_grpo_cost"}])
def test_what_the_exercises_do_not_hold_is_named_before_training(changes):
    with pytest.raises(LabError, match=f"{next(iter(changes.values()))!r}; allowed are "):
        experiments.run(replace(TINY, **changes), EXERCISES, small_model())


def test_a_solution_without_the_step_is_refused():
    with pytest.raises(LabError, match="has no regularized_step"):
        Exercises.of_module(torch)


def step_gradient(step, policy, estimator="rloo"):
    """The gradient of one step on fixed problems, and what it returns."""
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    problems = sample_problems(3, torch.Generator().manual_seed(1))
    metrics = step(policy, optimizer, problems, solution.ESTIMATORS[estimator], torch.Generator().manual_seed(2))
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()]), metrics


def regularized(reference, **changes):
    return partial(
        solution.regularized_step, regularization=Regularization(reference, verify, solution.k3_loss, **changes)
    )


@pytest.mark.parametrize("estimator", ["reinforce", "rloo", "grpo", "dr_grpo"])
def test_with_nothing_added_the_step_is_part_2s(estimator):
    policy = small_model(1)
    plain, plain_metrics = step_gradient(solution.policy_gradient_step, policy, estimator)
    same, metrics = step_gradient(regularized(small_model(2)), policy, estimator)
    assert (plain - same).norm() <= 1e-6 * max(plain.norm(), 1e-3)
    assert metrics == pytest.approx(plain_metrics, abs=1e-6)


def test_the_gradient_of_each_addition_is_that_of_its_formula():
    policy, reference = small_model(1), small_model(2)
    base, _ = step_gradient(regularized(reference), policy)
    prompts = encode_prompts(sample_problems(3, torch.Generator().manual_seed(1)))
    responses = rollout.generate(policy, prompts, 8, generator=torch.Generator().manual_seed(2))
    prompts, mask = prompts.repeat_interleave(8, 0), response_mask(responses)
    own, others = plain_log_probs(policy, prompts, responses), plain_log_probs(reference, prompts, responses).detach()

    def gradient(value):
        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(value, list(policy.parameters()), retain_graph=True)]
        )

    k3 = ((others - own).exp() - 1 + own - others).sum(1).mean()
    probabilities = policy(torch.cat([prompts, responses], 1)[:, :-1])[:, 8:].softmax(-1)
    entropy = torch.special.entr(probabilities).sum(-1)[mask].mean()
    # RLOO is linear in the rewards, so the penalty's part of the gradient is that of the penalty alone.
    divergence = (own - others).sum(1).detach().view(3, 8)
    penalty = -(solution.rloo_advantages(divergence).flatten() * own.sum(1)).mean()
    for changes, wanted in (
        ({"loss_penalty": 0.5}, 0.5 * gradient(k3)),
        ({"entropy": 0.5}, -0.5 * gradient(entropy)),
        ({"reward_penalty": 0.5}, -0.5 * gradient(penalty)),
    ):
        got = step_gradient(regularized(reference, **changes), policy)[0] - base
        assert (got - wanted).norm() <= 1e-6 * wanted.norm(), changes


def test_what_is_measured_is_what_a_plain_count_gives():
    policy, reference = starting_model(), small_model(2, dtype=torch.float32)
    problems = evaluation_set(2)
    regularization = Regularization(reference, solution.verify_form, solution.k3_loss)
    found = experiments.measure(
        policy, regularization, problems, solution.kl_per_response, torch.Generator().manual_seed(3)
    )
    prompts = encode_prompts(problems)
    responses = rollout.generate(policy, prompts, 8, generator=torch.Generator().manual_seed(3))
    lengths = [row.index(END) + 1 if END in row else len(row) for row in responses.tolist()]
    right = verify(problems.repeat_interleave(8), responses).tolist()
    verdicts = solution.verify_form(problems.repeat_interleave(8), responses).view(-1, 8).tolist()
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    assert found["reward"] == pytest.approx(sum(map(sum, verdicts)) / len(right))
    assert found["silent"] == pytest.approx(sum(sum(group) in (0, 8) for group in verdicts) / len(verdicts))
    assert found["length"] == pytest.approx(sum(lengths) / len(lengths))
    wrong = [length for length, good in zip(lengths, right, strict=True) if not good]
    assert found["length_wrong"] == pytest.approx(sum(wrong) / len(wrong))
    with torch.no_grad():
        colon = policy(prompts)[:, -1].softmax(-1)[:, COLON]
        all_prompts = prompts.repeat_interleave(8, 0)
        gap = plain_log_probs(policy, all_prompts, responses) - plain_log_probs(reference, all_prompts, responses)
    assert found["writes_states"] == pytest.approx(colon.mean().item(), abs=1e-5)
    assert found["writes_states_8"] == pytest.approx(colon[problems.lengths == 8].mean().item(), abs=1e-5)
    assert found["kl"] == pytest.approx(gap.sum(1).mean().item(), abs=1e-3)


def test_a_run_is_told_by_its_settings():
    settings = replace(TINY, temperature=1.5, entropy_bonus=0.01, kl="k1-reward", kl_strength=0.1)
    first, second = (experiments.run(settings, EXERCISES, starting_model()) for _ in range(2))
    assert first == second
    assert first != experiments.run(replace(settings, seed=1), EXERCISES, starting_model())


def test_the_samples_of_a_run_come_with_both_verdicts():
    outcome = experiments.run(replace(TINY, verifier="form"), EXERCISES, starting_model())
    assert [text.split(" =")[0].count(" ") + 1 for text, _, _ in outcome.samples] == [
        n for n in range(2, 9) for _ in "ab"
    ]
    for text, right, accepted in outcome.samples:
        prompt, response = text.split(" = ")
        state = 0
        for digit in prompt.split():
            state = (3 * state + int(digit)) % 10
        assert right == response.endswith(f"> {state} <end>"), text
        assert accepted == bool(re.fullmatch(r":( \d)+ > \d <end>", response)), text


def test_a_model_that_must_be_trained_needs_a_loss():
    with pytest.raises(LabError, match="no model of worked_rate 0.3 comes with the lab; training one needs a loss"):
        experiments.pretrained_at("onward", 0.3, None)


@pytest.mark.parametrize("key", experiments.SHIPPED_STARTS)
def test_the_models_that_come_with_the_lab_write_states_as_often_as_their_data(key):
    pretraining, rate = key
    model = starting_model(RunSettings(pretraining=pretraining, worked_rate=rate))
    prompts = encode_prompts(evaluation_set(20))
    with torch.no_grad():
        share = model(prompts)[:, -1].softmax(-1)[:, COLON].mean().item()
    assert rate / 2 <= share <= 2 * rate, f"{share:.4f} of the responses write states"


def test_repeated_states_are_correct_responses_that_fit():
    generator = torch.Generator().manual_seed(0)
    problems = sample_problems(2000, generator)
    worked = torch.arange(2000) % 4 > 0
    responses = encode_repeating(problems, worked, generator)
    assert responses.shape == (2000, MOST_TOKENS)
    assert verify(problems, responses).all()
    assert torch.equal(writes_states(responses), worked)
    repeats = 0
    for i in worked.nonzero()[:, 0].tolist():
        row = responses[i].tolist()
        states = row[1 : row.index(END) - 2]
        expected = problems.states[i, -int(problems.lengths[i]) :].tolist()
        repeats += len(states) - len(expected)
        left = iter(states)
        assert all(state in left for state in expected), "the states in order"
        assert len(states) >= len(expected)
    # Mean 1/3 more writings of a state, 5 on average in each of 1,500; the cap takes almost nothing from that.
    assert repeats / (5 * 1500) == pytest.approx(1 / 3, abs=0.05)
