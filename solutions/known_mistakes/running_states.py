"""Variants of `running_states`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from known_mistakes import Bank

bank = Bank("running_states")


@bank.mistake("the digit is added before the multiplication by 3: 3 (s + d)")
def added_first(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = 3 * (state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the digit is multiplied by 3 instead of the state")
def digit_multiplied(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = (state + 3 * digit) % 10
        states.append(state)
    return states


@bank.mistake("the state is not multiplied by 3")
def running_sum(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = (state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the states are not taken modulo 10")
def no_modulo(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = 3 * state + digit
        states.append(state)
    return states


@bank.mistake("only the last state is taken modulo 10")
def modulo_at_the_end(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = 3 * state + digit
        states.append(state)
    return states[:-1] + [state % 10]


@bank.mistake("modulo 10 is taken before the digit is added")
def modulo_before_adding(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = 3 * state % 10 + digit
        states.append(state)
    return states


@bank.mistake("the states are taken modulo 9")
def modulo_nine(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        state = (3 * state + digit) % 9
        states.append(state)
    return states


@bank.mistake("the start state is 1 instead of 0")
def starts_at_one(digits: Sequence[int]) -> list[int]:
    states, state = [], 1
    for digit in digits:
        state = (3 * state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the first digit is applied twice")
def first_digit_twice(digits: Sequence[int]) -> list[int]:
    states, state = [], digits[0]
    for digit in digits:
        state = (3 * state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the list contains the start state 0")
def start_included(digits: Sequence[int]) -> list[int]:
    states = [0]
    for digit in digits:
        states.append((3 * states[-1] + digit) % 10)
    return states


@bank.mistake("each state is recorded before its digit is applied")
def recorded_early(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in digits:
        states.append(state)
        state = (3 * state + digit) % 10
    return states


@bank.mistake("the last digit is left out")
def last_left_out(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for i in range(len(digits) - 1):
        state = (3 * state + digits[i]) % 10
        states.append(state)
    return states


@bank.mistake("the first state is left out")
def first_left_out(digits: Sequence[int]) -> list[int]:
    states, state = [], digits[0]
    for digit in digits[1:]:
        state = (3 * state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the digits are read from right to left")
def right_to_left(digits: Sequence[int]) -> list[int]:
    states, state = [], 0
    for digit in reversed(digits):
        state = (3 * state + digit) % 10
        states.append(state)
    return states


@bank.mistake("the states are in reverse order")
def reversed_states(digits: Sequence[int]) -> list[int]:
    states: list[int] = []
    state = 0
    for digit in digits:
        state = (3 * state + digit) % 10
        states.insert(0, state)
    return states


@bank.mistake("only the last state is returned, not one for each digit")
def answer_only(digits: Sequence[int]) -> int:
    state = 0
    for digit in digits:
        state = (3 * state + digit) % 10
    return state


@bank.mistake("each state is computed from 0, not from the state before it")
def not_carried(digits: Sequence[int]) -> list[int]:
    state = 0
    return [(3 * state + digit) % 10 for digit in digits]


@bank.mistake("the digit before is multiplied by 3 instead of the state before")
def neighbours(digits: Sequence[int]) -> list[int]:
    before = [0, *digits[:-1]]
    return [(3 * b + d) % 10 for b, d in zip(before, digits, strict=True)]


@bank.right("itertools.accumulate")
def accumulated(digits: Sequence[int]) -> list[int]:
    return list(accumulate(digits, lambda state, digit: (3 * state + digit) % 10))


@bank.right("the closed form: digits weighted by powers of 3")
def closed_form(digits: Sequence[int]) -> list[int]:
    return [sum(3 ** (i - j) * digits[j] for j in range(i + 1)) % 10 for i in range(len(digits))]


@bank.right("whole numbers of any size, reduced modulo 10 at the end")
def reduced_at_the_end(digits: Sequence[int]) -> list[int]:
    numbers = [digits[0]]
    for digit in digits[1:]:
        numbers.append(3 * numbers[-1] + digit)
    return [number % 10 for number in numbers]


@bank.right("recursion")
def recursive(digits: Sequence[int]) -> list[int]:
    if len(digits) == 0:
        return []
    before = recursive(digits[:-1])
    last = before[-1] if before else 0
    return [*before, (3 * last + digits[-1]) % 10]


@bank.right("a tensor of states, turned into a list")
def with_a_tensor(digits: Sequence[int]) -> list[int]:
    states = torch.zeros(len(digits) + 1, dtype=torch.long)
    for i, digit in enumerate(digits):
        states[i + 1] = (3 * states[i] + digit) % 10
    return states[1:].tolist()
