"""The bank of known mistakes: every wrong variant differs from the reference solution, every correct one agrees."""

import copy
import functools
import importlib
import itertools
import math
import pkgutil
from collections import defaultdict

import known_mistakes
import lab16_llm_rl as lab
import pytest
import torch
from reference import small_model

from labutils import rollout
from labutils.lab import shipped_model
from labutils.task import END, PAD, Problems, encode_prompts, response_mask, sample_problems
from labutils.training import Estimator, Regularization

EXERCISES = (
    *("running_states", "encode_prompt", "encode_response", "response_log_probs", "pretraining_loss"),
    *("sample_responses", "summarize", "rewards_with_cost", "reinforce_advantages", "rloo_advantages"),
    *("grpo_advantages", "dr_grpo_advantages", "sum_weights", "mean_weights", "constant_weights", "policy_loss"),
    *("kl_per_response", "policy_gradient_step", "pass_at_k"),
    *("entropy_bonus", "k1_penalized_rewards", "k3_loss", "verify_form", "verify_anywhere", "regularized_step"),
)
BANKS = {name: importlib.import_module(f"known_mistakes.{name}").bank for name in EXERCISES}
RIGHT = [(name, variant) for name, bank in BANKS.items() for variant in bank.correct]


def test_every_exercise_has_its_module():
    assert sorted(module.name for module in pkgutil.iter_modules(known_mistakes.__path__)) == sorted(EXERCISES)
    assert [bank.exercise for bank in BANKS.values()] == list(EXERCISES)


def test_the_bank_is_large_enough():
    assert sum(len(bank.mistakes) for bank in BANKS.values()) >= 100
    assert {name: len(bank.correct) for name, bank in BANKS.items() if len(bank.correct) < 3} == {}


def test_names_are_one_line_of_plain_words():
    for name, bank in BANKS.items():
        for variant in itertools.chain(bank.mistakes, bank.correct):
            assert variant == variant.strip(), (name, variant)
            assert "\n" not in variant, (name, variant)
            assert not variant.endswith("."), (name, variant)
            assert len(variant) <= 120, (name, variant)


def test_two_variants_of_an_exercise_never_share_a_name():
    bank = known_mistakes.Bank("rloo_advantages")
    bank.mistake("it is wrong")(lambda rewards: rewards)
    with pytest.raises(ValueError, match="it is wrong"):
        bank.right("it is wrong")(lambda rewards: rewards)


# What a function does, as a flat list of words and numbers --------------------------------------------------------


def flatten(value):
    """Words for types and shapes, numbers for numbers; the precision of a tensor's numbers is left out."""
    if isinstance(value, torch.Tensor):
        kind = "floats" if value.is_floating_point() else str(value.dtype)
        return [f"tensor {tuple(value.shape)} {kind}", *value.detach().flatten().tolist()]
    if isinstance(value, torch.Generator):
        return [f"generator {hash(value.get_state().numpy().tobytes())}"]
    if isinstance(value, dict):
        return ["dict", *itertools.chain(*([key, *flatten(value[key])] for key in sorted(value)))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *itertools.chain(*map(flatten, value))]
    return [value] if isinstance(value, (int, float, str)) else [type(value).__name__]


