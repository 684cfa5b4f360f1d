"""Files that are whole or not there: atomic writes, and checkpoints as safetensors with a digest.

A checkpoint may come from anyone. It is never unpickled, its size is capped, and it is used only when its
digest, names, shapes and values are right.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from labutils.errors import LabError
from labutils.model import ModelConfig, Transformer

LARGEST_FILE = 64 * 2**20  # bytes; the lab's own files stay below 5 MiB
REPLACE_ATTEMPTS, REPLACE_PAUSE = 20, 0.05  # seconds between them: one second in all


class DamagedFile(LabError):
    """A file that exists and cannot be trusted: the message names it and says what is wrong."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`, so that a reader finds the old file or the new one and never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _replace(temporary: Path, path: Path) -> None:
    """Put the new file in the old one's place. Windows refuses while another process reads the old one: try again."""
    for attempt in range(REPLACE_ATTEMPTS):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            if attempt == REPLACE_ATTEMPTS - 1:
                raise
            time.sleep(REPLACE_PAUSE)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write `value` as JSON, atomically; without an indent on one line."""
    write_atomically(path, (json.dumps(value, indent=indent, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The JSON value in `path`. Raises `DamagedFile` when it is none or too large."""
    content = _read_capped(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: not JSON ({error})") from error


def save_checkpoint(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors and a JSON description of them to one safetensors file, atomically."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about)
    metadata = {"about": text, "sha256": _digest(tensors, text)}
    write_atomically(path, _sort_header(safetensors.torch.save(tensors, metadata)))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description that `save_checkpoint` wrote. Raises `DamagedFile` for anything else."""
    content = _read_capped(path)
    try:
        tensors = safetensors.torch.load(content)
        metadata = _split_header(content)[0]["__metadata__"]
        about, digest = json.loads(metadata["about"]), metadata["sha256"]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: not a checkpoint of this lab ({error})") from error
    if digest != _digest(tensors, metadata["about"]) or not isinstance(about, dict):
        raise DamagedFile(f"{path} is damaged: its content does not match its digest")
    return tensors, about


def read_description(path: Path) -> dict[str, Any]:
    """The description in a file of `save_checkpoint`, without reading its tensors, and so without checking them.

    Raises `LabError` where there is none.
    """
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, LARGEST_FILE)))
        return dict(json.loads(header["__metadata__"]["about"]))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: not a checkpoint of this lab ({error})") from error


def save_model(path: Path, model: Transformer, about: dict[str, Any]) -> None:
    """Write the model's parameters and a description of how they were made."""
    save_checkpoint(path, model.state_dict(), about)


def load_model(path: Path, config: ModelConfig = ModelConfig()) -> tuple[Transformer, dict[str, Any]]:
    """The model of a checkpoint and its description.

    Raises `LabError` for a checkpoint of another architecture, `DamagedFile` for one that cannot be read.
    """
    tensors, about = load_checkpoint(path)
    model = Transformer(config)
    fill_parameters(model, tensors, path)
    return model, about


def fill_parameters(model: Transformer, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy `tensors` into the model. Raises `LabError` unless names, shapes and dtypes fit and values are finite."""
    expected = model.state_dict()
    if odd := sorted(tensors.keys() ^ expected.keys()):
        kind = "lacks" if odd[0] in expected else "has an unknown"
        raise LabError(f"{path} is of another architecture: it {kind} tensor {odd[0]}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
            raise LabError(
                f"{path} is of another architecture: {name} is {tensor.dtype} {tuple(tensor.shape)}; "
                f"allowed is {expected[name].dtype} {tuple(expected[name].shape)}"
            )
        if not torch.isfinite(tensor).all():
            raise LabError(f"{path} holds values that are not finite, in {name}")
    model.load_state_dict(tensors)


def _read_capped(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise DamagedFile(f"{path} is larger than {LARGEST_FILE} bytes; the lab's files are smaller")
    return content


def _split_header(content: bytes) -> tuple[Any, bytes]:
    """The JSON header of a safetensors file, and the bytes of its tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def _sort_header(content: bytes) -> bytes:
    """The same file with its metadata in order: safetensors writes them in any, so that equal files differ."""
    header, tensors = _split_header(content)
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
