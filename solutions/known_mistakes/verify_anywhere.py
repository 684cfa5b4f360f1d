"""Variants of `verify_anywhere`."""

from __future__ import annotations

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import END, Problems, response_mask
from labutils.verifier import verify

bank = Bank("verify_anywhere")


@bank.mistake("the response need not end")
def the_response_need_not_end(problems: Problems, responses: Tensor) -> Tensor:
    return ((responses == problems.answers[:, None]) & response_mask(responses)).any(1)


@bank.mistake("tokens after `<end>` count too")
def tokens_after_end_count_too(problems: Problems, responses: Tensor) -> Tensor:
    return (responses == problems.answers[:, None]).any(1) & (responses == END).any(1)


@bank.mistake("only the last token before `<end>` counts, whatever stands before it")
def only_the_last_token_before_end_counts_wh(problems: Problems, responses: Tensor) -> Tensor:
    end = (responses == END).int().argmax(1)
    row = torch.arange(len(responses))
    return (responses == END).any(1) & (end > 0) & (responses[row, end - 1] == problems.answers)


@bank.mistake("the strong verifier is called")
def the_strong_verifier_is_called(problems: Problems, responses: Tensor) -> Tensor:
    return verify(problems, responses)


@bank.mistake("only the first token counts")
def only_the_first_token_counts(problems: Problems, responses: Tensor) -> Tensor:
    return (responses == problems.answers[:, None])[:, 0] & (responses == END).any(1)


@bank.mistake("the answer of the first problem is looked for everywhere")
def the_answer_of_the_first_problem_is_looke(problems: Problems, responses: Tensor) -> Tensor:
    found = (responses == problems.answers[0]) & response_mask(responses)
    return found.any(1) & (responses == END).any(1)


@bank.mistake("any digit is accepted")
def any_digit_is_accepted(problems: Problems, responses: Tensor) -> Tensor:
    return ((responses <= 9) & response_mask(responses)).any(1) & (responses == END).any(1)


@bank.mistake("the last digit of the list is looked for, not the answer")
def the_last_digit_of_the_list_is_looked_for(problems: Problems, responses: Tensor) -> Tensor:
    found = (responses == problems.digits[:, -1:]) & response_mask(responses)
    return found.any(1) & (responses == END).any(1)


@bank.mistake("all tokens must be the answer")
def all_tokens_must_be_the_answer(problems: Problems, responses: Tensor) -> Tensor:
    return ((responses == problems.answers[:, None]) | ~response_mask(responses)).all(1) & (responses == END).any(1)


@bank.mistake("every state of the problem is accepted")
def every_state_of_the_problem_is_accepted(problems: Problems, responses: Tensor) -> Tensor:
    found = (responses[:, :, None] == problems.states[:, None]) & (problems.states <= 9)[:, None]
    return (found.any(2) & response_mask(responses)).any(1) & (responses == END).any(1)


@bank.mistake("the count of the digit is returned, not whether it occurs")
def the_count_of_the_digit_is_returned_not_w(problems: Problems, responses: Tensor) -> Tensor:
    return ((responses == problems.answers[:, None]) & response_mask(responses)).sum(1) * (responses == END).any(1)


@bank.mistake("the verdicts are turned round")
def the_verdicts_are_turned_round(problems: Problems, responses: Tensor) -> Tensor:
    return ~(((responses == problems.answers[:, None]) & response_mask(responses)).any(1) & (responses == END).any(1))


@bank.right("a loop over lists")
def a_loop_over_lists(problems: Problems, responses: Tensor) -> Tensor:
    verdicts = []
    for row, answer in zip(responses.tolist(), problems.answers.tolist(), strict=True):
        verdicts.append(END in row and answer in row[: row.index(END)])
    return torch.tensor(verdicts)


@bank.right("the first place of the digit lies before the first `<end>`")
def the_first_place_of_the_digit_lies_before(problems: Problems, responses: Tensor) -> Tensor:
    is_answer, is_end = responses == problems.answers[:, None], responses == END
    first = torch.where(is_answer.any(1), is_answer.int().argmax(1), responses.shape[1])
    return is_end.any(1) & (first < is_end.int().argmax(1))


@bank.right("a sum over masked matches")
def a_sum_over_masked_matches(problems: Problems, responses: Tensor) -> Tensor:
    matches = ((responses == problems.answers[:, None]) * response_mask(responses)).sum(1)
    return (matches * (responses == END).any(1)) > 0