def close(one, other, relative=1e-4, absolute=1e-5):
    """Whether two flat lists are equal up to rounding; NaN equals NaN."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        numbers = all(isinstance(x, (int, float)) for x in (a, b))
        if numbers and (math.isclose(a, b, rel_tol=relative, abs_tol=absolute) or (a != a and b != b)):
            continue
        if numbers or a != b:
            return False
    return True


def outcome(function, arguments):
    """The result or the error, arguments and random state afterwards, the gradient of floating-point arguments."""
    arguments = [fresh(argument) for argument in arguments]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        try:
            result = function(*arguments)
        except Exception as error:
            return [type(error).__name__]
        global_random = "untouched" if torch.equal(before, torch.get_rng_state()) else "changed"
    found = [*flatten(result), *flatten(arguments), global_random]
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.square().sum().backward()  # not linear, so that a gradient depends on the value too
    for argument in arguments:
        if isinstance(argument, torch.Tensor) and argument.is_floating_point():
            found += flatten(argument.grad)
        if isinstance(argument, torch.nn.Module):
            found += [0.0 if p.grad is None else p.grad.norm().item() for p in argument.parameters()]
    return found


def fresh(argument):
    """A copy that a function may spoil."""
    if isinstance(argument, torch.Tensor):
        return argument.detach().clone().requires_grad_(argument.requires_grad)
    if isinstance(argument, torch.Generator):
        return torch.Generator().manual_seed(argument.initial_seed())
    return copy.deepcopy(argument)


# The inputs -------------------------------------------------------------------------------------------------------

SEED = torch.Generator().manual_seed(3)
DIGITS = [[4, 7, 1], [9, 0, 3, 8, 5, 5, 2, 6], [0, 0], [7, 2]]
REWARDS = [
    torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0], [0.3, -0.6, 0.9, 0.1, -1.5], [1.0, 1.0, 1.0, 1.0, 1.0]]),
    torch.tensor([[1.0, 0.0, -0.24, 0.76], [0.0, 0.0, 0.0, 0.0], [2.0, 0.5, 1.0, 0.25], [-1.0, 0.0, 0.0, 0.5]]),
    torch.tensor([[3.0, 1.5, 2.0], [4.0, 2.5, 1.0]]),
]
ADVANTAGES = torch.tensor([0.5, -1.0, 0.25, 2.0])
MASKS = [
    torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]),
    torch.ones(2, 12, dtype=torch.long),
    torch.tensor([[1, 1, 0], [1, 0, 0]]),
]
RESPONSES = torch.tensor(
    [
        [13, 8, END, PAD, PAD, PAD, PAD],
        [12, 4, 9, 8, 13, 8, END],
        [13, PAD, 8, END, END, 3, 1],
        [1, 13, 8, 2, 13, 8, 13],
        [12, 5, 13, 8, 1, END, PAD],
        [8, END, 12, 13, 8, END, PAD],
        [12, 1, 1, 1, 1, 13, 8],
        [12, 4, 9, 13, 8, END, PAD],
        [13, 8, 13, 7, END, PAD, PAD],
    ]
)
FULL = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])  # no empty response
# Responses to 4 7 1, whose states are 4, 9, 8.
FORMS = torch.tensor(
    [
        [13, 8, END, PAD, PAD, PAD, PAD, PAD],
        [13, 3, END, PAD, PAD, PAD, PAD, PAD],
        [12, 4, 9, 8, 13, 8, END, PAD],
        [12, 4, 9, 8, 13, 3, END, PAD],
        [12, 3, 13, 3, END, PAD, PAD, PAD],
        [12, 13, 8, END, PAD, PAD, PAD, PAD],
        [4, 9, 8, 13, 8, END, PAD, PAD],
        [12, 4, 12, 8, 13, 8, END, PAD],
        [12, 4, 9, 8, 13, 11, END, PAD],
        [12, 4, 9, 8, 8, 8, END, PAD],
        [12, 4, 9, 13, 2, END, 8, END],
        [12, 4, 9, 8, 1, 1, 13, 8],
        [12, 1, 2, 3, 13, 4, END, 8],
        [1, END, 12, 1, 13, 8, END, PAD],
    ]
)


def log_probs(rows=4, columns=5, mask=MASKS[0]):
    """0 outside the mask, with one certain token, whose log-prob is 0 as well."""
    scores = -torch.rand(rows, columns, generator=SEED) * 2
    scores[1, 1] = 0.0
    return (scores * mask).requires_grad_()


def inputs(exercise):
    """Lists of arguments, valid by the exercise's docstring."""
    if exercise in ("running_states", "encode_prompt"):
        return [[digits] for digits in DIGITS]
    if exercise == "encode_response":
        return [[digits, worked] for digits in DIGITS for worked in (False, True)]
    if exercise.endswith("_advantages"):
        return [[rewards] for rewards in REWARDS]
    if exercise.endswith("_weights"):
        cases = [[as_type(mask)] for mask in MASKS for as_type in (torch.Tensor.bool, torch.Tensor.float)]
        return cases + [[*case, 7] for case in cases] * (exercise == "constant_weights")
    if exercise == "pass_at_k":
        good = [[5, 2, 2], [8, 3, 3], [6, 0, 2], [6, 6, 2], [6, 4, 6], [6, 2, 6], [64, 17, 8], [7, 5, 4]]
        large = [[10_000, 37, 9000], [10_000, 5000, 10], [10_000, 3, 3000], [10_000, 1, 5000]]
        return good + large + [[5, 6, 1], [5, -1, 1], [5, 2, 0], [5, 2, 6], [5, 0, 6], [0, 0, 1]]
    return SPECIAL_INPUTS[exercise]()


