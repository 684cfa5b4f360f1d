"""Runs one cell in a kernel, and notices within a second when the kernel is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty
from typing import Any

from nbval.kernel import RunningKernel

from labutils.grading.comparison import Bundle
from labutils.results import CHECK_MIME, TABLE_MIME

POLL_SECONDS = 0.5  # how often a silent kernel is looked at
INTERRUPT_SECONDS = 5.0  # that an interrupted cell has to stop
REPLY_SECONDS = 10.0  # that the reply may come after the last output; the kernel sends it first
TRACEBACK_CHARACTERS = 4000  # the last ones: they name the line
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Message = dict[str, Any]


@dataclass(frozen=True)
class Execution:
    """What came of a cell.

    bundles: the tables and check reports it showed, in order. error: None, or one line that says why it failed.
    details: a traceback, or "". kernel_lost: the error has ended the kernel, no later cell can run.
    """

    bundles: list[Bundle]
    error: str | None = None
    details: str = ""
    kernel_lost: bool = False


class KernelDied(Exception):
    """The kernel's process has ended."""


def execute(kernel: RunningKernel, source: str, seconds: float) -> Execution:
    """Runs a cell's source for at most so many seconds. Where the kernel is lost, it is stopped on return."""
    bundles: list[Bundle] = []
    # Without standard input a call of input() raises at once, where it would wait for ever.
    request = kernel.execute_cell_input(source, allow_stdin=False)
    try:
        reply = _finish(kernel, request, seconds, bundles)
    except KernelDied:
        kernel.stop()
        return Execution(bundles, "the kernel died", kernel_lost=True)
    except TimeoutError:
        details = _interrupt(kernel, request)
        kernel.stop()
        return Execution(bundles, f"the time limit of {seconds:g} s was exceeded", details, kernel_lost=True)
    # exit() and quit() raise nothing: they ask the front end to end the kernel, which ends itself a moment later.
    if any(payload.get("source") == "ask_exit" for payload in reply.get("payload", ())):
        kernel.stop()
        return Execution(bundles, "exit() or quit() ended the kernel", kernel_lost=True)
    # The reply tells of an exception even where the cell has switched off the display of tracebacks.
    if reply["status"] != "ok":
        return Execution(bundles, _exception_line(reply), _traceback(reply))
    return Execution(bundles)


def _finish(kernel: RunningKernel, request: str, seconds: float, bundles: list[Bundle]) -> Message:
    """The kernel's reply. `bundles` grows while the cell runs. Raises KernelDied or TimeoutError."""
    deadline = time.monotonic() + seconds

    def idle(message: Message) -> bool:
        content = message["content"]
        if message["msg_type"] in ("display_data", "execute_result"):
            # The rest (figures, widgets, progress) is let go at once: a talkative cell must not fill the memory.
            kept = {mime: data for mime, data in content["data"].items() if mime in (TABLE_MIME, CHECK_MIME)}
            bundles.extend([kept] if kept else [])
        return message["msg_type"] == "status" and content["execution_state"] == "idle"

    _await(kernel, "iopub", request, deadline, idle)
    reply = _await(kernel, "shell", request, deadline + REPLY_SECONDS, lambda message: True)
    return reply["content"]


def _await(
    kernel: RunningKernel, channel: str, request: str, deadline: float, wanted: Callable[[Message], bool]
) -> Message:
    """The first answer to the request on a channel that is wanted. Raises KernelDied or TimeoutError."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            message: Message = kernel.get_message(channel, timeout=min(POLL_SECONDS, left))
        except Empty:
            if not kernel.is_alive():
                raise KernelDied from None
            continue
        if message["parent_header"].get("msg_id") == request and wanted(message):
            return message
    raise TimeoutError


def _interrupt(kernel: RunningKernel, request: str) -> str:
    """Interrupts the running cell; its traceback, which names the line, or "" where it would not stop."""
    kernel.interrupt()
    try:
        reply = _await(kernel, "shell", request, time.monotonic() + INTERRUPT_SECONDS, lambda message: True)
    except (KernelDied, TimeoutError):
        return ""
    return _traceback(reply["content"])


def _exception_line(reply: Message) -> str:
    lines = str(reply.get("evalue", "")).strip().splitlines() or [""]
    return f"the cell raised {reply.get('ename', 'an exception')}: {lines[0][:300]}"


def _traceback(reply: Message) -> str:
    return COLOUR.sub("", "\n".join(reply.get("traceback", ())))[-TRACEBACK_CHARACTERS:]
