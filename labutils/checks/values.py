"""Outcomes as plain data, which a JSON file can hold: numbers, nested lists and dicts of them, and words.

Nothing that a student's function returns is compared by its own methods: it is first read out, by exact type, into
Python's numbers. What cannot be read out is a `Finding`, whose word is the outcome. Types are compared by `is`, since a
metaclass can define `==`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

Plain = Any  # float, int, str, or lists and dicts of these

LARGEST_INT = 2**63  # any token or state is far below, and a report can print what is
LARGEST_TENSOR = 10_000  # elements; the largest expected result has a few hundred
INTEGERS = (int, *(np.dtype(code).type for code in np.typecodes["AllInteger"]))
NUMBERS = (*INTEGERS, float, *(np.dtype(code).type for code in np.typecodes["Float"]))


class Finding(Exception):
    """An outcome in words. word: the same for everyone who makes the mistake. detail: adds this function's own."""

    def __init__(self, word: str, detail: str = ""):
        super().__init__(word)
        self.word = word
        self.detail = detail or word


def tensor_values(result: object) -> Plain:
    """Nested lists of numbers from a floating-point tensor. `Finding` for anything else."""
    tensor = require_tensor(result)
    if not tensor.dtype.is_floating_point:
        raise Finding(f"a tensor of {tensor.dtype} where floating-point numbers belong")
    return plain(tensor.double().tolist())


def token_values(result: object) -> Plain:
    """Nested lists of ints from a tensor of whole tokens (int64). `Finding` for anything else."""
    tensor = require_tensor(result)
    if tensor.dtype != torch.int64:
        raise Finding(f"a tensor of {tensor.dtype} where torch.int64 belongs")
    return tensor.tolist()


def require_tensor(result: object) -> Tensor:
    """The result, detached, if it is an ordinary tensor of reasonable size. `Finding` for anything else."""
    if not _is_exactly(result, Tensor, torch.nn.Parameter):
        raise Finding(f"{kind(result)} where a tensor belongs")
    result = Tensor.detach(result)  # type: ignore[arg-type]  # a new object, without attributes that hide methods
    if result.layout != torch.strided or result.device.type != "cpu":
        raise Finding("a tensor that is sparse or not on the CPU")
    if result.numel() > LARGEST_TENSOR:
        raise Finding("a tensor that is far too large", f"a tensor of shape {tuple(result.shape)}, far too large")
    return result


def number(result: object) -> Plain:
    """A number from an int, a float or a NumPy scalar. `Finding` for anything else, a bool or a tensor included."""
    if _is_exactly(result, *NUMBERS):
        return plain(float(result))  # type: ignore[arg-type]
    raise Finding(f"{kind(result)} where a number belongs")


def scalar(result: object) -> Plain:
    """A number from a scalar tensor, or from what `number` takes."""
    return tensor_values(result) if type(result) is Tensor else number(result)


def whole_numbers(result: object) -> Plain:
    """A list of ints from a list or tuple of ints. `Finding` for anything else."""
    if not _is_exactly(result, list, tuple):
        raise Finding(f"{kind(result)} where a list belongs")
    assert isinstance(result, (list, tuple))
    if len(result) > LARGEST_TENSOR:
        raise Finding("a list that is far too long")
    for item in result:
        if not _is_exactly(item, *INTEGERS):
            raise Finding(f"a list that holds {kind(item)} where ints belong")
        if abs(int(item)) > LARGEST_INT:
            raise Finding("a list that holds an int that is far too large")
    return [int(item) for item in result]


def named_numbers(result: object, names: tuple[str, ...]) -> Plain:
    """A dict of the named numbers from a dict. `Finding` for anything else, or when a name is missing."""
    if type(result) is not dict:
        raise Finding(f"{kind(result)} where a dict belongs")
    assert isinstance(result, dict)
    values = {key: value for key, value in result.items() if type(key) is str}  # other keys can equal anything
    for name in names:
        if name not in values:
            raise Finding(f"a dict without the key {name!r}")
    found = {}
    for name in names:
        try:
            found[name] = number(values[name])
        except Finding as finding:
            raise Finding(f"{finding.word}, under the key {name!r}") from None
    return found


def kind(result: object) -> str:
    """What the value is, in words."""
    if result is None:
        return "None (a return is missing)"
    name = class_name(type(result))
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def class_name(cls: type) -> str:
    """The name of a class, shortened, whatever its metaclass says."""
    return str.__getitem__(type.__dict__["__name__"].__get__(cls), slice(50))


def _is_exactly(value: object, *types: type) -> bool:
    return any(type(value) is cls for cls in types)


def plain(value: Any) -> Plain:
    """The same nested lists with NaN and infinities as words, which compare and which JSON can hold."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("infinity" if value > 0 else "-infinity")
    return value


def first_difference(got: Plain, expected: Plain, tolerance: float) -> tuple[Plain, Plain] | None:
    """The first pair (got, expected) that differs by more than `tolerance`, relative for numbers above 1.

    None where nothing differs. Of lists that differ in length, or dicts in their keys, the pair is their shapes.
    """
    if isinstance(expected, dict) and isinstance(got, dict) and got.keys() == expected.keys():
        pairs = [(got[key], expected[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(got, list) and shape(got) == shape(expected):
        pairs = list(zip(got, expected, strict=True))
    elif _is_number(expected) and _is_number(got):
        return None if abs(got - expected) <= tolerance * max(1.0, abs(expected)) else (got, expected)
    elif isinstance(expected, str) and isinstance(got, str) and got == expected:
        return None
    else:
        return _summary(got, expected), _summary(expected, got)
    return next((pair for pair in (first_difference(*pair, tolerance) for pair in pairs) if pair), None)


def shape(value: Plain) -> tuple[int, ...]:
    """The shape of nested lists of equal lengths, along their first elements."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(shape(value[0]) if value else ()))


def _summary(value: Plain, other: Plain) -> Plain:
    """What stands for the value beside one of another structure: a shape beside another shape, else itself."""
    if isinstance(value, list) and (_is_number(other) or isinstance(other, list)):
        return f"shape {shape(value)}"
    if _is_number(value) and isinstance(other, list):
        return "a single number"
    return value


def _is_number(value: Plain) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def short(value: Plain, other: Plain = None) -> str:
    """One value in a sentence; a number with as many digits as tell it from `other`, at least four."""
    if not _is_number(value):
        return str(value)
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if not _is_number(other) or text != f"{other:.{digits}g}":
            break
    return text


def block(value: Plain) -> str:
    """A value over several lines where it needs them: a matrix row by row, a dict key by key."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {block(item)}" for key, item in value.items())
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            return "\n".join(block(row) for row in value)
        return "[" + ", ".join(short(item) for item in value) + "]"
    return short(value)