def model_inputs(*more):
    prompts = encode_prompts(Problems.from_digits([*DIGITS, [4, 7, 1], [5, 5], [4, 7, 1], [2, 3, 4], [7, 1]]))
    return [small_model(), prompts, *more]


def sampling_inputs():
    prompts = encode_prompts(sample_problems(20, torch.Generator().manual_seed(0)))
    cases = [[small_model(), prompts, t, torch.Generator().manual_seed(1)] for t in (1.0, 0.5)]
    return [*cases, [ending_model(), prompts[:3], 1.0, torch.Generator().manual_seed(1)]]


def ending_model():
    """Its responses end after a few tokens."""
    model = small_model()
    with torch.no_grad():
        model.head.bias[END] += 4
    return model


def step_inputs():
    """A policy that is right now and then, and one whose tokens are nearly random, so that wrong answers abound.

    The last input's gradients are so long that none escapes clipping, and its steps so much the smaller.
    """
    problems = Problems.from_digits([*DIGITS, [1, 2, 3], [8, 1], [7, 2]])  # one is there twice
    return [
        [PRETRAINED, problems, Estimator(lab.grpo_advantages, lab.mean_weights, 0.02, 4)],
        [PRETRAINED, problems, Estimator(lab.reinforce_advantages, lab.sum_weights, 0.0, 3)],
        [small_model(), problems, Estimator(lab.rloo_advantages, lab.constant_weights, 0.1, 4)],
        [small_model(), problems, Estimator(large_advantages, lab.constant_weights, 0.1, 4), 1 / LARGE],
    ]


LARGE = 1024.0


def large_advantages(rewards):
    return LARGE * lab.rloo_advantages(rewards)


SPECIAL_INPUTS = {
    "response_log_probs": lambda: [model_inputs(RESPONSES), model_inputs(RESPONSES[:, :2])],
    "pretraining_loss": lambda: [[log_probs(len(r), 7, response_mask(r)), r] for r in (RESPONSES, RESPONSES[:2])],
    "sample_responses": sampling_inputs,
    "summarize": lambda: [
        [Problems.from_digits([[4, 7, 1]] * 9), RESPONSES],
        [Problems.from_digits([[4, 7, 1]] * 4), RESPONSES[5:]],
        [Problems.from_digits([[4, 7, 1]] * 3), RESPONSES[:3]],
    ],
    "rewards_with_cost": lambda: [
        [torch.tensor([[True, False, True], [False, True, False]]), torch.tensor([[12, 3, 6], [4, 3, 9]]), *cost]
        for cost in ([], [0.02], [0.5])
    ],
    "policy_loss": lambda: [
        [log_probs(), ADVANTAGES, MASKS[0] / torch.tensor([4.0, 5, 1, 2, 3])],
        [log_probs(4, 4, 1), ADVANTAGES, torch.rand(4, 4, generator=SEED)],
    ],
    "entropy_bonus": lambda: (
        [
            [4 * torch.randn(*mask.shape, 15, generator=SEED).requires_grad_(), as_type(mask[:2])]
            for mask in (MASKS[0][:2], MASKS[2])
            for as_type in (torch.Tensor.bool, torch.Tensor.float)
        ]
        + [[torch.tensor([[[200.0, 0.0, -200.0]]], requires_grad=True), torch.ones(1, 1)]]
    ),
    "k1_penalized_rewards": lambda: [
        [ADVANTAGES, log_probs(mask=FULL), log_probs(mask=FULL).detach(), FULL.bool(), strength]
        for strength in (0.5, 2.0)
    ],
    "k3_loss": lambda: [
        [log_probs(mask=FULL), log_probs(mask=FULL).detach(), as_type(FULL)]
        for as_type in (torch.Tensor.bool, torch.Tensor.float)
    ],
    "verify_form": lambda: [[Problems.from_digits([[4, 7, 1]] * len(FORMS)), FORMS]],
    "verify_anywhere": lambda: [
        [Problems.from_digits([[4, 7, 1]] * len(FORMS)), FORMS],
        [
            Problems.from_digits([[2, 5], [0, 0], [3, 3], [1, 7], [4, 7, 1], [7, 1, 2], [9, 9], [1, 1], [2, 9]]),
            RESPONSES,
        ],
    ],
    "kl_per_response": lambda: [
        [log_probs().detach(), log_probs().detach(), mask] for mask in (MASKS[0].bool(), MASKS[0].float())
    ],
}


