"""Many runs at once: one process of one thread each, which finishes more per hour than one run on all threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import joblib
from tqdm.auto import tqdm

from labutils.training import one_thread

Result = TypeVar("Result")


def run_all(name: str, tasks: Mapping[str, Callable[[], Result]], processes: int) -> dict[str, Result]:
    """The results of all tasks under their names, computed by up to `processes` processes, with a progress bar."""

    def run(key: str, task: Callable[[], Result]) -> tuple[str, Result]:
        with one_thread():
            return key, task()

    parallel = joblib.Parallel(n_jobs=processes, return_as="generator_unordered")
    finished = parallel(joblib.delayed(run)(key, task) for key, task in tasks.items())
    results = dict(tqdm(finished, desc=name, total=len(tasks)))
    return {key: results[key] for key in tasks}
