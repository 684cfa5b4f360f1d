"""Short digests that tell models apart, and functions: a run is trained again when the code behind it has changed."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn


def model_fingerprint(model: nn.Module) -> str:
    """16 hex digits of the model's parameters."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def code_fingerprint(*functions: Any) -> str:
    """16 hex digits of what the functions compute: their bytecode and constants, and those of all they call.

    What they call is followed within their own module, a notebook or a file; names of other modules stand for
    themselves. Comments, blank lines and places in the file make no difference.
    """
    digest, seen = hashlib.sha256(), set()
    pending = [inspect.unwrap(function) for function in functions]
    while pending:
        function = pending.pop(0)
        if not isinstance(function, FunctionType):
            digest.update(repr(type(function)).encode())
        elif function not in seen:
            seen.add(function)
            digest.update(repr([list(_content(function.__code__)), function.__defaults__]).encode())
            for value in _captured(function):
                if callable(value) and getattr(value, "__module__", None) == function.__module__:
                    pending.append(inspect.unwrap(value))
                elif isinstance(value, (int, float, str, tuple)):
                    digest.update(repr(value).encode())
    return digest.hexdigest()[:16]


def _content(code: CodeType) -> Iterator[Any]:
    """The bytecode, names and constants of a function and of those inside it."""
    for part in _codes(code):
        yield part.co_code.hex()
        yield part.co_names
        yield [constant for constant in part.co_consts if not isinstance(constant, CodeType)]


def _captured(function: FunctionType) -> Iterator[Any]:
    """The globals that the function and those inside it name, and what it closes over."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a name that has no value yet
            yield cell.cell_contents


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
