"""Runs a student's function, which can do anything, so that nothing of it reaches further than a report.

Time: a second thread raises `Stopped` in the main thread once the time is up, by the way that Ctrl-C takes, again and
again until it gets through; only in the student's code, so that what has to be restored is. Outside the main thread
nothing can be interrupted, and there is no limit of time; nor is there one inside a call of compiled code.
Memory: on Linux the address space is limited, elsewhere it is not.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import inspect
import io
import linecache
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labutils.checks.values import Finding
from labutils.task import Problems

Function = Callable[..., Any]
TraceFunction = Callable[..., Any]

MEMORY = 2 * 2**30  # bytes that a function may take beyond what the process has
RETRY = 0.01  # seconds between attempts to stop a function
SHOWN_OUTPUT = 200  # characters


class Stopped(BaseException):
    """The time is up. No `Exception`: a loop that catches those must not catch this."""


class Output(io.TextIOBase):
    """What the function printed: the beginning is kept, the rest dropped."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep what there is room for; returns the number of characters taken."""
        self.text += text[: SHOWN_OUTPUT - len(self.text)]
        return len(text)


@contextlib.contextmanager
def limits(function: Function, seconds: float) -> Iterator[Output]:
    """Inside the block: time and memory are limited, output is captured, and `input` and `exit` only raise.

    Raises `Stopped` when the time is up.
    """
    output = Output()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        _replaced(function),
        warnings.catch_warnings(),
        _memory_limit(),
        _time_limit(seconds),
    ):
        warnings.simplefilter("ignore")
        yield output