def regularizations():
    """What is added to each of the steps: everything at once, with strengths of its own."""
    return [
        Regularization(small_model(7), lab.verify_form, lab.kl_per_response, 0.1, 0.2, 0.3),
        Regularization(small_model(7), lab.verify_anywhere, lab.k3_loss, 0.05, 0.3, 0.0),
        Regularization(small_model(7), lab.verify_anywhere, squared_gap, 0.0, 0.01, 0.2),
        Regularization(small_model(7), lab.verify_form, lab.k3_loss, 0.01, 0.3, 0.3),
    ]


def squared_gap(policy_log_probs, reference_log_probs, mask):
    return ((policy_log_probs - 2 * reference_log_probs) * mask).square().sum(1).mean()


class CountingSGD(torch.optim.SGD):
    """Counts its steps."""

    steps = 0

    def step(self):
        self.steps += 1
        super().step()


PRETRAINED = shipped_model("pretrained")


def step_outcome(function, policy, problems, estimator, step_size=1.0):
    """What one step returns, and afterwards: the optimizer's steps and step size, the parameters, the generator.

    Gradients are left from before, for zero_grad.
    """
    before, policy = policy, copy.deepcopy(policy)
    for parameter in policy.parameters():
        parameter.grad = torch.full_like(parameter, 0.01)
    optimizer, generator = CountingSGD(policy.parameters(), lr=step_size), torch.Generator().manual_seed(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        try:
            found = flatten(function(policy, optimizer, problems, estimator, generator))
        except Exception as error:
            return [type(error).__name__]
    sums = [parameter.detach().double().sum().item() for parameter in policy.parameters()]
    pairs = zip(before.parameters(), policy.parameters(), strict=True)
    moved = [(new - old).norm().item() for old, new in pairs]
    return [*found, optimizer.steps, optimizer.param_groups[0]["lr"], *sums, *moved, *flatten(generator)]


def outcomes(exercise, function):
    """The function's outcome on each of the exercise's inputs."""
    if exercise == "policy_gradient_step":
        return [step_outcome(function, *case) for case in step_inputs()]
    if exercise == "regularized_step":
        return [
            step_outcome(functools.partial(function, regularization=added), *case)
            for case, added in zip(step_inputs(), regularizations(), strict=True)
        ]
    if exercise == "pretraining_loss":
        function = zero_after_end(function)
    return [outcome(function, case) for case in CASES[exercise]]


def zero_after_end(function):
    """Log-probs after `<end>` are constants, so that a gradient into them says nothing."""
    return lambda scores, responses: function(scores * response_mask(responses), responses)


CASES = {exercise: inputs(exercise) for exercise in EXERCISES if not exercise.endswith("_step")}


def grpo_without_bessel(rewards):
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True, correction=0) + 1e-4)


