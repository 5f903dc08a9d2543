"""A branch hint for the compiler of kernels."""

from typing import Any

from magicbyte.engine.compiled.kernel import machine_body


def likely(condition: bool) -> bool:
    """Return `condition`. The compiler assumes in `if likely(…)` that it nearly always holds.

    Values that only the unlikely branch needs are then kept in memory instead of registers.
    """
    return condition


@machine_body(likely)
def _likely() -> Any:
    from llvmlite import ir
    from numba.core import cgutils as untyped
    from numba.extending import intrinsic

    cgutils: Any = untyped
    bit = ir.IntType(1)

    def likely(_typing: Any, _condition: Any) -> Any:
        from numba import types as nb

        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
            return builder.call(expect, [arguments[0], bit(1)])

        return nb.boolean(nb.boolean), codegen

    return intrinsic(likely)
