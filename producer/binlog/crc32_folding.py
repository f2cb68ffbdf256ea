"""The part of a CRC32 that multiplies without carries, as an intrinsic for Numba: imported only where kernels are compiled.

Sixteen bytes a step are folded into the next sixteen (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
PCLMULQDQ Instruction", Intel, 2009).
"""

from __future__ import annotations

from typing import Any, Final, cast

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

_POLYNOMIAL: Final = 0x104C11DB7


def _factor(exponent: int) -> int:
    """Return x**exponent modulo the polynomial, its 32 bits reflected, for a product of 64 reflected bits.

    Such a product is one bit and 32 further powers of x too low: the bit is put right here, the powers by the caller.
    """
    power = 1
    for _ in range(abs(exponent)):
        if exponent > 0:
            power <<= 1
            power ^= _POLYNOMIAL if power >> 32 else 0
        else:
            power ^= _POLYNOMIAL if power & 1 else 0
            power >>= 1
    return int(f"{power:032b}"[::-1], 2) << 1


_FACTORS: Final = [[_factor(8 * size + 32), _factor(8 * size - 32)] for size in range(17)]
"""What the two halves of the sixteen bytes so far are multiplied by, when `size` bytes come behind them."""


def multiplies_without_carries() -> bool:
    """Return whether the code that Numba makes may use PCLMULQDQ; files of compiled kernels keep processors apart."""
    if not llvmlite.binding.get_host_cpu_features().get("pclmul", False):
        return False
    asked = numba.config.CPU_FEATURES
    if asked is None:
        return True
    said = [one for one in asked.split(",") if one in ("+pclmul", "-pclmul", "-sse2")]
    return bool(said) and all(one == "+pclmul" for one in said)


@cast("Any", intrinsic)
def folded(_typing: Any, buf: Any, start: Any, end: Any) -> Any:
    """Fold buf[start:end], sixteen bytes or more, into sixteen with the same CRC32: two little-endian words.

    The bits that a CRC32 begins with are in them, so that the rest of it begins with 0.
    """
    signature = numba.types.UniTuple(numba.types.uint64, 2)(buf, start, end)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, byte = ir.IntType(64), ir.IntType(8)
        pair = ir.VectorType(word, 2)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        start, end = args[1:]
        multiply = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(pair, [pair, pair, byte]), "llvm.x86.pclmulqdq"
        )
        factors = ir.Constant(ir.ArrayType(pair, 17), [ir.Constant(pair, factors) for factors in _FACTORS])
        factors = cgutils.global_constant(builder, "crc32_factors", factors)
        mask = cgutils.global_constant(builder, "crc32_mask", ir.Constant(ir.ArrayType(byte, 32), [0] * 16 + [255] * 16))

        def number(value: int) -> Any:
            return ir.Constant(word, value)

        def load(address: Any) -> Any:
            return builder.load(builder.bitcast(address, pair.as_pointer()), align=1)

        def fold(so_far: Any, size: Any, behind: Any) -> Any:
            by = load(builder.gep(factors, [number(0), size]))
            low, high = (builder.call(multiply, [so_far, by, ir.Constant(byte, half)]) for half in (0x00, 0x11))
            return builder.xor(builder.xor(low, high), behind)

        first = builder.xor(load(builder.gep(data, [start])), ir.Constant(pair, [0xFFFFFFFF, 0]))
        found = cgutils.alloca_once_value(builder, first)
        size = builder.sub(end, start)
        with cgutils.for_range(builder, builder.sub(builder.lshr(size, number(4)), number(1))) as loop:
            at = builder.add(start, builder.shl(builder.add(loop.index, number(1)), number(4)))
            builder.store(fold(builder.load(found), number(16), load(builder.gep(data, [at]))), found)
        rest = builder.and_(size, number(15))
        with builder.if_then(builder.icmp_signed("!=", rest, number(0))):
            last = load(builder.gep(data, [builder.sub(end, number(16))]))
            masked = builder.and_(last, load(builder.gep(mask, [number(0), rest])))
            builder.store(fold(builder.load(found), rest, masked), found)
        words = [builder.extract_element(builder.load(found), ir.Constant(ir.IntType(32), lane)) for lane in (0, 1)]
        return context.make_tuple(builder, signature.return_type, words)

    return signature, generate