def accepted(exercise):
    """The functions that a correct variant may agree with, and how closely."""
    if exercise == "grpo_advantages":
        return [lab.grpo_advantages, grpo_without_bessel], 0.005  # 1e-3 beside a deviation of 0.2
    tolerance = 1e-9 if exercise == "pass_at_k" else 1e-4
    return [getattr(lab, exercise)], tolerance


def agrees(exercise, found, wanted, tolerance):
    absolute = min(tolerance, 1e-5)
    return all(close(a, b, tolerance, absolute) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("exercise", EXERCISES)
def test_wrong_variants_differ_from_the_reference_and_from_each_other(exercise):
    references, tolerance = accepted(exercise)
    seen = {f"the reference ({i})": outcomes(exercise, function) for i, function in enumerate(references)}
    for name, function in BANKS[exercise].mistakes.items():
        found = outcomes(exercise, function)
        equal = [other for other, wanted in seen.items() if agrees(exercise, found, wanted, tolerance)]
        assert equal == [], f"{exercise}: {name!r} gives the same as {equal}"
        seen[name] = found


SAMPLING = ("sample_responses", "policy_gradient_step")


@pytest.mark.parametrize(("exercise", "name"), [pair for pair in RIGHT if pair[0] not in SAMPLING])
def test_correct_variants_agree_with_the_reference(exercise, name):
    references, tolerance = accepted(exercise)
    found = outcomes(exercise, BANKS[exercise].correct[name])
    wanted = [outcomes(exercise, function) for function in references]
    assert any(agrees(exercise, found, one, tolerance) for one in wanted), (found, wanted)


@pytest.mark.parametrize("name", BANKS["sample_responses"].correct)
def test_correct_samplers_sample_what_the_model_says(name):
    """The mean log-prob of the samples is minus their entropy, by their own count and by the reference sampler's."""
    function, prompt = BANKS["sample_responses"].correct[name], encode_prompts(Problems.from_digits([[1, 2]]))
    model, prompts = ending_model(), prompt.expand(200, -1)
    for temperature in (1.0, 0.5):
        own, again = (function(model, prompts, temperature, torch.Generator().manual_seed(4)) for _ in range(2))
        assert torch.equal(own, again)
        assert own.shape == (200, 12)
        assert own.dtype == torch.int64
        assert (own[~response_mask(own)] == PAD).all()
        wanted = rollout.generate(model, prompt, 200, temperature, torch.Generator().manual_seed(5))
        with torch.no_grad():
            scores = [rollout.response_log_probs(model, prompts, responses).sum(1) for responses in (own, wanted)]
        error = math.sqrt(sum(score.var().item() / 200 for score in scores))
        assert abs(scores[0].mean() - scores[1].mean()) < 6 * error  # a false alarm has probability 2e-9


@pytest.mark.parametrize("name", BANKS["policy_gradient_step"].correct)
def test_correct_steps_are_the_references_step_on_the_same_responses(name, monkeypatch):
    """A stand-in for both samplers hands out the same responses to a prompt, in whatever arrangement it is asked."""
    function = BANKS["policy_gradient_step"].correct[name]
    generate = rollout.generate
    for policy, problems, estimator, *step_size in step_inputs():
        problems = problems[:-1]  # without the one that is there twice
        prompts, group = encode_prompts(problems), estimator.group_size
        responses = generate(policy, prompts, group, generator=torch.Generator().manual_seed(6))
        found = []
        for step in (function, lab.policy_gradient_step):
            hand_out = in_order(prompts, responses.view(len(problems), group, -1))
            monkeypatch.setattr(rollout, "generate", hand_out)
            monkeypatch.setitem(function.__globals__, "sample_responses", hand_out)
            found.append(step_outcome(step, policy, problems, estimator, *step_size))
        assert close(*found), found


def in_order(prompts, groups):
    """A sampler that gives a prompt's responses one after another."""
    left = defaultdict(list, {tuple(p): list(group) for p, group in zip(prompts.tolist(), groups, strict=True)})

    def sample(model, prompts, samples_per_prompt=1, temperature=1.0, generator=None):
        assert temperature == 1.0
        return torch.stack([left[tuple(p)].pop(0) for p in prompts.tolist() for _ in range(samples_per_prompt)])

    return sample
