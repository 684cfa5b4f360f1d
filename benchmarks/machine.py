"""What machine a number was measured on."""

from __future__ import annotations

import platform
from pathlib import Path

import joblib
import torch


def machine() -> str:
    """The processor's name, the cores in use, and PyTorch's version."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return f"{name}, {joblib.cpu_count()} cores, Python {platform.python_version()}, PyTorch {torch.__version__}"
