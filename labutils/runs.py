"""Many runs at once: one process of one thread each, which finishes more per hour than one run on all threads."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import joblib
from tqdm.auto import tqdm

from labutils.checkpoints import read_description
from labutils.errors import LabError
from labutils.training import History, delayed_interrupt, one_thread

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

FOLLOWED_EVERY = 0.5  # seconds between two looks at the files of the runs


def run_all(name: str, tasks: Mapping[Key, Callable[[], Result]], processes: int) -> dict[Key, Result]:
    """The results of all tasks under their names, computed by up to `processes` processes.

    An interruption lets the tasks under way save their state, starts no other, and raises `KeyboardInterrupt`.
    """
    with local_processes(processes):
        results = dict(run_each(name, tasks.items(), len(tasks), processes))
    return {key: results[key] for key in tasks}


@contextlib.contextmanager
def local_processes(count: int) -> Iterator[int]:
    """Inside the block tasks are run by `count` processes of this machine; gives the count.

    An interruption reaches every process of a terminal; one that has no task ignores it, and does not die of it.
    """
    with joblib.parallel_config("loky", initializer=_ignore_interrupts):
        yield count


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_each(
    name: str, tasks: Iterable[tuple[Key, Callable[[], Result]]], count: int, processes: int
) -> Iterator[tuple[Key, Result]]:
    """Each task's name and result as it ends; the next task is asked for when a process is free.

    Where a joblib backend is set, it decides where tasks run. count: how many tasks there are, for the message of
    the `KeyboardInterrupt` that an interruption raises once the tasks under way have ended.
    """
    finished, stopped = 0, False
    with delayed_interrupt() as interrupted:

        def pending() -> Iterator[Any]:
            for key, task in tasks:
                if interrupted() or stopped:
                    return
                # As bytes, since not every backend sends a notebook's functions by value.
                yield joblib.delayed(_run)(key, cloudpickle.dumps(task))

        parallel = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", pre_dispatch="n_jobs")
        try:
            for key, result in parallel(pending()):
                stopped |= result is None
                if result is not None:
                    finished += 1
                    yield key, result
        except Exception:
            if not interrupted():  # else a worker died of the signal while it had no task
                raise
        if interrupted() or stopped:
            raise KeyboardInterrupt(f"{name} stopped with {finished} of {count} runs finished")


def _run(key: Key, task: bytes) -> tuple[Key, Any]:
    try:
        with one_thread():
            return key, cloudpickle.loads(task)()
    except NotImplementedError as error:
        raise LabError(f"{_raised_in(error)} is not written yet") from None
    except KeyboardInterrupt:
        return key, None  # raised here it would have joblib kill the other workers before they have saved


def _raised_in(error: BaseException) -> str:
    """The name of the function that raised, of a student's a stub."""
    return traceback.extract_tb(error.__traceback__)[-1].name


@contextlib.contextmanager
def followed(
    name: str, paths: Iterable[Path], steps: int, watch: Callable[[dict[Path, History]], None] | None
) -> Iterator[None]:
    """Inside the block a progress bar counts the steps that runs of `steps` steps each have saved at the paths.

    watch: called with the runs' histories as they grow. The runs may be in other processes.
    """
    paths, stop, shown = list(paths), threading.Event(), 0

    def histories() -> dict[Path, History]:
        return {path: history for path in paths if (history := _history(path))}

    def steps_of(found: dict[Path, History]) -> int:
        return sum(max(history) for history in found.values())

    def look() -> None:
        nonlocal shown
        found = histories()
        if (done := steps_of(found)) != shown:
            bar.update(done - bar.n)
            shown = done
            if watch is not None:
                watch(found)

    def follow() -> None:
        while not stop.wait(FOLLOWED_EVERY):
            look()

    # What earlier calls did counts as done from the start, so that the time left is that of the rest.
    bar = tqdm(desc=name, total=steps * len(paths), initial=steps_of(histories()))
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with bar:
        try:
            yield
        finally:
            stop.set()
            thread.join()
        look()


def _history(path: Path) -> History:
    """The evaluations saved so far; none where there is no file or no whole one."""
    try:
        return {int(step): metrics for step, metrics in read_description(path)["history"].items()}
    except (LabError, KeyError, ValueError, TypeError, AttributeError):
        return {}
