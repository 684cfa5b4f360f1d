"""The fast engine against the plain forward pass, which computes every position of every row."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import END, PAD, plain_log_probs, small_model, used_tokens

from labutils.errors import LabError
from labutils.model import Transformer
from labutils.rollout import generate, response_log_probs, response_logits
from labutils.task import encode_prompts, encode_responses, sample_problems

# Six sigma, two-sided: the chance of a false alarm is 2e-9, once and for all, since the seeds are fixed.
SIGMAS = 6.0
PROMPTS = encode_prompts(sample_problems(4, torch.Generator().manual_seed(0)))


def gradients(model, log_probs, weights):
    return torch.autograd.grad((log_probs * weights).sum(), list(model.parameters()), allow_unused=False)


def assert_same(model, prompts, responses, value_tolerance, gradient_tolerance):
    weights = torch.randn(responses.shape, generator=torch.Generator().manual_seed(3)).to(model.head.weight)
    plain, fast = (f(model, prompts, responses) for f in (plain_log_probs, response_log_probs))
    assert fast.shape == responses.shape
    difference = (plain - fast).abs().max().item()
    assert difference <= value_tolerance, f"values differ by {difference}"
    wanted, got = gradients(model, plain, weights), gradients(model, fast, weights)
    for (name, _), expected, found in zip(model.named_parameters(), wanted, got, strict=True):
        gap = (expected - found).norm() / max(expected.norm().item(), 1e-12)
        # A gradient that is zero up to rounding (the bias of the keys) has no relative error.
        if expected.norm() > 1e-12:
            assert gap <= gradient_tolerance, f"gradient of {name} is off by {gap:.2e}, relative"


@st.composite
def batches(draw):
    """Prompts of raw tokens and ragged responses, with repeats, shared beginnings and missing <end>."""
    length = draw(st.integers(1, 12))
    token = st.one_of(st.integers(0, 14), st.sampled_from([END, PAD]))
    prompt_pool = draw(st.lists(st.lists(token, min_size=9, max_size=9), min_size=1, max_size=3))
    response_pool = draw(st.lists(st.lists(token, min_size=length, max_size=length), min_size=1, max_size=4))
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        response = list(draw(st.sampled_from(response_pool)))
        cut = draw(st.integers(0, length))  # share a beginning with another row, then part from it
        tail = draw(st.lists(token, min_size=length - cut, max_size=length - cut))
        rows.append((draw(st.sampled_from(prompt_pool)), response[:cut] + tail))
    prompts, responses = zip(*rows, strict=True)
    return torch.tensor(prompts), torch.tensor(responses)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_log_probs_and_gradients_equal_the_plain_forward_pass(batch):
    assert_same(small_model(), *batch, 1e-10, 1e-10)


CASES = {
    "batch of one": [[13, 5, END, PAD]],
    "equal responses": [[13, 5, END, PAD]] * 3,
    "a response that is the beginning of another": [[13, 5, END, PAD], [13, 5, 13, 5], [13, 5, 13, END]],
    "no <end> anywhere": [[12, 1, 2, 3], [12, 1, 2, 4]],
    "padding inside a response": [[PAD, PAD, 13, END], [PAD, 5, PAD, PAD], [13, PAD, END, PAD]],
    "<end> at once": [[END, 3, END, END], [END, PAD, PAD, PAD]],
    "tokens after <end>": [[13, 5, END, 7], [13, 5, END, 9]],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("same_prompt", [True, False])
def test_shapes_of_batches(name, same_prompt):
    responses = torch.tensor(CASES[name])
    prompts = PROMPTS[[0] * len(responses)] if same_prompt else PROMPTS[: len(responses)]
    assert_same(small_model(), prompts, responses, 1e-10, 1e-10)


@pytest.mark.parametrize("kind", ["pretraining batch", "groups"])
def test_the_labs_own_model_in_single_precision(kind):
    torch.manual_seed(0)
    model = Transformer()
    problems = sample_problems(24, torch.Generator().manual_seed(0))
    if kind == "groups":
        prompts = encode_prompts(problems[:6]).repeat_interleave(4, 0)
        responses = generate(model, encode_prompts(problems[:6]), 4, generator=torch.Generator().manual_seed(1))
    else:
        prompts, responses = encode_prompts(problems), encode_responses(problems, torch.arange(24) % 3 == 0)
    assert_same(model, prompts, responses, 1e-5, 1e-4)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_logits_and_their_gradients_equal_the_plain_forward_pass(batch):
    model, (prompts, responses) = small_model(), batch
    plain = model(torch.cat([prompts, responses], 1)[:, :-1])[:, 8:]
    used = torch.tensor([used_tokens(response) for response in responses.tolist()])
    plain = plain * (torch.arange(responses.shape[1]) < used[:, None])[:, :, None]
    fast = response_logits(model, prompts, responses)
    assert (plain - fast).abs().max() <= 1e-10
    weights = torch.randn(plain.shape, generator=torch.Generator().manual_seed(3)).double()
    for expected, found in zip(gradients(model, plain, weights), gradients(model, fast, weights), strict=True):
        assert (expected - found).norm() <= 1e-10 * max(1, expected.norm())


def test_without_gradients_the_values_are_the_same():
    model = small_model()
    responses = generate(model, PROMPTS, 3, generator=torch.Generator().manual_seed(0))
    prompts = PROMPTS.repeat_interleave(3, 0)
    with torch.no_grad():
        fast = response_log_probs(model, prompts, responses)
    assert not fast.requires_grad
    assert torch.equal(fast, response_log_probs(model, prompts, responses).detach())


def exact_response_probabilities(model, prompt, temperature):
    """Every response of a model that has room for two tokens, with its probability: {(first, second): p}."""
    first = (model(prompt[None])[0, -1] / temperature).softmax(-1)
    inputs = torch.cat([prompt.expand(15, -1), torch.arange(15)[:, None]], 1)
    second = (model(inputs)[:, -1] / temperature).softmax(-1)
    table = {(END, PAD): first[END].item()}
    for token in (t for t in range(15) if t != END):
        for following in range(15):
            table[token, following] = (first[token] * second[token, following]).item()
    assert math.isclose(sum(table.values()), 1.0, rel_tol=1e-9)
    return table


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.9])
@torch.no_grad()
def test_sampled_frequencies_are_the_models_probabilities(temperature):
    model = small_model(response_tokens=2)
    samples = 40_000
    prompts = PROMPTS[:2]
    responses = generate(model, prompts, samples, temperature, torch.Generator().manual_seed(5))
    for i, prompt in enumerate(prompts):
        own = responses[i * samples : (i + 1) * samples]
        counts = torch.bincount(own[:, 0] * 15 + own[:, 1], minlength=225)
        seen = 0
        for (first, second), p in exact_response_probabilities(model, prompt, temperature).items():
            count = counts[first * 15 + second].item()
            seen += count
            # Six standard deviations, and one count for what is too rare to be normal.
            allowed = SIGMAS * math.sqrt(samples * p * (1 - p)) + SIGMAS**2 / 2
            assert abs(count - samples * p) <= allowed, (i, first, second, count, samples * p)
        assert seen == samples  # nothing follows <end> but padding


@torch.no_grad()
def test_the_responses_of_a_group_are_independent():
    """Pairs of first tokens within a group: their joint frequency is the product of the frequencies."""
    model, samples = small_model(response_tokens=1), 60_000
    probability = model(PROMPTS[:1])[0, -1].softmax(-1)
    pairs = generate(model, PROMPTS[:1], samples, generator=torch.Generator().manual_seed(2)).view(-1, 2)
    counts = torch.bincount(pairs[:, 0] * 15 + pairs[:, 1], minlength=225).view(15, 15)
    expected = probability[:, None] * probability * len(pairs)
    allowed = SIGMAS * expected.sqrt() + SIGMAS**2 / 2
    assert ((counts - expected).abs() <= allowed).all()


@pytest.mark.parametrize("samples_per_prompt", [1, 3])
@torch.no_grad()
def test_near_temperature_zero_it_follows_the_plain_argmax_to_the_last_token(samples_per_prompt):
    model, prompts = (
        small_model(seed=4),
        encode_prompts(sample_problems(30, torch.Generator().manual_seed(8))),
    )
    got = generate(model, prompts, samples_per_prompt, 1e-4, torch.Generator().manual_seed(0))
    sequences, ended = prompts, torch.zeros(30, dtype=torch.bool)
    for _ in range(12):
        token = model(sequences)[:, -1].argmax(-1).masked_fill(ended, PAD)
        sequences, ended = torch.cat([sequences, token[:, None]], 1), ended | (token == END)
    assert torch.equal(got, sequences[:, 9:].repeat_interleave(samples_per_prompt, 0))


def test_the_same_generator_gives_the_same_responses_and_the_global_one_is_left_alone():
    model = small_model()
    before = torch.random.get_rng_state()
    one, two = (generate(model, PROMPTS, 4, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())


GOOD = torch.tensor([[13, 5, END]])
BAD_INPUT = {
    "prompts of shape (1, 8); allowed is (rows, 9) with at least one row": (PROMPTS[:1, 1:], GOOD),
    "prompts of shape (9,); allowed is (rows, 9) with at least one row": (PROMPTS[0], GOOD),
    "prompts of shape (0, 9); allowed is (rows, 9) with at least one row": (PROMPTS[:0], GOOD[:0]),
    "responses of shape (1, 13); allowed is (rows, 1 to 12) with at least one row": (
        PROMPTS[:1],
        torch.zeros(1, 13, dtype=torch.long),
    ),
    "prompts of dtype torch.float32; allowed is torch.int64": (PROMPTS[:1].float(), GOOD),
    "responses of dtype torch.int32; allowed is torch.int64": (PROMPTS[:1], GOOD.int()),
    "responses hold token 15; allowed are 0 to 14": (PROMPTS[:1], GOOD + 1),
    "prompts hold token -1; allowed are 0 to 14": (PROMPTS[:1] - 11, GOOD),
    "2 prompts for 1 responses; one each is needed": (PROMPTS[:2], GOOD),
}


@pytest.mark.parametrize("message", BAD_INPUT)
def test_bad_tensors_are_named_with_what_is_allowed(message):
    with pytest.raises(LabError) as error:
        response_log_probs(small_model(), *BAD_INPUT[message])
    if "token -1" not in message:
        assert str(error.value) == message
    else:
        assert str(error.value).startswith("prompts hold token -")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PROMPTS, 0), "0 samples per prompt; at least 1 is needed"),
        ((PROMPTS, 1, 0.0), "temperature 0.0; allowed are finite numbers above 0"),
        ((PROMPTS, 1, -1.0), "temperature -1.0; allowed are finite numbers above 0"),
        ((PROMPTS, 1, math.inf), "temperature inf; allowed are finite numbers above 0"),
        ((PROMPTS, 1, math.nan), "temperature nan; allowed are finite numbers above 0"),
        ((PROMPTS[:, :5],), "prompts of shape (4, 5); allowed is (rows, 9) with at least one row"),
    ],
)
def test_generate_names_what_it_cannot_use(arguments, message):
    with pytest.raises(LabError) as error:
        generate(small_model(), *arguments)
    assert str(error.value) == message
