import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import ARROW, COLON, END, PAD, answer, plain_verdict

from labutils.errors import LabError
from labutils.task import Problems, encode_responses, sample_problems
from labutils.verifier import verify

DIGITS = [4, 7, 1]
RIGHT = answer(DIGITS)
WRONG = (RIGHT + 1) % 10


def verdict(response: list[int]) -> bool:
    return bool(verify(Problems.from_digits([DIGITS]), torch.tensor([response]))[0])


@pytest.mark.parametrize(
    ("response", "correct"),
    [
        ([ARROW, RIGHT, END, PAD], True),
        ([COLON, 4, 9, 8, ARROW, RIGHT, END], True),
        ([COLON, 0, 0, 0, ARROW, RIGHT, END], True),  # wrong states: only the ending counts
        ([PAD, EQUALS := 11, 3, ARROW, RIGHT, END], True),
        ([ARROW, WRONG, ARROW, RIGHT, END], True),
        ([ARROW, RIGHT, END, ARROW, WRONG, END], True),  # the first <end> ends the response
        ([ARROW, WRONG, END, ARROW, RIGHT, END], False),
        ([ARROW, RIGHT, ARROW, WRONG, END], False),
        ([ARROW, RIGHT, PAD, END], False),
        ([ARROW, RIGHT, RIGHT, END], False),
        ([RIGHT, END, PAD, PAD], False),
        ([COLON, RIGHT, END, PAD], False),
        ([ARROW, END, RIGHT, END], False),
        ([END, ARROW, RIGHT, END], False),
        ([END] * 12, False),
        ([COLON, 4, 9, 8, ARROW, RIGHT] * 2, False),  # cut off without <end>
        ([0] * 9 + [ARROW, RIGHT, END], True),
        ([ARROW, EQUALS, END, PAD], False),
    ],
)
def test_the_ending_decides(response, correct):
    assert verdict(response) is correct


tokens_of_endings = st.sampled_from([ARROW, RIGHT, WRONG, END, PAD, COLON])


@given(st.lists(tokens_of_endings, min_size=1, max_size=12))
def test_it_agrees_with_the_rule_read_aloud(response):
    assert verdict(response) is plain_verdict(DIGITS, response)


def test_every_correct_response_passes_and_each_one_meets_its_own_problem():
    problems = sample_problems(300, torch.Generator().manual_seed(1))
    responses = encode_responses(problems, torch.arange(300) % 3 == 0)
    assert verify(problems, responses).all()
    rolled = verify(problems, responses.roll(1, 0))
    assert rolled.tolist() == (problems.answers == problems.answers.roll(1)).tolist()


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.long), r"responses of shape \(2, 3\); allowed is \(1, R\)"),
        (torch.zeros(1, 0, dtype=torch.long), r"responses of shape \(1, 0\); allowed is \(1, R\)"),
        (torch.zeros(3, dtype=torch.long), r"responses of shape \(3,\); allowed is \(1, R\)"),
        (torch.zeros(1, 3), r"responses of dtype torch.float32; allowed is torch.int64"),
    ],
)
def test_it_takes_one_response_of_whole_tokens_a_problem(responses, message):
    with pytest.raises(LabError, match=message):
        verify(Problems.from_digits([DIGITS]), responses)
