"""Runs a student's function, which can do anything, so that nothing of it reaches further than a report.

Time is the CPU time of the thread that computes, so that a busy machine rejects nothing; on macOS and Windows, which
do not tell it of another thread, that of the process. A function that sleeps or waits uses none of it and is stopped
after `WAIT` times as long by the clock. A second thread then interrupts the main thread by the way that Ctrl-C takes,
again and again until `Stopped` gets through. It is raised where a frame of the student's own code runs, which is one
with the function's global names: code of a library or of a check, which could be left half-way with something broken,
first returns to the student's. Only when the clock's limit has passed too, any code that the function calls is
interrupted. Outside the main thread nothing can be interrupted, and there is no limit of time; nor is there one inside
a call of compiled code.
Memory: on Linux the address space is limited, elsewhere it is not.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import inspect
import io
import linecache
import opcode
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labutils.checks.values import Finding, class_name
from labutils.task import Problems

Function = Callable[..., Any]
TraceFunction = Callable[..., Any]
Namespace = dict[str, Any]

MEMORY = 2 * 2**30  # bytes that a function may take beyond what the process has
WAIT = 6  # seconds by the clock for each of CPU time
RETRY = 0.01  # seconds between looks at the time, and between attempts to stop a function
SHOWN_OUTPUT = 200  # characters
BUILTIN_ERRORS = [
    item for item in vars(builtins).values() if isinstance(item, type) and issubclass(item, BaseException)
]


class Stopped(BaseException):
    """The time is up. No `Exception`: a loop that catches those must not catch this."""


class Output(io.TextIOBase):
    """What the function printed: the beginning is kept, the rest dropped."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep what there is room for; returns the number of characters taken."""
        self.text += str.__getitem__(text, slice(SHOWN_OUTPUT - len(self.text)))  # of a str's subclass, too
        return len(text)


@contextlib.contextmanager
def limits(function: Function, seconds: float) -> Iterator[Output]:
    """Inside the block: time and memory are limited, output is captured, and `input` and `exit` only raise.

    seconds: of CPU time. Raises `Stopped` when the time is up.
    """
    output = Output()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        _replaced(_namespace(function)),
        warnings.catch_warnings(),
        _memory_limit(),
        _time_limit(_namespace(function), seconds),
    ):
        warnings.simplefilter("ignore")
        yield output


def _namespace(function: Function) -> Namespace:
    """The function's global names, by which the student's own code is known: all cells of a notebook share them."""
    return getattr(inspect.unwrap(function), "__globals__", {})


