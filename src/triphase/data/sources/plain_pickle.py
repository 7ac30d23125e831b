"""Read the plain data in a pickle without running it.

A pickle is a program that may call anything; CIFAR-100's Python download is one all the same. The
interpreter here walks its instructions with pickletools and never imports or calls what the file names. It
knows dicts, lists, tuples, numbers, strings and arrays of bytes as protocol 2 writes them, from Python 2
or 3; anything else is refused.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triphase.errors import BadData

_MARK = object()
_UINT8 = object()
LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE"}
FRESH: dict[str, Callable[[], object]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
NAMES = {*RECONSTRUCT, "numpy ndarray", "numpy dtype", "_codecs encode"}


class _Name(str):
    """Something the file mentions by name: compared, never looked up."""


@dataclass(eq=False)
class _Array:
    """An array whose content comes with a later instruction."""

    value: NDArray[np.uint8] | None = None


def read_plain(path: Path) -> dict[str, Any]:
    """The dict in a pickle file, with str keys; strings in it are str or bytes, arrays uint8."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(path.read_bytes()):
            machine.step(opcode.name, argument)
        found = _the(dict, machine.stack.pop())
        return {key: value.value if isinstance(value, _Array) else value for key, value in found.items()}
    except (OSError, ValueError, TypeError, LookupError, Warning) as error:  # pickletools may warn
        raise BadData(f"{path} cannot be read as plain data ({error}); nothing in it was run.") from error


def text(value: object) -> str:
    """A string of the file, which Python 2 did not tell from bytes.

    >>> text(b"apple"), text("apple")
    ('apple', 'apple')
    """
    if not isinstance(value, str | bytes):
        raise ValueError(f"a {type(value).__name__} where a string should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Obey one harmless instruction."""
        stack = self.stack
        if name in LITERALS:
            stack.append(argument)
        elif name in FRESH:
            stack.append(FRESH[name]())
        elif name in TUPLES:
            stack.append(tuple(self._pop(TUPLES[name])))
        elif name == "TUPLE":
            stack.append(tuple(self._pop_to_mark()))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._pop_to_mark()
            _the(list, stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._pop_to_mark()
            _the(dict, stack[-1]).update(zip(map(text, items[::2]), items[1::2], strict=True))
        elif name == "GLOBAL":
            stack.append(_name(argument))
        elif name == "REDUCE":
            stack.append(_result(*self._pop(2)))
        elif name == "BUILD":
            _fill(stack[-2], stack.pop())
        elif name not in ("PROTO", "STOP"):
            raise ValueError(f"it contains the instruction {name}")

    def _pop(self, n: int) -> list[Any]:
        if len(self.stack) < n:
            raise ValueError("its stack runs empty")
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]


def _the(kind: Callable[..., Any], value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"it treats a {type(value).__name__} as something else")
    return value


def _name(argument: str) -> _Name:
    if argument not in NAMES:
        raise ValueError(f"it asks for {argument.replace(' ', '.')}")
    return _Name(argument)


def _result(function: Any, arguments: Any) -> object:
    """What a call would give, for the three calls that an array consists of."""
    if not isinstance(function, _Name):
        raise ValueError("it calls something that is not a name")
    if function in RECONSTRUCT:
        return _Array()
    if function == "numpy dtype" and text(arguments[0]) in ("u1", "|u1"):
        return _UINT8
    if function == "_codecs encode" and arguments[1] == "latin1":
        return text(arguments[0]).encode("latin-1")
    raise ValueError(f"it calls {function.replace(' ', '.')} in a way that arrays of bytes do not need")


def _fill(target: Any, state: Any) -> None:
    """Give an array its content; the state of uint8 says nothing new."""
    if target is _UINT8:
        return
    if not isinstance(target, _Array):
        raise ValueError(f"it changes the insides of a {type(target).__name__}")
    _, shape, dtype, by_columns, raw = state
    if dtype is not _UINT8:
        raise ValueError("it holds an array of something other than bytes")
    content = raw if isinstance(raw, bytes) else text(raw).encode("latin-1")
    writable = bytearray(content)  # torch wants it so
    target.value = np.frombuffer(writable, np.uint8).reshape(shape, order="F" if by_columns else "C")
