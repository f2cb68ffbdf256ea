"""`python -m kernels.compiler HOME`: compile the group of a module, and write its object file to standard output.

Only this process imports Numba.

Kernels allocate nothing and raise nothing, so they are compiled without reference counting (half of their time otherwise), and
division by zero is not asked about.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numba
from llvmlite import binding
from numba.core.registry import cpu_target

from kernels.group import Compilation, KernelGroup, compile_here, symbol_of
from kernels.python_calls import ArrayType, Type, python_call

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS: Final = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def dispatcher_of(function: Callable[..., Any]) -> Any:
    """Return what Numba calls and compiles, not compiled yet."""
    return numba.njit(**_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Return the same for a part of one kernel, which Numba inlines."""
    return numba.njit(nogil=True, inline="always", _nrt=False)(function)


def compile_typed(group: KernelGroup) -> None:
    """Compile the kernels of the group that have types, callees before their callers, each once.

    Left alone, Numba would compile a kernel again for each combination of literal arguments it is called with.
    """
    for dispatcher in group.typed:
        names = [name for key, name in dispatcher.py_func.__annotations__.items() if key != "return"]
        dispatcher.compile(tuple(_numba_type(group.types[name]) for name in names))
        dispatcher.disable_compile()


def _numba_type(kind: Type) -> Any:
    if isinstance(kind, ArrayType):
        return numba.types.Array(getattr(numba.types, kind.dtype), kind.dimensions, "C", readonly=kind.readonly)
    return getattr(numba.types, {"bool": "boolean"}.get(kind, kind))


def object_code(group: KernelGroup) -> bytes:
    """Return an object file with a function for Python for each entry, under the entry's symbol."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = _target_machine()
    whole = binding.parse_assembly(f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n')
    for dispatcher in group.entries:
        (compiled,) = dispatcher.overloads.values()
        annotations = dispatcher.py_func.__annotations__
        arguments = [(key, group.types[name]) for key, name in annotations.items() if key != "return"]
        whole.link_in(binding.parse_assembly(compiled.library.get_llvm_str()))
        name, result = compiled.fndesc.llvm_func_name, compiled.signature.return_type
        whole.link_in(binding.parse_assembly(python_call(symbol_of(dispatcher.py_func), name, arguments, _results(result))))
    whole.verify()
    return bytes(machine.emit_object(whole))


def _results(result: Any) -> Sequence[str] | None:
    """Return the types of what a kernel returns: none, or one, or those of a tuple in a list of more."""
    result = numba.types.unliteral(result)
    if isinstance(result, numba.types.UniTuple):
        return [str(result.dtype)] * result.count
    return None if isinstance(result, numba.types.NoneType) else [str(result)]


def _target_machine() -> Any:
    """Return what makes the code that Numba itself would make, for this processor."""
    codegen = cpu_target.target_context.codegen()
    target = binding.Target.from_triple(binding.get_process_triple())
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()
    return target.create_target_machine(
        cpu=name, features=codegen._tm_features, opt=3, reloc="default", codemodel="jitdefault", jit=True  # noqa: SLF001 - nothing else has them
    )


def main(home: str) -> None:
    """Compile `GROUP` of the module `home`; write the object file to standard output. Ends when standard input does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output, sys.stdout = sys.stdout.buffer, sys.stderr
    compile_here(Compilation(home, dispatcher_of, inlined))
    group: KernelGroup = import_module(home).GROUP
    for name in group.modules:
        import_module(name)
    compile_typed(group)
    output.write(object_code(group))
    output.flush()


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock Python wants at the end
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