@contextlib.contextmanager
def _replaced(namespace: Namespace) -> Iterator[None]:
    """Without `input`, which would wait for ever. A notebook's `exit` ends the kernel: here it raises as elsewhere."""

    def no_input(*_: object) -> str:
        raise RuntimeError("input() has nobody to ask here")

    before = builtins.input
    exits: Namespace = {name: namespace[name] for name in ("exit", "quit") if name in namespace}
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
def _time_limit(namespace: Namespace, seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    finished, overdue, overlong = threading.Event(), threading.Event(), threading.Event()
    before, tracing = signal.getsignal(signal.SIGINT), sys.gettrace()
    computed, started, clock = _cpu_clock(), time.monotonic(), time.monotonic

    def receive(number: int, frame: FrameType | None) -> None:
        if not overdue.is_set():
            _interrupt(before, number, frame)
        elif not finished.is_set():
            _stop(frame, namespace, anywhere=overlong.is_set())

    def watch() -> None:
        limit = computed() + seconds
        while not finished.wait(RETRY):
            if clock() > started + WAIT * seconds:
                overlong.set()
            if overlong.is_set() or computed() > limit:
                overdue.set()
                _send_interrupt()

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


def _cpu_clock() -> Callable[[], float]:
    """Tells any thread the CPU time, in seconds, of the one that runs now, or of the process."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


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


def _stop(frame: FrameType | None, namespace: Namespace, anywhere: bool) -> None:
    """Raise `Stopped` if the interrupted frame is the student's; in any case, let the student's next lines raise it.

    So it gets through where a library's code is interrupted again and again, and `except: pass` around a loop's body
    does not stop it. anywhere: raise in a library's frame, too.
    """

    def trace(traced: FrameType, event: str, _: object) -> TraceFunction | None:
        if traced.f_globals is not namespace:
            return None
        if event == "line":  # and not at an exception's, which would only be replaced by another one
            raise Stopped
        return trace

    called = []
    while frame is not None and frame.f_code is not Guarded.attempt.__code__:
        called.append(frame)
        frame = frame.f_back
    if frame is None:  # no code of the student's runs
        return
    own = [frame for frame in called if frame.f_globals is namespace]
    for frame in own:
        frame.f_trace = trace
    sys.settrace(trace)
    if anywhere or (own and own[0] is called[0]):
        raise Stopped


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
        except NotImplementedError as error:
            if name := self._stub(sys.exc_info()[2]):
                raise Finding("not written yet", f"{name} is not written yet") from None
            raise self._finding(error) from None
        except BaseException as error:
            raise self._finding(error) from None

    def _stub(self, traceback: TracebackType | None) -> str:
        """The function of the student's in which a `raise` statement raised; empty where it was a library's code."""
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        if traceback is None or traceback.tb_frame.f_globals is not _namespace(self.function):
            return ""
        code = traceback.tb_frame.f_code  # compiled code has no frame: it raises in that of its caller, at a call
        return code.co_name if code.co_code[traceback.tb_lasti] == opcode.opmap["RAISE_VARARGS"] else ""

    def _finding(self, error: BaseException) -> Finding:
        name, text = name_and_text(error)
        word = "called exit()" if name == "SystemExit" else f"raised {name}"
        return Finding(word, word + (f" ({text})" if text else "") + self._line(sys.exc_info()[2]))

    def _line(self, traceback: TracebackType | None) -> str:
        """The line of the student's own code that raised, in words."""
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_globals is _namespace(self.function):
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


def name_and_text(error: BaseException) -> tuple[str, str]:
    """The name of the exception's first built-in class, and its text, of which its own methods have no say."""
    bases = type.__dict__["__mro__"].__get__(type(error))
    name = next(class_name(base) for base in bases if any(base is known for known in BUILTIN_ERRORS))
    arguments = BaseException.__dict__["args"].__get__(error)
    text = ", ".join(str(argument) for argument in arguments if type(argument) is str or type(argument) is int)
    return name, text.strip().split("\n")[0][:200]


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
        if drew or random.getstate() != pythons or not _equal(_numpy_state(), numpys):
            words.append("changed the state of the global random numbers")
        torch.set_rng_state(drawn)
        random.setstate(pythons)
        np.random.set_state(numpys)
    if words:
        raise Finding(words[0])


def _equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two states of NumPy's generator are the same; a draw often moves only the place in its key."""
    return np.array_equal(one[1], other[1]) and one[2:] == other[2:]


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=True)
    assert isinstance(state, tuple)
    return state


def _content(argument: Any) -> Any:
    """What an argument holds, as bytes and numbers that can be compared later; None for what is not watched.

    Methods are the class's: an attribute that the function gave to an argument can hide the argument's own.
    """
    if isinstance(argument, nn.Module):
        tensors = [_content(value) for value in nn.Module.state_dict(argument).values()]
        gradients = [parameter.requires_grad for parameter in nn.Module.parameters(argument)]
        return tensors, argument.training is True, gradients
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, Tensor.detach(argument).numpy().tobytes()
    if isinstance(argument, Problems):
        return [_content(tensor) for tensor in (argument.digits, argument.lengths, argument.states)]
    if isinstance(argument, list):
        return [item if type(item) is int else id(item) for item in argument]
    return None
