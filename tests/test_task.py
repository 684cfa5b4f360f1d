import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import ARROW, COLON, END, EQUALS, PAD, answer

from labutils.errors import LabError
from labutils.task import (
    Problems,
    decode,
    encode_prompts,
    encode_responses,
    response_mask,
    sample_problems,
    writes_states,
)

digit_lists = st.lists(st.integers(0, 9), min_size=2, max_size=8)


@given(st.lists(digit_lists, min_size=1, max_size=5))
def test_answers_are_the_weighted_sum_of_the_digits(lists):
    assert Problems.from_digits(lists).answers.tolist() == [answer(digits) for digits in lists]


@given(digit_lists, st.booleans())
def test_a_problem_and_its_response_read_as_specified(digits, worked):
    problems = Problems.from_digits([digits])
    prompt, response = encode_prompts(problems)[0], encode_responses(problems, torch.tensor([worked]))[0]
    assert prompt.tolist() == [PAD] * (8 - len(digits)) + digits + [EQUALS]
    states = [answer(digits[: i + 1]) for i in range(len(digits))]
    tokens = ([COLON, *states] if worked else []) + [ARROW, states[-1], END]
    assert response.tolist() == tokens + [PAD] * (12 - len(tokens))
    steps = ": " + " ".join(map(str, states)) + " " if worked else ""
    text = " ".join(map(str, digits)) + f" = {steps}> {states[-1]} <end>"
    assert decode(torch.cat([prompt, response])) == text


def test_a_batch_is_encoded_as_its_problems_one_by_one():
    problems = sample_problems(50, torch.Generator().manual_seed(0))
    worked = torch.arange(50) % 2 == 0
    together = encode_responses(problems, worked)
    for i in range(50):
        assert torch.equal(together[i], encode_responses(problems[i : i + 1], worked[i : i + 1])[0])


def test_the_example_of_the_readme():
    assert decode([10] * 5 + [4, 7, 1, EQUALS, COLON, 4, 9, 8, ARROW, 8, END]) == "4 7 1 = : 4 9 8 > 8 <end>"


def test_lengths_and_digits_are_uniform():
    problems = sample_problems(70_000, torch.Generator().manual_seed(0))
    lengths = torch.bincount(problems.lengths, minlength=9)
    # 7 lengths of 10,000 expected each, standard deviation 93: beyond 600 is beyond 6 of them.
    assert lengths[:2].sum() == 0
    assert (lengths[2:] - 10_000).abs().max() < 600
    digits = torch.bincount(problems.digits.flatten(), minlength=11)[:10].double()
    # 35,000 of each digit expected, standard deviation 182.
    assert (digits - digits.mean()).abs().max() < 6 * 182
    assert (problems.digits != PAD).sum(1).equal(problems.lengths)


@given(st.lists(st.integers(0, 14), min_size=1, max_size=12))
def test_the_mask_ends_with_the_first_end_token(response):
    used = response.index(END) + 1 if END in response else len(response)
    mask = response_mask(torch.tensor([response]))[0].tolist()
    assert mask == [t < used for t in range(len(response))]


def test_writing_the_states_is_told_by_the_first_token():
    responses = torch.tensor([[COLON, 3, ARROW], [ARROW, COLON, END], [COLON, END, PAD]])
    assert writes_states(responses).tolist() == [True, False, True]


def test_repeated_problems_stand_in_groups():
    repeated = Problems.from_digits([[1, 2], [3, 4, 5]]).repeat_interleave(3)
    assert repeated.lengths.tolist() == [2, 2, 2, 3, 3, 3]
    assert repeated.answers.tolist() == [answer([1, 2])] * 3 + [answer([3, 4, 5])] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problems.from_digits([[1, 10]]), "digit 10; allowed are the integers 0 to 9"),
        (lambda: Problems.from_digits([[1, -1]]), "digit -1; allowed are the integers 0 to 9"),
        (lambda: Problems.from_digits([[1, 2.5]]), "digit 2.5; allowed are the integers 0 to 9"),
        (lambda: Problems.from_digits([[1]]), "a list of 1 digits; allowed are 2 to 8"),
        (lambda: Problems.from_digits([[1] * 9]), "a list of 9 digits; allowed are 2 to 8"),
        (lambda: Problems.from_digits([]), "no digit lists"),
        (lambda: sample_problems(5, length=9), "length 9; allowed are 2 to 8"),
        (lambda: sample_problems(5, length=1), "length 1; allowed are 2 to 8"),
        (lambda: sample_problems(0), "0 problems; at least 1 is needed"),
        (lambda: encode_responses(sample_problems(1), torch.ones(1)), r"worked of torch.float32 \(1,\); allowed"),
        (lambda: encode_responses(sample_problems(1), torch.ones(2) > 0), r"worked of torch.bool \(2,\); allowed"),
        (lambda: decode([3, 15]), "token 15; allowed are 0 to 14"),
        (lambda: decode([-1]), "token -1; allowed are 0 to 14"),
    ],
)
def test_bad_input_is_named_with_what_is_allowed(make, message):
    with pytest.raises(LabError, match="^" + message) as error:
        make()
    assert "\n" not in str(error.value)
