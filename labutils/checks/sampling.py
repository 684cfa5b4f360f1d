"""The cases of `sample_responses`: any way of sampling passes, in any order, if it samples the right distribution.

Frequencies among n = 256 independent responses are compared with exact probabilities. By Hoeffding's inequality one is
off by more than 0.2 with probability at most 2 exp(-2 n 0.2^2) = 2.6e-9. One of six first tokens of probability 0.09
never comes with probability at most 6 (0.91)^256 = 2e-10. That 32 responses come twice has a probability below 1e-12,
and the script is left with one below 5e-8. A right sampler fails with a probability below 1e-7.

So few responses suffice because the probabilities are chosen so that mistakes move them far, and they leave time for a
sampler that draws one response after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labutils.checks.case import Case, Inputs, same_or_not
from labutils.checks.guard import Guarded
from labutils.checks.models import bigram_model, scripted_model, scripted_problems, scripted_responses
from labutils.checks.values import Finding, Plain, require_tensor, token_values
from labutils.task import ARROW, COLON, END, EQUALS, PAD, RESPONSE_TOKENS, Problems, encode_prompts

RESPONSES = 256
TOLERANCE = 0.2
# Many rare tokens weigh much more at a high temperature than one likely token does. Padding is a token like any other.
RARE = (*range(9), COLON, EQUALS)
LANGUAGE = {
    EQUALS: {ARROW: 0.5, **dict.fromkeys(RARE, 0.5 / len(RARE))},
    ARROW: {PAD: 0.5, END: 0.5},
    **{token: {END: 1.0} for token in (*range(9), COLON, PAD)},
}
STARTS = {"> <end>": (ARROW, END), "> <pad> <end>": (ARROW, PAD)}
# Seven first tokens of which the six rare ones are 0.09 likely each: a sampler that cuts the tail off loses some.
TAIL = {EQUALS: {END: 0.46, **dict.fromkeys(range(6), 0.09)}, **{digit: {END: 1.0} for digit in range(6)}}


def _exact(temperature: float) -> Plain:
    """What `_frequencies` is for a right sampler: the probabilities at the temperature."""
    table = {
        token: {successor: p ** (1 / temperature) for successor, p in row.items()} for token, row in LANGUAGE.items()
    }
    table = {token: {successor: p / sum(row.values()) for successor, p in row.items()} for token, row in table.items()}
    frequencies = {name: table[EQUALS][first] * table[first][second] for name, (first, second) in STARTS.items()}
    return {**frequencies, "> first": table[EQUALS][ARROW]}


def _frequencies(function: Guarded, inputs: Inputs) -> Plain:
    prompts = encode_prompts(Problems.from_digits([[1, 2], [3, 4, 5]])).repeat(RESPONSES // 2, 1)
    model = bigram_model(LANGUAGE, layers=0)
    responses = _read(function(model, prompts, inputs["temperature"], function.generator()), RESPONSES)
    found = {
        name: (responses[:, :2] == torch.tensor(start)).all(1).double().mean().item() for name, start in STARTS.items()
    }
    return {**found, "> first": (responses[:, 0] == ARROW).double().mean().item()}


def _first_tokens(function: Guarded, inputs: Inputs) -> Plain:
    """How many different first tokens came."""
    prompts = encode_prompts(Problems.from_digits([[1, 2]])).repeat(RESPONSES, 1)
    responses = _read(function(bigram_model(TAIL, layers=0), prompts, 1.0, function.generator()), RESPONSES)
    return len(responses[:, 0].unique())


def _read(result: Any, rows: int) -> Tensor:
    """The responses as a tensor, after their type and shape are known to be right."""
    tensor = require_tensor(result)
    if tensor.dtype == torch.int64 and tensor.shape == (rows, RESPONSE_TOKENS):
        return tensor
    word = "a tensor other than of torch.int64 with a row of 12 tokens per prompt"
    raise Finding(word, f"{word}: {tensor.dtype}, shape {tuple(tensor.shape)}")


def _scripted(function: Guarded, inputs: Inputs) -> Plain:
    """The responses of the scripted model, which are certain."""
    prompts = inputs["prompts"]
    return token_values(function(scripted_model(), prompts, 1.0, function.generator()))


def _defaults(function: Guarded, inputs: Inputs) -> Plain:
    return token_values(function(scripted_model(), inputs["prompts"], may_draw=True))


def _script_prompts(*rows: int) -> Inputs:
    return {"prompts": encode_prompts(scripted_problems()[torch.tensor(rows)])}


def _script(*rows: int) -> Plain:
    return scripted_responses()[torch.tensor(rows)].tolist()


def _draws(function: Guarded, inputs: Inputs) -> Plain:
    """In words, what follows from the same generator, from going on with it, and from another seed."""
    model, prompts, generator = bigram_model(LANGUAGE, layers=0), inputs["prompts"], function.generator()

    def draw(generator: torch.Generator) -> Tensor:
        return _read(function(model, prompts, 1.0, generator, may_draw=True), len(prompts))

    first, second = draw(generator), draw(generator)
    again, other = draw(function.generator()), draw(function.generator(1))
    return {
        "with the same seed again": same_or_not(first, again),
        "going on with the same generator": same_or_not(first, second),
        "with another seed": same_or_not(first, other),
    }


def _many_prompts() -> Inputs:
    return {"prompts": encode_prompts(Problems.from_digits([[1, 2]] * 32))}


CASES: Mapping[str, Sequence[Case]] = {
    "sample_responses": [
        Case("six certain responses", partial(_script_prompts, *range(6)), _scripted, exact=_script(*range(6))),
        Case("one short response", partial(_script_prompts, 0), _scripted, exact=_script(0)),
        Case("temperature and generator left out", partial(_script_prompts, 2, 1), _defaults, exact=_script(2, 1)),
        *(
            Case(
                f"frequencies at temperature {temperature:g}",
                partial(dict, temperature=temperature),
                _frequencies,
                TOLERANCE,
                _exact(temperature),
            )
            for temperature in (1.0, 4.0)
        ),
        Case("how many of seven first tokens come", dict, _first_tokens, exact=7),
        Case("what the generator decides", _many_prompts, _draws),
    ]
}
