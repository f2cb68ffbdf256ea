"""The functions through which Python calls kernels, as LLVM's assembly: arguments are taken from Python's objects, and checked.

Each is a function of C as `METH_FASTCALL` wants it (Python's C API, "Common Object Structures"). All that it needs of Python and
NumPy is in a table of addresses, which is its `self`: bytes, so that the object file names nothing outside it but `memcpy` and its
like. Fields of arrays are those of `PyArrayObject_fields` (NumPy's `ndarraytypes.h`), the same in NumPy 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array in C order. Kernels cannot write to one that is `readonly`, and only such a one may be given as read-only."""

    dtype: str
    dimensions: int = 1
    readonly: bool = False


Type: TypeAlias = ArrayType | str
"""An array, or the name of a number in NumPy: `int64`, `uint64`, `bool`."""

FUNCTIONS: Final = (
    "PyLong_AsLongLong", "PyErr_Occurred", "PyErr_SetString", "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong",
    "PyLong_FromUnsignedLongLong", "PyBool_FromLong", "Py_IncRef", "PyTuple_New", "PyTuple_SetItem",
)  # fmt: skip
"""The first addresses of the table: functions of Python's C API."""
OBJECTS: Final = ("ndarray", "TypeError", "RuntimeError", "None")
"""The addresses behind them: objects of Python."""
_TABLE: Final = (*FUNCTIONS, *OBJECTS)

