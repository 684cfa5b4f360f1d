"""Short digests that tell models apart, and functions: a run is trained again when the code behind it has changed."""

from __future__ import annotations

import contextlib
import dis
import hashlib
import inspect
from collections.abc import Iterable, Iterator
from functools import cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

CACHED = type(cache(len))


def model_fingerprint(model: nn.Module) -> str:
    """16 hex digits of the model's parameters."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def code_fingerprint(*values: Any) -> str:
    """16 hex digits of what functions compute, and of any plain values that stand beside them.

    Of a function: its bytecode, constants, defaults, and all that it names or closes over. What it calls is followed
    within its own module, a notebook or a file; a function or class of another module stands for itself by its name,
    and so does an object of unknown kind by its type. Comments, blank lines and places in the file make no difference.
    """
    return hashlib.sha256("\n".join(_described(values, "", {})).encode()).hexdigest()[:16]


def _described(value: Any, module: str, seen: dict[int, Any]) -> Iterator[str]:
    """Lines that are equal for equal values. `module` is the one whose functions are followed, "" for any.

    seen: what is described already, by id; it is named by its number, since functions may call each other in a circle.
    """
    value = inspect.unwrap(value) if isinstance(value, (FunctionType, CACHED)) else value
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield f"{type(value).__name__} {value!r}"
    elif id(value) in seen:
        yield f"number {list(seen).index(id(value))}"
    else:
        seen[id(value)] = value
        yield f"{type(value).__qualname__} {_label(value)}"
        followed = isinstance(value, (FunctionType, type)) and module in ("", value.__module__)
        parts = _body(value) if followed else _parts(value)
        for part in parts:
            yield from _described(part, value.__module__ if followed else module, seen)


def _label(value: Any) -> str:
    """What tells a value apart from others of its type, without its parts."""
    if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        return f"{value.__module__} {value.__qualname__}"
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (set, frozenset)):  # in an order that is the same in every process
        return " ".join(sorted(code_fingerprint(item) for item in value))
    if isinstance(value, (Tensor, np.ndarray)):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return ""


def _parts(value: Any) -> Iterable[Any]:
    """What a value of a known type is made up of."""
    if isinstance(value, (tuple, list)):
        return value
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, MethodType):
        return value.__self__, value.__func__
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_consts, value.co_exceptiontable
    return ()


def _body(value: FunctionType | type) -> list[Any]:
    """What a function or class consists of."""
    if isinstance(value, type):
        written = {name: item for name, item in vars(value).items() if not name.startswith("__") or callable(item)}
        return [*value.__bases__, *written.items()]
    return [value.__code__, value.__defaults__, value.__kwdefaults__, *_captured(value)]


def _captured(function: FunctionType) -> Iterator[Any]:
    """The values of the globals that the function and those inside it name, and of what it closes over."""
    names = {
        instruction.argval
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")  # not attributes, which stand in co_names too
    }
    for name in sorted(names & function.__globals__.keys()):
        yield function.__globals__[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a name that has no value yet
            yield cell.cell_contents


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
