"""Tensors and primitives <-> safetensors + JSON on disk, atomically. Nothing read here can execute anything.

A state is a nested dict of tensors, numbers, strings, booleans, None and lists of those. One state is one
safetensors file: its tensors, and the rest as JSON in the header. What answers need is read as numpy arrays in the
place of tensors: torch takes a second to import.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from triphase.errors import CannotWrite, CorruptState, Mismatch

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
State = dict[str, Any]


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state as one file: under a temporary name, synced, then renamed.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "a.safetensors", {"known": [0, 1], "head": {"weight": torch.ones(2)}})
    ...     load(Path(folder) / "a.safetensors")
    {'known': [0, 1], 'head': {'weight': tensor([1., 1.])}}
    """
    write(path, to_bytes(state))


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """A state as the content of its file."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    tree = json.dumps(split_tensors(state, tensors, ""))
    tensors = _unshared({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
    meta = {"format": str(FORMAT), "tree": tree, "crc": str(crc32(tree, tensors))}
    return _with_ordered_metadata(save(tensors, meta))


def _with_ordered_metadata(blob: bytes) -> bytes:
    """The same file with its metadata in one order, which safetensors draws: equal states are equal files."""
    start = 8 + struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes
    return b"".join((struct.pack("<Q", len(text)), text, memoryview(blob)[start:]))


def load(path: Path, *, verify: bool = True, arrays: bool = False) -> State:
    """Read a state back; a damaged file is an error that names it.

    Without `verify` its CRC is not compared, which is for callers that have a checksum of their own. With `arrays`
    there are numpy arrays in the place of tensors.
    """
    try:
        return from_bytes(read_file(path), path, verify=verify, arrays=arrays)
    except FileNotFoundError as error:
        raise _corrupt(path, "is missing") from error
    except (CorruptState, Mismatch):
        raise
    except (SafetensorError, KeyError, RecursionError, ValueError, TypeError, struct.error) as error:
        raise _corrupt(path, f"is damaged ({error})") from error


def from_bytes(blob: bytes, path: Path, *, verify: bool = True, arrays: bool = False) -> State:
    """The state that is the content of a file at `path`."""
    size = struct.unpack("<Q", blob[:8])[0]
    meta = json.loads(blob[8 : 8 + size])["__metadata__"]
    tensors = _loaded(blob, arrays)
    check_format(path, int(meta["format"]))
    tree = meta["tree"]
    if verify and int(meta["crc"]) != crc32(tree, tensors):
        raise ValueError("its checksum does not match")
    state = join_tensors(json.loads(tree), tensors)
    if not isinstance(state, dict):
        raise ValueError("it holds no state")
    return state


def _loaded(blob: bytes, arrays: bool) -> dict[str, Any]:
    loaded: dict[str, Any] = import_module(f"safetensors.{'numpy' if arrays else 'torch'}").load(blob)
    return loaded


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor; where torch is not imported, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, or a numpy array in the place of one."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def dtype_name(array: Any) -> str:
    """What both libraries call a type, such as float32."""
    return str(array.dtype).removeprefix("torch.")


def raw_bytes(array: Any) -> memoryview:
    """The content of a tensor or an array, row by row."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    import torch

    content: memoryview = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return content


def read_file(path: Path, *, follow_links: bool = True) -> bytes:
    """The bytes of a regular file; a folder, a pipe or a device in its place is refused, and never waited for."""
    if not stat.S_ISREG(os.stat(path, follow_symlinks=follow_links).st_mode):
        raise _corrupt(path, "is not a regular file")
    nonblocking = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # in case a pipe takes its place
    with os.fdopen(os.open(path, os.O_RDONLY | nonblocking), "rb") as file:
        return file.read()


def write(path: Path, blob: bytes) -> None:
    """Replace a file atomically, and make the folders that lead to it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, blob)
    except OSError as error:
        raise cannot_write(path, error) from error


def replace_file(path: Path, blob: bytes, folder: int | None = None) -> None:
    """Replace a file atomically: readers see the old bytes or the new ones; OSError if refused.

    `folder` is the descriptor of the folder that a relative path starts from.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open_at(temporary, "wb", folder) as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):  # what prevented the write may also prevent the removal
            os.unlink(temporary, dir_fd=folder)
        raise
    _sync_directory(path.parent, folder)


def open_at(path: Path, mode: str, folder: int | None) -> IO[bytes]:
    """Open a binary file whose path, if relative, starts from a folder's descriptor."""
    file: IO[bytes] = open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o666, dir_fd=folder))
    return file


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_json(path: Path, value: object) -> None:
    """Write one JSON document, atomically."""
    write(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read one JSON document; CorruptState if it is missing or damaged."""
    try:
        return json.loads(read_file(path))
    except FileNotFoundError as error:
        raise _corrupt(path, "is missing") from error
    except CorruptState:
        raise
    except (RecursionError, ValueError) as error:
        raise _corrupt(path, f"is damaged ({error})") from error


def _corrupt(path: Path, what: str) -> CorruptState:
    return CorruptState(f"{path} {what}; restore it, or delete {path.parent} to start again.")


def cannot_write(path: Path, error: OSError) -> CannotWrite:
    """The disk's refusal as a sentence."""
    remedy = "check the path and its permissions"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "make room and run again"
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        remedy = "a file is where a folder should be, so give another path"
    return CannotWrite(f"Cannot write {path}: {error.strerror or error}; {remedy}. Nothing was lost.")


def folder_bytes(folder: Path) -> int:
    """The bytes of all files in a folder, which another process may be changing."""
    size = 0
    for place, _, names in os.walk(folder):  # not rglob, which fails when a folder vanishes
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).lstat().st_size
    return size


def make_directory(path: Path) -> None:
    """Create a directory, with those around it, where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def split_tensors(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """The JSON part of a value; its tensors go into `tensors` under their path."""
    if is_tensor(value):
        while name in tensors:  # {"a/b": ...} beside {"a": {"b": ...}}
            name += "'"
        tensors[name] = value.detach()
        return {"$tensor": name}
    if isinstance(value, Mapping):
        return {str(key): split_tensors(item, tensors, f"{name}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [split_tensors(item, tensors, f"{name}/{i}") for i, item in enumerate(value)]
    return value


def on_host(value: Any) -> Any:
    """A state whose tensors are on the CPU; those that are there already are not copied."""
    if is_tensor(value):
        return value.detach().cpu() if value.device.type != "cpu" else value
    if isinstance(value, Mapping):
        return {key: on_host(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_host(item) for item in value)
    return value


def join_tensors(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {"$tensor"}:
            return tensors[tree["$tensor"]]
        return {key: join_tensors(item, tensors) for key, item in tree.items()}
    if isinstance(tree, list):
        return [join_tensors(item, tensors) for item in tree]
    return tree


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same values, none of them twice in the same memory: safetensors refuses tied weights."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


def crc32(tree: str, tensors: Mapping[str, Tensor]) -> int:
    crc = zlib.crc32(tree.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(f"{name} torch.{dtype_name(tensors[name])} {list(tensors[name].shape)}".encode(), crc)
        if 0 not in tensors[name].shape:
            crc = zlib.crc32(raw_bytes(tensors[name]), crc)
    return crc


def check_format(path: Path, found: int) -> None:
    if found > FORMAT:
        raise Mismatch(
            f"{path} was written by a newer triphase (format {found}, this one reads {FORMAT}); upgrade."
        )


def _sync_directory(path: Path, folder: int | None) -> None:
    if sys.platform == "win32":
        return  # directories cannot be opened there
    descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
