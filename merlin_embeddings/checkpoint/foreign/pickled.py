"""What a pickle of tensors says, without unpickling: nothing in it is called or imported.

`torch.save` writes a pickle of protocol 2 whose tensors name storages beside it. Here its opcodes
(those of the standard library's `pickletools`) are followed one by one. They make dicts, lists,
tuples, numbers and strings; the few functions that state dicts call have stand-ins; any other
function or class is refused by its name.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple


class Storage(NamedTuple):
    """Numbers in a file of their own: torch's name of the dtype's storage, the file, how many."""

    kind: str
    key: str
    numbers: int


class Tensor(NamedTuple):
    """A view of a storage: from number `offset` on, with a shape and strides in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Kind(NamedTuple):
    """torch.FloatStorage and its like."""

    name: str


class _Other(NamedTuple):
    """Something that plain data may carry with it, and nobody looks at."""

    name: str


# Functions that state dicts call. None: a value to carry.
_CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": lambda *pairs: dict(*pairs),
    "torch._utils _rebuild_tensor": lambda storage, offset, shape, strides: _tensor(
        storage, offset, shape, strides
    ),
    "torch._utils _rebuild_tensor_v2": lambda storage, offset, shape, strides, *_: _tensor(
        storage, offset, shape, strides
    ),
    "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
    "torch Size": lambda shape: tuple(shape),
    "torch device": lambda *_: _Other("device"),
}
_MARK = object()


def load(content: bytes, path: str) -> Any:
    """What the pickle describes: plain data, with `Tensor` where tensors are.

    Args:
        content: the pickle.
        path: for messages.

    Raises:
        ValueError: it is damaged, or holds anything but plain data and tensors.
    """
    machine = _Machine(path)
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
            if opcode.name == "STOP":
                return machine.result()
            machine.do(opcode.name, argument)
    except _Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: its pickle is damaged ({error})") from None
    raise ValueError(f"{path}: its pickle ends early")


class _Refused(ValueError):
    """The pickle asks for something that isn't done."""


class _Machine:
    """The stack and the memory that opcodes work on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        (value,) = self._stack
        return value

    def do(self, name: str, argument: Any) -> None:
        """Follows one opcode."""
        stack = self._stack
        if name in ("PROTO", "FRAME"):
            return
        if name in _PLAIN:
            stack.append(argument)
        elif name in _NEW:
            stack.append(_NEW[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            stack.append(self._named(argument))
        elif name == "STACK_GLOBAL":
            called = stack.pop()
            stack.append(self._named(f"{stack.pop()} {called}"))
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[len(stack) - count :] = [tuple(self._top(count))]
        elif name == "TUPLE":
            items = self._since_mark()
            stack.append(tuple(items))
        elif name in ("APPEND", "APPENDS"):
            items = self._since_mark() if name == "APPENDS" else [stack.pop()]
            self._of(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._since_mark() if name == "SETITEMS" else [*self._pop(2)]
            self._of(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            if not callable(function) or not isinstance(arguments, tuple):
                raise ValueError("a call of what is no function")
            stack.append(function(*arguments))
        elif name == "BUILD":
            # What is set on a state dict (_metadata) says nothing of its tensors.
            state = stack.pop()
            if not isinstance(state, dict):
                raise ValueError("BUILD without a dict")
            self._of(dict)
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        else:
            raise _Refused(f"{self._path}: its pickle has {name}, which no state dict needs")

    def _named(self, name: str) -> Any:
        if name in _CALLS:
            return _CALLS[name]
        module, _, called = name.partition(" ")
        if module in ("torch", "torch.storage") and called.endswith("Storage"):
            return _Kind(called)
        if module == "torch":
            return _Other(called)
        raise _Refused(
            f"{self._path}: its pickle asks for {name.replace(' ', '.')[:120]!r}. Only plain "
            "tensors are read: save model.state_dict(), gathered into ordinary CPU tensors"
        )

    def _top(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("its stack is empty")
        return self._stack[len(self._stack) - count :] if count else []

    def _pop(self, count: int) -> list[Any]:
        items = self._top(count)
        del self._stack[len(self._stack) - count :]
        return items

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _of(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise ValueError(f"no {kind.__name__} where one is needed")
        return value


_PLAIN = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "BINBYTES",
    "SHORT_BINBYTES",
}
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _storage(told: Any) -> Storage:
    if not isinstance(told, tuple) or len(told) != 5 or told[0] != "storage":
        raise ValueError("a reference to something that is no storage")
    _, kind, key, _, numbers = told
    if not isinstance(kind, _Kind) or not isinstance(key, str) or not _is_size(numbers):
        raise ValueError("a storage without a dtype, a name or a size")
    return Storage(kind.name, key, numbers)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    if not isinstance(storage, Storage) or not _is_size(offset):
        raise ValueError("a tensor without a storage")
    for sizes in (shape, strides):
        if not isinstance(sizes, tuple) or not all(_is_size(size) for size in sizes):
            raise ValueError("a tensor whose shape or strides are no sizes")
    if len(shape) != len(strides):
        raise ValueError("a tensor with more strides than axes")
    return Tensor(storage, offset, shape, strides)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62
