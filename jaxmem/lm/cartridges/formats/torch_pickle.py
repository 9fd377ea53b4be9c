"""The pickle in a file of `torch.save`, read as data: nothing it names is imported or called.

A pickle is a program for a small stack machine. This one knows the instructions that a dictionary
of tensors needs, and puts a description where PyTorch would put an object; whatever else the
program asks for is refused by its name.
"""

import pickletools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from jaxmem.common.safetensors_header import UnfitError, short

MOST_BYTES = 16 * 2**20
"""Bytes of a pickle that are read; one of 100 layers has a few hundred thousand."""

_MOST_STEPS = 1_000_000
_AXES = 8
_FLOATS = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "DoubleStorage": np.dtype("<f8"),
}


class Storage(NamedTuple):
    """Numbers that lie side by side in a file of their own.

    key: name of that file.
    kind: type of the numbers.
    size: how many there are.
    """

    key: str
    kind: np.dtype
    size: int


class TensorView(NamedTuple):
    """A tensor as a view of a storage.

    storage: that it looks at.
    offset: its first number.
    shape: sizes.
    strides: numbers from one to the next along each axis.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensor_lists(content: bytes) -> dict[str, list[TensorView]]:
    """The lists of tensors that a pickle describes by name.

    Args:
      content: the pickle of a dictionary of ParameterLists, or of lists of tensors.

    Returns:
      Views within their storages by name, in the order of each list.

    Raises:
      ValueError: if it names, calls or does anything else, is damaged or too long.
    """
    if len(content) > MOST_BYTES:
        raise UnfitError(f"expected a pickle of at most {MOST_BYTES} bytes, got {len(content)}")
    found = _result(content)
    if type(found) is not dict:
        raise UnfitError(f"expected a pickle of lists of tensors by name, got {_what(found)}")
    return {name: _tensors(name, made) for name, made in found.items()}


def _result(content: bytes) -> Any:
    """What the program leaves when it ends."""
    machine = _Machine()
    try:
        for count, (step, argument, _) in enumerate(pickletools.genops(content)):
            if count == _MOST_STEPS:
                raise UnfitError(f"expected a pickle of at most {_MOST_STEPS} steps, got more")
            if step.name == "STOP":
                break
            machine.run(step.name, argument)
    except UnfitError:
        raise
    except (ValueError, OverflowError, LookupError) as error:
        raise UnfitError(f"expected a sound pickle, got {short(str(error))}") from error
    return machine.result()


def _tensors(name: str, made: Any) -> list[TensorView]:
    """Elements of a ParameterList or a list."""
    if type(made) is _Parameters:
        state = made.state or {}
        parameters = state.get("_parameters")
        if type(parameters) is not dict:
            raise UnfitError(f"expected parameters in {short(name)}, got {_what(parameters)}")
        numbers = [str(number) for number in range(len(parameters))]
        if set(numbers) != set(parameters) or state.get("_size", len(numbers)) != len(numbers):
            raise UnfitError(f"expected parameters 0, 1, 2 and so on in {short(name)}, got others")
        made = [parameters[number] for number in numbers]
    if type(made) is not list:
        raise UnfitError(f"expected a list of tensors {short(name)}, got {_what(made)}")
    for tensor in made:
        if type(tensor) is not TensorView:
            raise UnfitError(f"expected tensors in {short(name)}, got {_what(tensor)}")
    return made


class _Global:
    """A name that a pickle asks for."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Parameters:
    """A ParameterList; its state comes later."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None


class _Machine:
    """The stack machine: a stack for each open mark, and what is remembered by number."""

    def __init__(self) -> None:
        self.stacks: list[list[Any]] = [[]]
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """One step of the program."""
        if name in _CONSTANTS:
            self.push(_CONSTANTS[name]())
        elif name in _VALUES:
            if isinstance(argument, int) and abs(argument) >= 2**63:
                raise UnfitError("refused: the pickle has a number of more than 63 bits")
            self.push(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            called = f"calls {_dotted(argument)}" if name == "INST" else f"has the step {name}"
            raise UnfitError(f"refused: the pickle {called}")

    def push(self, thing: Any) -> None:
        self.stacks[-1].append(thing)

    def pop(self) -> Any:
        if not self.stacks[-1]:
            raise UnfitError("expected a sound pickle, got one that takes from an empty stack")
        return self.stacks[-1].pop()

    def top(self, kind: type) -> Any:
        """What is on top, which must be of a kind."""
        thing = self.pop()
        self.push(thing)
        if type(thing) is not kind:
            raise UnfitError(f"refused: the pickle changes {_what(thing)}")
        return thing

    def since_mark(self) -> list[Any]:
        if len(self.stacks) < 2:
            raise UnfitError("expected a sound pickle, got one without a mark")
        return self.stacks.pop()

    def result(self) -> Any:
        thing = self.pop()
        if self.stacks != [[]]:
            raise UnfitError("expected a sound pickle, got one that leaves something on its stack")
        return thing

    def mark(self, argument: None) -> None:
        self.stacks.append([])

    def put(self, place: int | None) -> None:
        thing = self.pop()
        self.push(thing)
        self.memo[len(self.memo) if place is None else place] = thing

    def get(self, place: int) -> None:
        if place not in self.memo:
            raise UnfitError("expected a sound pickle, got one that recalls what is not there")
        self.push(self.memo[place])

    def tuple_of(self, count: int) -> None:
        parts = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(parts)))

    def tuple_since_mark(self, argument: None) -> None:
        parts = self.since_mark()
        self.push(tuple(parts))

    def append(self, things: list[Any]) -> None:
        self.top(list).extend(things)

    def set_items(self, things: list[Any]) -> None:
        there = self.top(dict)
        names = things[::2]
        if len(things) % 2 or not all(type(name) is str for name in names):
            raise UnfitError("refused: the pickle has a dictionary with keys other than strings")
        there.update(zip(names, things[1::2]))

    def name(self, argument: str) -> None:
        self.push(_allowed(_dotted(argument)))

    def name_on_stack(self, argument: None) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise UnfitError("refused: the pickle asks for a name that is no string")
        self.push(_allowed(f"{module}.{name}"))

    def call(self, argument: None) -> None:
        arguments, called = self.pop(), self.pop()
        if type(called) is not _Global or called.name not in _CALLS:
            raise UnfitError(f"refused: the pickle calls {_what(called)}")
        if type(arguments) is not tuple:
            raise UnfitError(f"refused: the pickle calls {called.name} with {_what(arguments)}")
        self.push(_CALLS[called.name](arguments))

    def new(self, argument: None) -> None:
        arguments, made = self.pop(), self.pop()
        if type(made) is not _Global or made.name != _LIST or type(arguments) is not tuple:
            raise UnfitError(f"refused: the pickle makes {_what(made)}")
        if arguments:
            raise UnfitError(f"refused: the pickle makes {_LIST} with arguments")
        self.push(_Parameters())

    def build(self, argument: None) -> None:
        state = self.pop()
        made = self.top(_Parameters)
        if type(state) is not dict:
            raise UnfitError(f"refused: the pickle sets the state of {_LIST} to {_what(state)}")
        made.state = state

    def stored(self, argument: None) -> None:
        told = self.pop()
        if type(told) is not tuple or len(told) != 5 or told[0] != "storage":
            raise UnfitError(f"refused: the pickle stores {_what(told)}, no storage")
        _, kind, key, _, count = told
        if type(kind) is not _Global or kind.name.removeprefix("torch.") not in _FLOATS:
            raise UnfitError(f"expected a storage of {', '.join(_FLOATS)}, got {_what(kind)}")
        if type(key) is not str or not re.fullmatch("[0-9]{1,9}", key) or not _sizes((count,)):
            raise UnfitError("expected a storage's number and size, got something else")
        self.push(Storage(key, _FLOATS[kind.name.removeprefix("torch.")], count))


def _tensor(arguments: tuple[Any, ...]) -> TensorView:
    """`_rebuild_tensor_v2`: storage, offset, size, strides; gradients and hooks are left out."""
    if len(arguments) not in (6, 7) or type(arguments[0]) is not Storage:
        raise UnfitError("expected a tensor's storage, offset, size and strides, got others")
    storage, offset, shape, strides = arguments[:4]
    axes = type(shape) is type(strides) is tuple and 1 <= len(shape) == len(strides) <= _AXES
    if not axes or not _sizes((offset, *shape, *strides)):
        raise UnfitError(f"expected a tensor of 1 to {_AXES} sizes and strides, got another")
    count = 1
    for size in shape:
        count *= size
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
    if count > storage.size or (count and last >= storage.size):
        raise UnfitError(
            f"expected a tensor within its storage of {storage.size} numbers, got {list(shape)} "
            f"with strides {list(strides)} from {offset}"
        )
    return TensorView(storage, offset, shape, strides)


def _parameter(arguments: tuple[Any, ...]) -> TensorView:
    if len(arguments) != 3 or type(arguments[0]) is not TensorView:
        raise UnfitError("expected a parameter of a tensor, got another")
    return arguments[0]


def _ordered(arguments: tuple[Any, ...]) -> dict[str, Any]:
    if arguments:
        raise UnfitError("refused: the pickle calls collections.OrderedDict with arguments")
    return {}


def _set(arguments: tuple[Any, ...]) -> list[Any]:
    if len(arguments) != 1 or type(arguments[0]) is not list:
        raise UnfitError("refused: the pickle calls set with other than a list")
    return arguments[0]


_LIST = "torch.nn.modules.container.ParameterList"
_CALLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": _ordered,
    "__builtin__.set": _set,
    "builtins.set": _set,
}
_NAMES = {*_CALLS, _LIST, *(f"torch.{name}" for name in _FLOATS)}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "TUPLE": _Machine.tuple_since_mark,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_on_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.new,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.stored,
}


def _allowed(name: str) -> _Global:
    if name not in _NAMES:
        raise UnfitError(f"refused: the pickle calls {short(name)[1:-1]}")
    return _Global(name)


def _dotted(argument: str) -> str:
    """`os.system` for the two names in one string."""
    return argument.replace(" ", ".", 1)


def _sizes(numbers: tuple[Any, ...]) -> bool:
    return all(type(number) is int and 0 <= number < 2**40 for number in numbers)


def _what(thing: Any) -> str:
    """A thing's name for a message; its content may be endless."""
    if type(thing) is _Global:
        return thing.name
    known = {type(None): "nothing", int: "an int", TensorView: "a tensor", _Parameters: "a list"}
    return known.get(type(thing), f"a {type(thing).__name__.lower()}")
