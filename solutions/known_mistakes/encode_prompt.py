"""Variants of `encode_prompt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from known_mistakes import Bank
from labutils.task import COLON, END, EQUALS, MAX_DIGITS, PAD, PROMPT_TOKENS, Problems, encode_prompts

bank = Bank("encode_prompt")


@bank.mistake("the padding stands after `=`")
def padded_on_the_right(digits: Sequence[int]) -> list[int]:
    return [*digits, EQUALS] + [PAD] * (MAX_DIGITS - len(digits))


@bank.mistake("the padding stands between the digits and `=`")
def padded_in_the_middle(digits: Sequence[int]) -> list[int]:
    return list(digits) + [PAD] * (MAX_DIGITS - len(digits)) + [EQUALS]


@bank.mistake("the padding is missing")
def no_padding(digits: Sequence[int]) -> list[int]:
    return [*digits, EQUALS]


@bank.mistake("there is one padding token too many, which makes 10 tokens")
def one_too_many(digits: Sequence[int]) -> list[int]:
    return [PAD] * (PROMPT_TOKENS - len(digits)) + list(digits) + [EQUALS]


@bank.mistake("there is one padding token too few: `=` was counted among the 8 places")
def one_too_few(digits: Sequence[int]) -> list[int]:
    tokens = [*digits, EQUALS]
    return [PAD] * (MAX_DIGITS - len(tokens)) + tokens


@bank.mistake("`=` is missing")
def no_equals(digits: Sequence[int]) -> list[int]:
    return [PAD] * (MAX_DIGITS - len(digits)) + list(digits)


@bank.mistake("`=` is missing, and one more padding token makes up for it")
def padded_to_nine(digits: Sequence[int]) -> list[int]:
    return [PAD] * (PROMPT_TOKENS - len(digits)) + list(digits)


@bank.mistake("the prompt is padded with the digit 0, which changes the problem")
def padded_with_zeros(digits: Sequence[int]) -> list[int]:
    return [0] * (MAX_DIGITS - len(digits)) + list(digits) + [EQUALS]


@bank.mistake("the prompt is padded with `<end>`")
def padded_with_end(digits: Sequence[int]) -> list[int]:
    return [END] * (MAX_DIGITS - len(digits)) + list(digits) + [EQUALS]


@bank.mistake("the digits are in reverse order")
def reversed_digits(digits: Sequence[int]) -> list[int]:
    return [PAD] * (MAX_DIGITS - len(digits)) + list(reversed(digits)) + [EQUALS]


@bank.mistake("`=` stands before the digits instead of after them")
def equals_first(digits: Sequence[int]) -> list[int]:
    return [PAD] * (MAX_DIGITS - len(digits)) + [EQUALS, *digits]


@bank.mistake("the prompt ends with `:` instead of `=`")
def colon(digits: Sequence[int]) -> list[int]:
    return [PAD] * (MAX_DIGITS - len(digits)) + list(digits) + [COLON]


@bank.mistake("the digits are written as text, not as token numbers")
def text(digits: Sequence[int]) -> list[Any]:
    return [PAD] * (MAX_DIGITS - len(digits)) + [str(digit) for digit in digits] + [EQUALS]


@bank.mistake("the digits are one list inside the prompt")
def nested(digits: Sequence[int]) -> list[Any]:
    return [PAD] * (MAX_DIGITS - len(digits)) + [list(digits), EQUALS]


@bank.mistake("the list of digits that was passed in is changed")
def changed_input(digits: list[int]) -> list[int]:
    while len(digits) < MAX_DIGITS:
        digits.insert(0, PAD)
    digits.append(EQUALS)
    return digits


@bank.mistake("digits equal to 0 are taken for padding")
def zeros_lost(digits: Sequence[int]) -> list[int]:
    padded = [0] * (MAX_DIGITS - len(digits)) + list(digits)
    return [digit or PAD for digit in padded] + [EQUALS]


@bank.right("a full row of padding that is overwritten")
def overwritten(digits: Sequence[int]) -> list[int]:
    tokens = [PAD] * PROMPT_TOKENS
    tokens[-1] = EQUALS
    for i, digit in enumerate(digits):
        tokens[MAX_DIGITS - len(digits) + i] = digit
    return tokens


@bank.right("padding inserted in front until there are 9 tokens")
def inserted(digits: Sequence[int]) -> list[int]:
    tokens = [*digits, EQUALS]
    while len(tokens) < PROMPT_TOKENS:
        tokens.insert(0, PAD)
    return tokens


@bank.right("the last 9 tokens of a row that is long enough")
def cut_to_size(digits: Sequence[int]) -> list[int]:
    return ([PAD] * MAX_DIGITS + list(digits) + [EQUALS])[-PROMPT_TOKENS:]


@bank.right("torch.nn.functional.pad")
def padded_tensor(digits: Sequence[int]) -> list[int]:
    tokens = torch.tensor([*digits, EQUALS])
    return torch.nn.functional.pad(tokens, (PROMPT_TOKENS - len(tokens), 0), value=PAD).tolist()


@bank.right("the batched encoding of one problem")
def batch_of_one(digits: Sequence[int]) -> list[int]:
    return encode_prompts(Problems.from_digits([list(digits)]))[0].tolist()