@contextlib.contextmanager
def _replaced(function: Function) -> Iterator[None]:
    """Without `input`, which would wait for ever. A notebook's `exit` ends the kernel: here it raises as elsewhere."""

    def no_input(*_: object) -> str:
        raise RuntimeError("input() has nobody to ask here")

    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    before, exits = builtins.input, {name: namespace[name] for name in ("exit", "quit") if name in namespace}
    builtins.input = no_input
    namespace.update(dict.fromkeys(exits, sys.exit))
    try:
        yield
    finally:
        builtins.input = before
        namespace.update(exits)


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = [used + MEMORY, *(bound for bound in before if bound != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    finished, overdue = threading.Event(), threading.Event()
    before, tracing = signal.getsignal(signal.SIGINT), sys.gettrace()

    def receive(number: int, frame: FrameType | None) -> None:
        if not overdue.is_set():
            _interrupt(before, number, frame)
        elif not finished.is_set() and _in_attempt(frame):
            _raise_at_every_line(frame)
            raise Stopped

    def watch() -> None:
        finished.wait(seconds)
        while not finished.is_set():
            overdue.set()
            _send_interrupt()
            finished.wait(RETRY)

    watcher = threading.Thread(target=watch, daemon=True)
    signal.signal(signal.SIGINT, receive)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        sys.settrace(tracing)
        signal.signal(signal.SIGINT, before)


def _send_interrupt() -> None:
    """Interrupt the main thread; where there is `pthread_kill`, a system call such as sleep is interrupted, too."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


class Interrupted(BaseException):
    """Somebody pressed Ctrl-C while the function ran; `check` lets it through as `KeyboardInterrupt`."""


def _interrupt(before: Any, number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C did before, but tell it from a `KeyboardInterrupt` that the function raises itself."""
    try:
        if callable(before):
            before(number, frame)
    except KeyboardInterrupt:
        raise Interrupted from None


def _in_attempt(frame: FrameType | None) -> bool:
    """Whether the interrupted code was called by `Guarded.attempt`: nothing else may be stopped half-way."""
    while frame is not None and frame.f_code is not Guarded.attempt.__code__:
        frame = frame.f_back
    return frame is not None


def _raise_at_every_line(frame: FrameType | None) -> None:
    """Let the function's next lines raise `Stopped` too: `except: pass` around a loop's body then stops nothing."""

    def trace(_: FrameType, event: str, __: object) -> TraceFunction:
        if event == "line":  # and not at an exception's, which would only be replaced by another one
            raise Stopped
        return trace

    while frame is not None and frame.f_code is not Guarded.attempt.__code__:
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(lambda *_: None)


class Guarded:
    """A student's function with every call looked after: what goes wrong in it is a `Finding`.

    seed: for the generators that a case gives it.
    """

    def __init__(self, function: Function, seed: int = 0):
        self.function = function
        self.seed = seed

    def generator(self, more: int = 0) -> torch.Generator:
        """A generator with the seed, or the `more`-th one after it."""
        return torch.Generator().manual_seed(self.seed + more)

    def __call__(self, *arguments: Any, may_draw: bool = False, may_change: tuple[int, ...] = ()) -> Any:
        """What the function returns. Raises `Finding` for an exception, changed arguments or changed global state.

        may_draw: whether it may draw PyTorch's global random numbers. may_change: arguments that it may change.
        """
        watched = {i: argument for i, argument in enumerate(arguments) if i not in may_change}
        before = {i: _content(argument) for i, argument in watched.items()}
        with _same_global_state(may_draw):
            result = self.run(lambda: self.function(*arguments))
        for i, argument in watched.items():
            if _content(argument) != before[i]:
                raise Finding(f"{self._argument_name(i)} changed: a function must leave what it is given as it is")
        return result

    def attempt(self, action: Callable[[], Any]) -> Iterator[Any]:
        """Yield what the action returns.

        A generator, because it has an exception state of its own: `Stopped`, raised where no statement expects it,
        would otherwise stand as "During handling of" above every later traceback.
        """
        yield action()

    def run(self, action: Callable[[], Any]) -> Any:
        """What the action returns, in which code of the student runs. Raises `Finding` for an exception."""
        try:
            return next(self.attempt(action))
        except (Stopped, Interrupted):
            raise
        except NotImplementedError:
            raise Finding("not written yet") from None
        except BaseException as error:
            word = "called exit()" if isinstance(error, SystemExit) else f"raised {_builtin_name(error)}"
            raise Finding(word, f"{word}{_message(error)}{self._line(error.__traceback__)}") from None

    def _line(self, traceback: TracebackType | None) -> str:
        """The line of the student's own code that raised, in words."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        found = None
        while traceback is not None:
            if code is not None and traceback.tb_frame.f_code.co_filename == code.co_filename:
                found = traceback
            traceback = traceback.tb_next
        if found is None:
            return ""
        text = linecache.getline(found.tb_frame.f_code.co_filename, found.tb_lineno).strip()
        return f", in line {found.tb_lineno}: {text}" if text else ""

    def _argument_name(self, index: int) -> str:
        try:
            return f"the argument `{list(inspect.signature(self.function).parameters)[index]}`"
        except (ValueError, TypeError, IndexError):
            return f"argument {index + 1}"


def _message(error: BaseException) -> str:
    try:
        text = str(error).strip().split("\n")[0][:200]
    except BaseException:  # the student's own exception class can do anything, too
        text = ""
    return f" ({text})" if text else ""


def _builtin_name(error: BaseException) -> str:
    """The name of the first built-in class that the exception belongs to."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


@contextlib.contextmanager
def _same_global_state(may_draw: bool) -> Iterator[None]:
    """Restore the global settings that a function changed, and raise `Finding` for them."""
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    drawn, pythons, numpys = torch.get_rng_state(), random.getstate(), _numpy_state()
    words = []
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            words.append("changed PyTorch's number of threads")
            torch.set_num_threads(threads)
        if torch.get_default_dtype() != dtype:
            words.append("changed PyTorch's default dtype")
            torch.set_default_dtype(dtype)
        if torch.is_grad_enabled() != grad:
            words.append("switched gradients on or off for everything that follows")
            torch.set_grad_enabled(grad)
        drew = not may_draw and not torch.equal(torch.get_rng_state(), drawn)
        if drew or random.getstate() != pythons or not np.array_equal(_numpy_state()[1], numpys[1]):
            words.append("changed the state of the global random numbers")
        torch.set_rng_state(drawn)
        random.setstate(pythons)
        np.random.set_state(numpys)
    if words:
        raise Finding(words[0])


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=True)
    assert isinstance(state, tuple)
    return state


def _content(argument: Any) -> Any:
    """What an argument holds, as bytes and numbers that can be compared later; None for what is not watched."""
    if isinstance(argument, nn.Module):
        tensors = [_content(value) for value in argument.state_dict().values()]
        return tensors, argument.training, [parameter.requires_grad for parameter in argument.parameters()]
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, argument.detach().numpy().tobytes()
    if isinstance(argument, Problems):
        return [_content(tensor) for tensor in (argument.digits, argument.lengths, argument.states)]
    if isinstance(argument, list):
        return [item if type(item) is int else id(item) for item in argument]
    return None
