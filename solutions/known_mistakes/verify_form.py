"""Variants of `verify_form`. Most look at one response at a time: `each` makes a verifier of such a look."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from known_mistakes import Bank, Function
from labutils.task import ARROW, COLON, END, PAD, Problems

bank = Bank("verify_form")

Tokens = list[int]


def cut(row: Tokens) -> Tokens:
    """The tokens before the first `<end>`, none where there is none."""
    return row[: row.index(END)] if END in row else []


def digits(tokens: Tokens) -> bool:
    """Whether all are digits."""
    return all(token <= 9 for token in tokens)


def each(look: Callable[[Tokens], bool], before: Callable[[Tokens], Tokens] = cut) -> Function:
    """A verifier that accepts the responses whose tokens before `<end>` pass the look."""

    def verify_form(problems: Problems, responses: Tensor) -> Tensor:
        return torch.tensor([bool(look(before(row))) for row in responses.tolist()])

    return verify_form


def right(tokens: Tokens) -> bool:
    """The form as it is asked for."""
    return len(tokens) >= 4 and tokens[0] == COLON and tokens[-2] == ARROW and digits([*tokens[1:-2], tokens[-1]])


def direct(tokens: Tokens) -> bool:
    """`> d`."""
    return len(tokens) == 2 and tokens[0] == ARROW and digits(tokens[1:])


LOOKS: dict[str, Callable[[Tokens], bool]] = {
    "the answer must repeat the last state": lambda t: right(t) and t[-1] == t[-3],
    "direct answers are accepted as well": lambda t: right(t) or direct(t),
    "the first token is not looked at": lambda t: len(t) >= 4 and right([COLON, *t[1:]]),
    "only the first token is looked at": lambda t: t[:1] == [COLON],
    "the states are not looked at": lambda t: len(t) >= 4 and right([COLON, 0, *t[-2:]]) and t[0] == COLON,
    "no state is needed": lambda t: right(t) or (t[:2] == [COLON, ARROW] and len(t) == 3 and digits(t[2:])),
    "the arrow is not looked at": lambda t: len(t) >= 4 and t[0] == COLON and digits([*t[1:-2], t[-1]]),
    "the answer need not be a digit": lambda t: len(t) >= 4 and right([*t[:-1], 0]),
    "two states at least are needed": lambda t: len(t) >= 5 and right(t),
    "the verdicts are turned round": lambda t: not right(t),
}
for name, look in LOOKS.items():
    bank.mistake(name)(each(look))


bank.mistake("a response without `<end>` is read up to its last token")(
    each(right, lambda row: cut(row) if END in row else [token for token in row if token != PAD])
)
bank.mistake("the last `<end>` ends the response, not the first")(
    each(right, lambda row: row[: len(row) - 1 - row[::-1].index(END)] if END in row else [])
)


@bank.mistake("the answer must be right: nothing is left of the weaker verifier")
def right_answer(problems: Problems, responses: Tensor) -> Tensor:
    rows = zip(responses.tolist(), problems.answers.tolist(), strict=True)
    return torch.tensor([right(cut(row)) and cut(row)[-1] == answer for row, answer in rows])


@bank.mistake("the number of states must be that of the problem's digits")
def as_many_states(problems: Problems, responses: Tensor) -> Tensor:
    rows = zip(responses.tolist(), problems.lengths.tolist(), strict=True)
    return torch.tensor([right(cut(row)) and len(cut(row)) == count + 3 for row, count in rows])


@bank.mistake("one verdict for the whole batch is returned")
def one_verdict(problems: Problems, responses: Tensor) -> Tensor:
    return torch.tensor(all(right(cut(row)) for row in responses.tolist()))


@bank.right("a regular expression over letters that stand for the tokens")
def regular_expression(problems: Problems, responses: Tensor) -> Tensor:
    letters = ["".join(chr(ord("a") + token) for token in row) for row in responses.tolist()]
    return torch.tensor([re.match("m[a-j]+n[a-j]o", text) is not None for text in letters])


@bank.right("tensor operations along the first `<end>`")
def tensor_operations(problems: Problems, responses: Tensor) -> Tensor:
    end = (responses == END).int().argmax(1)
    place, row = torch.arange(responses.shape[1]), torch.arange(len(responses))
    wanted = (place > 0) & (place < end[:, None]) & (place != (end - 2)[:, None])
    all_digits = ((responses <= 9) | ~wanted).all(1)
    return (end >= 4) & (responses[:, 0] == COLON) & (responses[row, end - 2] == ARROW) & all_digits


NEXT = {
    ("start", COLON): "opened",
    ("opened", "digit"): "states",
    ("states", "digit"): "states",
    ("states", ARROW): "closing",
    ("closing", "digit"): "answered",
    ("answered", END): "accepted",
}


@bank.right("a machine that reads token by token")
def machine(problems: Problems, responses: Tensor) -> Tensor:
    verdicts = []
    for row in responses.tolist():
        state = "start"
        for token in row:
            state = state if state == "accepted" else NEXT.get((state, "digit" if token <= 9 else token), "stuck")
        verdicts.append(state == "accepted")
    return torch.tensor(verdicts)