# Bytes before a field.
BYTES_HEADER: Final = 32  # of a `bytes` object, before its bytes
_TYPE: Final = 8
_DATA, _DIMENSIONS, _SHAPE, _STRIDES, _DESCRIPTION, _FLAGS = 16, 24, 32, 40, 56, 64
_BYTE_ORDER, _TYPE_NUMBER = 26, 28

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_TYPE_NUMBERS: Final = {"bool": 0, "uint8": 2, "int32": 5, "uint32": 6, "int64": 7, "uint64": 8}
_ITEM_BYTES: Final = {"bool": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
_LLVM: Final = {"bool": "i8", "uint8": "i8", "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}


class _Text:
    """The lines of one function, and its constants."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.lines: list[str] = []
        self.constants: list[str] = []
        self._count = 0

    def add(self, *lines: str) -> None:
        self.lines += lines

    def value(self, line: str) -> str:
        """Add an instruction; return the name of its value."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {line}")
        return f"%v{self._count}"

    def at(self, kind: str, base: str, offset: int) -> str:
        """Load a field at so many bytes behind a pointer."""
        address = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.value(f"load {kind}, ptr {address}, align 1")

    def of_table(self, name: str) -> str:
        return self.at("ptr", "%self", BYTES_HEADER + 8 * _TABLE.index(name))

    def call(self, kind: str, function: str, arguments: str) -> str:
        """Call a function of Python's C API; return the name of what it returns."""
        address = self.of_table(function)
        if kind == "void":
            self.lines.append(f"  call void {address}({arguments})")
            return ""
        return self.value(f"call {kind} {address}({arguments})")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def go_where(self, condition: str, there: str, otherwise: str) -> None:
        self.lines.append(f"  br i1 {condition}, label %{there}, label %{otherwise}")

    def refuse(self, error: str, message: str) -> None:
        """Raise an error, as the last thing of a block."""
        data = message.encode() + b"\0"
        text = "".join(f"\\{one:02X}" for one in data)
        constant = f'@"{self.symbol}.{len(self.constants)}"'
        self.constants.append(f'{constant} = private unnamed_addr constant [{len(data)} x i8] c"{text}"')
        self.call("void", "PyErr_SetString", f"ptr {self.of_table(error)}, ptr {constant}")
        self.add("  ret ptr null")


def python_call(symbol: str, kernel: str, arguments: Iterable[tuple[str, Type]], results: Sequence[str] | None) -> str:
    """Return a module with the function `symbol`, which calls a kernel of Numba with these arguments.

    `results` are the types of what the kernel returns: None for nothing, several for a tuple.
    """
    arguments = list(arguments)
    text = _Text(symbol)
    text.label("entry")
    text.go_where(text.value(f"icmp eq i64 %count, {len(arguments)}"), "argument0", "miscounted")
    text.label("miscounted")
    text.refuse("TypeError", f"{symbol} has {len(arguments)} arguments")
    given: list[tuple[str, str]] = []
    for index, (name, kind) in enumerate(arguments):
        text.label(f"argument{index}")
        item = text.at("ptr", "%arguments", 8 * index)
        if isinstance(kind, ArrayType):
            given += _array(text, index, name, kind, item)
        else:
            given.append(_number(text, index, kind, item))
    text.label(f"argument{len(arguments)}")
    _call(text, kernel, given, results)
    declared = ", ".join(("ptr, ptr", *(kind for kind, _ in given)))
    return "\n".join(
        (
            *text.constants,
            f'declare i32 @"{kernel}"({declared})',
            f'define ptr @"{symbol}"(ptr %self, ptr %arguments, i64 %count) {{',
            *text.lines,
            "}",
        )
    )


def _array(text: _Text, index: int, name: str, kind: ArrayType, item: str) -> list[tuple[str, str]]:
    """Check that the item is such an array; return what Numba wants to know of it."""
    wanted = _C_CONTIGUOUS | _ALIGNED | (0 if kind.readonly else _WRITEABLE)
    python_type, array_type = text.at("ptr", item, _TYPE), text.of_table("ndarray")
    text.go_where(text.value(f"icmp eq ptr {python_type}, {array_type}"), f"array{index}", f"wrong{index}")
    text.label(f"array{index}")
    description = text.at("ptr", item, _DESCRIPTION)
    dimensions, flags = text.at("i32", item, _DIMENSIONS), text.at("i32", item, _FLAGS)
    number, order = text.at("i32", description, _TYPE_NUMBER), text.at("i8", description, _BYTE_ORDER)
    flags = text.value(f"and i32 {flags}, {wanted}")
    right = text.value(f"icmp eq i32 {dimensions}, {kind.dimensions}")
    for check in (f"eq i32 {flags}, {wanted}", f"eq i32 {number}, {_TYPE_NUMBERS[kind.dtype]}", f"ne i8 {order}, {ord('>')}"):
        passed = text.value(f"icmp {check}")
        right = text.value(f"and i1 {right}, {passed}")
    text.go_where(right, f"taken{index}", f"wrong{index}")
    text.label(f"wrong{index}")
    what = "an array" if kind.readonly else "a writeable array"
    text.refuse(
        "TypeError", f"{text.symbol}: {name} has to be {what} of {kind.dtype} in C order, dimensions: {kind.dimensions}"
    )
    text.label(f"taken{index}")
    shape_at, strides_at, data = (text.at("ptr", item, field) for field in (_SHAPE, _STRIDES, _DATA))
    shape, strides = ([text.at("i64", at, 8 * axis) for axis in range(kind.dimensions)] for at in (shape_at, strides_at))
    count = shape[0]
    for more in shape[1:]:
        count = text.value(f"mul i64 {count}, {more}")
    text.add(f"  br label %argument{index + 1}")
    return [
        ("ptr", "null"), ("ptr", "null"), ("i64", count), ("i64", str(_ITEM_BYTES[kind.dtype])), ("ptr", data),
        *(("i64", one) for one in (*shape, *strides)),
    ]  # fmt: skip


def _number(text: _Text, index: int, kind: str, item: str) -> tuple[str, str]:
    """Check that the item is a whole number; return it."""
    if kind not in ("int64", "bool"):
        message = f"{text.symbol}: an argument of Python cannot be {kind}"
        raise TypeError(message)
    number = text.call("i64", "PyLong_AsLongLong", f"ptr {item}")
    text.go_where(text.value(f"icmp eq i64 {number}, -1"), f"doubtful{index}", f"number{index}")
    text.label(f"doubtful{index}")
    error = text.call("ptr", "PyErr_Occurred", "")
    text.go_where(text.value(f"icmp eq ptr {error}, null"), f"number{index}", f"refused{index}")
    text.label(f"refused{index}")
    text.add("  ret ptr null")
    text.label(f"number{index}")
    if kind == "bool":
        number = text.value(f"trunc i64 {number} to i8")
    text.add(f"  br label %argument{index + 1}")
    return _LLVM[kind], number


def _call(text: _Text, kernel: str, given: Sequence[tuple[str, str]], results: Sequence[str] | None) -> None:
    """Call the kernel without the GIL, and return what it returns."""
    kinds = [_LLVM[one] for one in results or ()]
    returned = "ptr" if not kinds else kinds[0] if len(kinds) == 1 else f"[{len(kinds)} x {kinds[0]}]"
    result, raised = text.value(f"alloca {returned}"), text.value("alloca ptr")
    thread = text.call("ptr", "PyEval_SaveThread", "")
    passed = ", ".join((f"ptr {result}", f"ptr {raised}", *(f"{kind} {value}" for kind, value in given)))
    status = text.value(f'call i32 @"{kernel}"({passed})')
    text.call("void", "PyEval_RestoreThread", f"ptr {thread}")
    text.go_where(text.value(f"icmp eq i32 {status}, 0"), "done", "failed")
    text.label("failed")
    text.refuse("RuntimeError", f"{text.symbol} raised an error, which no kernel does: report this")
    text.label("done")
    if not results:
        none = text.of_table("None")
        text.call("void", "Py_IncRef", f"ptr {none}")
        text.add(f"  ret ptr {none}")
        return
    size = _ITEM_BYTES[results[0]]
    objects = [_object(text, kind, text.at(kinds[at], result, at * size)) for at, kind in enumerate(results)]
    if len(objects) == 1:
        text.add(f"  ret ptr {objects[0]}")
        return
    together = text.call("ptr", "PyTuple_New", f"i64 {len(objects)}")
    for at, one in enumerate(objects):
        text.call("i32", "PyTuple_SetItem", f"ptr {together}, i64 {at}, ptr {one}")
    text.add(f"  ret ptr {together}")


def _object(text: _Text, kind: str, value: str) -> str:
    """Return a number as an object of Python."""
    if _LLVM[kind] != "i64":
        value = text.value(f"{'sext' if kind.startswith('int') else 'zext'} {_LLVM[kind]} {value} to i64")
    if kind == "bool":
        return text.call("ptr", "PyBool_FromLong", f"i64 {value}")
    return text.call("ptr", "PyLong_FromUnsignedLongLong" if kind == "uint64" else "PyLong_FromLongLong", f"i64 {value}")
