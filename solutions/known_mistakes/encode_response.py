"""Variants of `encode_response`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from lab16_llm_rl import encode_prompt, running_states

from known_mistakes import Bank
from labutils.task import ARROW, COLON, END, EQUALS, PAD, RESPONSE_TOKENS, Problems, encode_responses

bank = Bank("encode_response")


@bank.mistake("`<end>` is missing")
def no_end(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[-1]]


@bank.mistake("the response ends with padding instead of `<end>`")
def pad_as_end(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[-1], PAD]


@bank.mistake("the response is padded to 12 tokens")
def padded(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    response = [*steps, ARROW, states[-1], END]
    return response + [PAD] * (RESPONSE_TOKENS - len(response))


@bank.mistake("direct and worked are swapped")
def swapped(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [] if worked else [COLON, *states]
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the response is always worked")
def always_worked(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    return [COLON, *states, ARROW, states[-1], END]


@bank.mistake("the response is always direct")
def always_direct(digits: Sequence[int], worked: bool) -> list[int]:
    return [ARROW, running_states(digits)[-1], END]


@bank.mistake("`:` is missing from the worked response")
def no_colon(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = states if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the direct response starts with `:` too")
def colon_everywhere(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = states if worked else []
    return [COLON, *steps, ARROW, states[-1], END]


@bank.mistake("`>` is missing")
def no_arrow(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, states[-1], END]


@bank.mistake("`>` is missing from the worked response")
def no_arrow_when_worked(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    if worked:
        return [COLON, *states, states[-1], END]
    return [ARROW, states[-1], END]


@bank.mistake("`:` and `>` are swapped")
def swapped_signs(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [ARROW, *states] if worked else []
    return [*steps, COLON, states[-1], END]


@bank.mistake("`=` stands where `>` belongs")
def equals(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, EQUALS, states[-1], END]


@bank.mistake("the worked response repeats the digits instead of writing the states")
def digits_as_steps(digits: Sequence[int], worked: bool) -> list[int]:
    steps = [COLON, *digits] if worked else []
    return [*steps, ARROW, running_states(digits)[-1], END]


@bank.mistake("the last state is left out of the steps")
def last_state_missing(digits: Sequence[int], worked: bool) -> list[int]:
    *states, answer = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, answer, END]


@bank.mistake("the first state is left out of the steps")
def first_state_missing(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states[1:]] if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the steps contain the start state 0")
def start_included(digits: Sequence[int], worked: bool) -> list[int]:
    states = [0, *running_states(digits)]
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the answer is left out of the worked response: the last state is taken for it")
def answer_missing(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    if worked:
        return [COLON, *states, END]
    return [ARROW, states[-1], END]


@bank.mistake("the answer is the first state instead of the last")
def first_as_answer(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[0], END]


@bank.mistake("the answer is the last digit, not the last state")
def digit_as_answer(digits: Sequence[int], worked: bool) -> list[int]:
    steps = [COLON, *running_states(digits)] if worked else []
    return [*steps, ARROW, digits[-1], END]


@bank.mistake("the states are in reverse order")
def reversed_states(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *reversed(states)] if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the states are one list inside the response")
def nested(digits: Sequence[int], worked: bool) -> list[Any]:
    states = running_states(digits)
    steps = [COLON, states] if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.mistake("the response contains the prompt")
def with_prompt(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    steps = [COLON, *states] if worked else []
    return [*encode_prompt(digits), *steps, ARROW, states[-1], END]


@bank.mistake("the digit is added before the multiplication by 3: 3 (s + d)")
def other_recurrence(digits: Sequence[int], worked: bool) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = 3 * (state + digit) % 10
        states.append(state)
    steps = [COLON, *states] if worked else []
    return [*steps, ARROW, states[-1], END]


@bank.right("a list that grows")
def growing(digits: Sequence[int], worked: bool) -> list[int]:
    response = []
    if worked:
        response.append(COLON)
        response.extend(running_states(digits))
    response.append(ARROW)
    response.append(running_states(digits)[-1])
    response.append(END)
    return response


@bank.right("the worked response, cut for the direct one")
def cut(digits: Sequence[int], worked: bool) -> list[int]:
    states = running_states(digits)
    full = [COLON, *states, ARROW, states[-1], END]
    return full if worked else full[len(states) + 1 :]


@bank.right("states by itertools.accumulate")
def accumulated(digits: Sequence[int], worked: bool) -> list[int]:
    states = list(accumulate(digits, lambda state, digit: (3 * state + digit) % 10))
    return [COLON, *states, ARROW, states[-1], END] if worked else [ARROW, states[-1], END]


@bank.right("the answer in closed form")
def closed_form(digits: Sequence[int], worked: bool) -> list[int]:
    answer = sum(3**i * digit for i, digit in enumerate(reversed(digits))) % 10
    ending = [ARROW, answer, END]
    return [COLON] + running_states(digits) + ending if worked else ending


@bank.right("the batched encoding of one problem, without its padding")
def batch_of_one(digits: Sequence[int], worked: bool) -> list[int]:
    tokens = encode_responses(Problems.from_digits([list(digits)]), torch.tensor([bool(worked)]))[0].tolist()
    return tokens[: tokens.index(END) + 1]
