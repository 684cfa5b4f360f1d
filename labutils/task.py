"""The arithmetic task: its tokens, random problems, and the two ways of answering them.

A prompt is a list of 2 to 8 digits. Starting from s = 0, each digit d in turn sets s to (3 s + d) mod 10, and
the last state is the answer. A response gives it directly, `> a <end>`, or after working it out,
`: s1 s2 ... sn > a <end>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labutils.errors import LabError

PAD, EQUALS, COLON, ARROW, END = range(10, 15)  # the digits are the tokens 0 to 9
TOKEN_TEXT = (*"0123456789", "<pad>", "=", ":", ">", "<end>")
VOCABULARY = len(TOKEN_TEXT)
MIN_DIGITS, MAX_DIGITS = 2, 8
PROMPT_TOKENS = MAX_DIGITS + 1
RESPONSE_TOKENS = MAX_DIGITS + 4  # `:`, eight states, `>`, the answer, `<end>`


@dataclass(frozen=True)
class Problems:
    """A batch of B problems.

    digits: (B, 8) int64, left-padded with `PAD`.
    lengths: (B,) int64, the number of digits, 2 to 8.
    states: (B, 8) int64, the state after each digit, aligned with `digits`; `PAD` where there is no digit.
    """

    digits: Tensor
    lengths: Tensor
    states: Tensor

    @classmethod
    def from_digits(cls, lists: Sequence[Sequence[int]]) -> Problems:
        """Problems with the given digits, one list each. Raises `LabError` for a bad length or digit."""
        if not lists:
            raise LabError("no digit lists were given; at least one is needed")
        for digits in lists:
            if not MIN_DIGITS <= len(digits) <= MAX_DIGITS:
                raise LabError(f"a list of {len(digits)} digits; allowed are {MIN_DIGITS} to {MAX_DIGITS}")
            for digit in digits:
                if not isinstance(digit, int) or not 0 <= digit <= 9:
                    raise LabError(f"digit {digit!r}; allowed are the integers 0 to 9")
        padded = [[PAD] * (MAX_DIGITS - len(digits)) + list(digits) for digits in lists]
        return cls._solve(torch.tensor(padded), torch.tensor([len(digits) for digits in lists]))

    @classmethod
    def _solve(cls, digits: Tensor, lengths: Tensor) -> Problems:
        states, state = torch.full_like(digits, PAD), torch.zeros_like(lengths)
        for position in range(MAX_DIGITS):
            digit = digits[:, position]
            state = torch.where(digit == PAD, state, (3 * state + digit) % 10)
            states[:, position] = torch.where(digit == PAD, PAD, state)
        return cls(digits, lengths, states)

    @classmethod
    def join(cls, batches: Sequence[Problems]) -> Problems:
        """The problems of all batches, in order."""
        columns = [(batch.digits, batch.lengths, batch.states) for batch in batches]
        return cls(*(torch.cat(column) for column in zip(*columns, strict=True)))

    @property
    def answers(self) -> Tensor:
        """(B,) int64, the final states."""
        return self.states[:, -1]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: slice | Tensor) -> Problems:
        return Problems(self.digits[index], self.lengths[index], self.states[index])

    def repeat_interleave(self, repeats: int) -> Problems:
        """(B * repeats) problems: each one `repeats` times in a row, as a group of responses needs them."""
        return Problems(
            self.digits.repeat_interleave(repeats, 0),
            self.lengths.repeat_interleave(repeats, 0),
            self.states.repeat_interleave(repeats, 0),
        )


def sample_problems(count: int, generator: torch.Generator | None = None, length: int | None = None) -> Problems:
    """`count` problems with uniform random digits, of `length` digits each, or of uniform random lengths.

    Raises `LabError` for a count below 1 or a length outside 2 to 8.
    """
    if count < 1:
        raise LabError(f"{count} problems; at least 1 is needed")
    if length is None:
        lengths = torch.randint(MIN_DIGITS, MAX_DIGITS + 1, (count,), generator=generator)
    elif MIN_DIGITS <= length <= MAX_DIGITS:
        lengths = torch.full((count,), length)
    else:
        raise LabError(f"length {length}; allowed are {MIN_DIGITS} to {MAX_DIGITS}")
    digits = torch.randint(0, 10, (count, MAX_DIGITS), generator=generator)
    padding = torch.arange(MAX_DIGITS) < (MAX_DIGITS - lengths)[:, None]
    return Problems._solve(digits.masked_fill(padding, PAD), lengths)


def encode_prompts(problems: Problems) -> Tensor:
    """(B, 9) int64: the left-padded digits, then `=`."""
    return torch.cat([problems.digits, problems.digits.new_full((len(problems), 1), EQUALS)], 1)


def encode_responses(problems: Problems, worked: Tensor) -> Tensor:
    """(B, 12) int64 correct responses, padded after `<end>`; `worked` (B,) bool says which show their steps.

    Raises `LabError` for another shape or dtype of `worked`.
    """
    count = len(problems)
    if worked.dtype != torch.bool or worked.shape != (count,):
        raise LabError(f"worked of {worked.dtype} {tuple(worked.shape)}; allowed is torch.bool ({count},)")
    # A row of every worked response: `:`, the states moved to the left, `>`, the answer, `<end>`.
    shift = (MAX_DIGITS - problems.lengths)[:, None] + torch.arange(MAX_DIGITS)
    states = problems.states.gather(1, shift.clamp(max=MAX_DIGITS - 1))
    responses = torch.full((count, RESPONSE_TOKENS), PAD)
    responses[:, 0] = COLON
    responses[:, 1 : MAX_DIGITS + 1] = states
    rows, start = torch.arange(count), torch.where(worked, problems.lengths + 1, 0)
    responses[rows, start] = ARROW
    responses[rows, start + 1] = problems.answers
    responses[rows, start + 2] = END
    return responses.masked_fill(torch.arange(RESPONSE_TOKENS) > (start + 2)[:, None], PAD)


def response_mask(responses: Tensor) -> Tensor:
    """(B, R) bool: true up to and including the first `<end>`, everywhere in a row that has none.

    Where `<end>` stands decides, not which tokens are padding: an untrained model can sample the padding token.
    """
    ended = (responses == END).cumsum(1)
    return ended - (responses == END).long() == 0


def writes_states(responses: Tensor) -> Tensor:
    """(B,) bool: the response starts with `:`, whether the states that follow are right or wrong."""
    return responses[:, 0] == COLON


def decode(tokens: Tensor | Sequence[int]) -> str:
    """The tokens of one sequence as text, up to the first `<end>`, without the padding on the left.

    `decode` of a prompt joined with its response reads, for example, `4 7 1 = : 4 9 8 > 8 <end>`.
    Raises `LabError` for a value that is no token.
    """
    values = [int(token) for token in tokens]
    for value in values:
        if not 0 <= value < VOCABULARY:
            raise LabError(f"token {value}; allowed are 0 to {VOCABULARY - 1}")
    start = next((i for i, value in enumerate(values) if value != PAD), len(values))
    stop = values.index(END) + 1 if END in values else len(values)
    return " ".join(TOKEN_TEXT[value] for value in values[start:stop])
