"""Variants of `summarize`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.task import ARROW, COLON, END, PAD, Problems, response_mask, writes_states
from labutils.verifier import verify

bank = Bank("summarize")


def _summary(problems: Problems, responses: Tensor, **changed: Any) -> dict[str, Any]:
    """The right summary, but for what is changed."""
    return {
        "accuracy": verify(problems, responses).double().mean().item(),
        "writes_states": writes_states(responses).double().mean().item(),
        "length": response_mask(responses).sum(1).double().mean().item(),
    } | changed


@bank.mistake("the length leaves out `<end>`")
def end_not_counted(problems: Problems, responses: Tensor) -> dict[str, float]:
    tokens = response_mask(responses) & (responses != END)
    return _summary(problems, responses, length=tokens.sum(1).double().mean().item())


@bank.mistake("the length is the padded width")
def padded_width(problems: Problems, responses: Tensor) -> dict[str, float]:
    return _summary(problems, responses, length=float(responses.shape[1]))


@bank.mistake("the length counts the tokens that are no padding, although a padding token can stand before `<end>`")
def counted_by_padding(problems: Problems, responses: Tensor) -> dict[str, float]:
    tokens = (responses != PAD).sum(1)
    return _summary(problems, responses, length=tokens.double().mean().item())


@bank.mistake("the length is the first padding token's place, although one can stand before `<end>`")
def first_padding(problems: Problems, responses: Tensor) -> dict[str, float]:
    lengths = [row.index(PAD) if PAD in row else len(row) for row in responses.tolist()]
    return _summary(problems, responses, length=sum(lengths) / len(lengths))


@bank.mistake("a response without `<end>` has length 1: argmax over an empty row gives place 0")
def unended_short(problems: Problems, responses: Tensor) -> dict[str, float]:
    lengths = (responses == END).int().argmax(1) + 1
    return _summary(problems, responses, length=lengths.double().mean().item())


@bank.mistake("a response without `<end>` is left out of the mean length")
def unended_left_out(problems: Problems, responses: Tensor) -> dict[str, float]:
    lengths = response_mask(responses).sum(1).double()[(responses == END).any(1)]
    return _summary(problems, responses, length=lengths.mean().item() if len(lengths) else 0.0)


@bank.mistake("the mean length is over correct responses only")
def correct_only(problems: Problems, responses: Tensor) -> dict[str, float]:
    lengths = response_mask(responses).sum(1).double()[verify(problems, responses)]
    return _summary(problems, responses, length=lengths.mean().item() if len(lengths) else 0.0)


@bank.mistake("the mean length is cut to a whole number")
def whole_length(problems: Problems, responses: Tensor) -> dict[str, float]:
    return _summary(problems, responses, length=float(response_mask(responses).sum() // len(responses)))


@bank.mistake("the length is the total over the batch, not the mean")
def total_length(problems: Problems, responses: Tensor) -> dict[str, float]:
    return _summary(problems, responses, length=float(response_mask(responses).sum()))


@bank.mistake("the accuracy accepts the right digit anywhere in the response")
def anywhere(problems: Problems, responses: Tensor) -> dict[str, float]:
    found = ((responses == problems.answers[:, None]) & response_mask(responses)).any(1)
    return _summary(problems, responses, accuracy=found.double().mean().item())


@bank.mistake("the accuracy reads the token after the first `>`, even if the response goes on after it")
def first_match(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = []
    for row, answer in zip(responses.tolist(), problems.answers.tolist(), strict=True):
        start = row.index(ARROW) + 1 if ARROW in row else len(row)
        correct.append(row[start : start + 1] == [answer])
    return _summary(problems, responses, accuracy=sum(correct) / len(correct))


@bank.mistake("the accuracy does not require `>` before the answer")
def no_arrow_needed(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = []
    for row, answer in zip(responses.tolist(), problems.answers.tolist(), strict=True):
        correct.append(END in row and row[: row.index(END)][-1:] == [answer])
    return _summary(problems, responses, accuracy=sum(correct) / len(correct))


@bank.mistake("the accuracy does not require `<end>`")
def no_end_needed(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = []
    for row, answer in zip(responses.tolist(), problems.answers.tolist(), strict=True):
        used = row[: row.index(END)] if END in row else row
        correct.append(used[-2:] == [ARROW, answer])
    return _summary(problems, responses, accuracy=sum(correct) / len(correct))


@bank.mistake("the accuracy counts worked responses only")
def worked_accuracy(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = verify(problems, responses).double()[writes_states(responses)]
    return _summary(problems, responses, accuracy=correct.mean().item() if len(correct) else 0.0)


@bank.mistake("the accuracy counts responses with `<end>` only")
def ended_accuracy(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = verify(problems, responses).double()[(responses == END).any(1)]
    return _summary(problems, responses, accuracy=correct.mean().item() if len(correct) else 0.0)


@bank.mistake("the accuracy is the number of correct responses, not their share")
def number_correct(problems: Problems, responses: Tensor) -> dict[str, float]:
    return _summary(problems, responses, accuracy=float(verify(problems, responses).sum()))


@bank.mistake("accuracy and writes_states are percentages")
def percentages(problems: Problems, responses: Tensor) -> dict[str, float]:
    right = _summary(problems, responses)
    return right | {"accuracy": 100 * right["accuracy"], "writes_states": 100 * right["writes_states"]}


@bank.mistake("writes_states looks for `:` anywhere, not at the start")
def colon_anywhere(problems: Problems, responses: Tensor) -> dict[str, float]:
    found = (responses == COLON).any(1)
    return _summary(problems, responses, writes_states=found.double().mean().item())


@bank.mistake("writes_states requires that the states are right")
def right_states(problems: Problems, responses: Tensor) -> dict[str, float]:
    worked = []
    for row, states, length in zip(
        responses.tolist(), problems.states.tolist(), problems.lengths.tolist(), strict=True
    ):
        worked.append(row[: length + 1] == [COLON, *states[-length:]])
    return _summary(problems, responses, writes_states=sum(worked) / len(worked))


@bank.mistake("writes_states counts correct responses only")
def correct_and_worked(problems: Problems, responses: Tensor) -> dict[str, float]:
    both = writes_states(responses) & verify(problems, responses)
    return _summary(problems, responses, writes_states=both.double().mean().item())


@bank.mistake("writes_states takes a response longer than 3 tokens for a worked one")
def length_as_proxy(problems: Problems, responses: Tensor) -> dict[str, float]:
    long = response_mask(responses).sum(1) > 3
    return _summary(problems, responses, writes_states=long.double().mean().item())


@bank.mistake("writes_states takes a response that does not start with `>` for a worked one")
def no_arrow_as_proxy(problems: Problems, responses: Tensor) -> dict[str, float]:
    return _summary(problems, responses, writes_states=(responses[:, 0] != ARROW).double().mean().item())


@bank.mistake("accuracy and writes_states are swapped")
def swapped(problems: Problems, responses: Tensor) -> dict[str, float]:
    right = _summary(problems, responses)
    return right | {"accuracy": right["writes_states"], "writes_states": right["accuracy"]}


@bank.mistake("the values are rounded to two decimals")
def rounded(problems: Problems, responses: Tensor) -> dict[str, float]:
    return {key: round(value, 2) for key, value in _summary(problems, responses).items()}


@bank.mistake("the values are tensors, not floats")
def tensors(problems: Problems, responses: Tensor) -> dict[str, Tensor]:
    return {key: torch.tensor(value) for key, value in _summary(problems, responses).items()}


@bank.mistake("there is one value per response, not a mean")
def per_response(problems: Problems, responses: Tensor) -> dict[str, list[float]]:
    return {
        "accuracy": verify(problems, responses).double().tolist(),
        "writes_states": writes_states(responses).double().tolist(),
        "length": response_mask(responses).sum(1).double().tolist(),
    }


@bank.right("plain counting in a loop")
def loop(problems: Problems, responses: Tensor) -> dict[str, float]:
    correct = worked = tokens = 0
    for row, answer in zip(responses.tolist(), problems.answers.tolist(), strict=True):
        length = row.index(END) + 1 if END in row else len(row)
        correct += END in row and length >= 3 and row[length - 3 : length - 1] == [ARROW, answer]
        worked += row[0] == COLON
        tokens += length
    count = len(responses)
    return {"accuracy": correct / count, "writes_states": worked / count, "length": tokens / count}


@bank.right("float32 means")
def single_precision(problems: Problems, responses: Tensor) -> dict[str, float]:
    return {
        "accuracy": float(verify(problems, responses).float().mean()),
        "writes_states": float((responses[:, 0] == COLON).float().mean()),
        "length": float(response_mask(responses).float().sum(1).mean()),
    }


@bank.right("sums divided by the number of responses")
def sums(problems: Problems, responses: Tensor) -> dict[str, float]:
    count = len(problems)
    return {
        "length": response_mask(responses).sum().item() / count,
        "writes_states": (responses[:, 0] == COLON).sum().item() / count,
        "accuracy": verify(problems, responses).sum().item() / count,
    }


@bank.right("lengths from the place of the first `<end>`")
def by_place(problems: Problems, responses: Tensor) -> dict[str, float]:
    ended = responses == END
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, responses.shape[1])
    return _summary(problems, responses, length=lengths.double().mean().item())


@bank.right("one response at a time")
def one_at_a_time(problems: Problems, responses: Tensor) -> dict[str, float]:
    totals = {"accuracy": 0.0, "writes_states": 0.0, "length": 0.0}
    for i in range(len(problems)):
        for key, value in _summary(problems[i : i + 1], responses[i : i + 1]).items():
            totals[key] += value / len(problems)
    return totals
