"""Machine code of kernels in files that load without Numba, whose import takes a quarter of a second and 80 MB.

Images are made on the machine where they are used; `shipped.py` has those that come with the package.

An image is an object file with one function. Its parameter is the address of 64-bit words: room for the results, then
the arguments. An array is passed as the address of the NumPy object, in which the function finds data and shape. Numba
makes the code; LLVM alone loads it. Only on Linux, where this was tested. Elsewhere, and if the code or those objects
are not as expected, kernels come from Numba's own cache.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# Offsets of fields in NumPy's PyArrayObject, in bytes.
_DATA, _DIMENSIONS, _SHAPE, _FLAGS = 16, 24, 32, 64
_CONTIGUOUS, _WRITEABLE = 1, 0x400
_OTHER_ARRAY = 1  # the code's result for an array that it cannot take
_RESULTS = 2  # words: no kernel returns more values
_ENTRY = "magicbyte_kernel"
_FREES = "NRT_MemInfo_call_dtor"  # called for arrays that Numba owns, never for ours
_OF_LIBC = {"memcpy", "memmove", "memset"}
# CRC-32 of the object file, stored before it, because LLVM ends the process on a damaged one
_CHECKSUM = struct.Struct("<I")


class Array(NamedTuple):
    """An array argument: NumPy's name of its type, and whether the kernel writes to it."""

    type: str
    is_written: bool


class Signature(NamedTuple):
    """The parameters of a kernel (None for an integer), and how many integers it returns: at most 2."""

    takes: tuple[Array | None, ...]
    results: int


class Image:
    """A kernel's machine code, called with integers and arrays of the annotated types like the kernel itself.

    The GIL is released during the call.
    """

    def __init__(self, address: int, name: str, signature: Signature) -> None:
        import numpy as np

        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address)
        self.__name__ = name
        self._arrays = [(at, np.dtype(each.type)) for at, each in enumerate(signature.takes) if each]
        self._pack = struct.Struct(f"={_RESULTS + len(signature.takes)}q").pack
        self._unpack = struct.Struct(f"={signature.results}q").unpack_from
        self._is_single = signature.results == 1

    def __call__(self, *arguments: Any) -> Any:
        """Run the code. Raises TypeError for arguments of other types."""
        words = list(arguments)
        for at, dtype in self._arrays:
            array = words[at]
            # identity first, because comparing dtypes takes longer
            if array.dtype is not dtype and array.dtype != dtype:
                raise TypeError(f"{self.__name__}: an array of {array.dtype} where {dtype} belongs")
            words[at] = id(array)
        # The code writes its results into these bytes, to which nothing else refers. Every other kind of memory that
        # ctypes accepts costs some microseconds more, which is as long as a small kernel takes.
        room = self._pack(0, 0, *words)
        if self._call(room):
            raise TypeError(f"{self.__name__}: an array of more dimensions, not contiguous, or not to be written to")
        results = self._unpack(room)
        return results[0] if self._is_single else results or None


@cache
def supported() -> bool:
    """Return whether images work here: Linux, 64 bits, and NumPy's objects have the layout that the code assumes."""
    import numpy as np

    # In other implementations than CPython `id` is no address, and reading there could end the process.
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or sys.implementation.name != "cpython":
        return False
    probe = np.arange(3, dtype=np.uint8)
    probe.flags.writeable = False
    place = id(probe)
    data, shape = (ctypes.c_void_p.from_address(place + field).value for field in (_DATA, _SHAPE))
    dimensions, flags = (ctypes.c_int.from_address(place + field).value for field in (_DIMENSIONS, _FLAGS))
    if data != probe.ctypes.data or dimensions != 1 or flags & (_CONTIGUOUS | _WRITEABLE) != _CONTIGUOUS or not shape:
        return False
    return ctypes.c_ssize_t.from_address(shape).value == len(probe)


@cache
def machine() -> str:
    """Return the name of LLVM's version and the processor, on which the machine code depends besides its source."""
    from llvmlite import binding as llvm

    return f"{llvm.llvm_version_info} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def _engine() -> Any:
    """Return the engine that holds the loaded images until the process ends."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine(jit=True))


def load(path: Path) -> int | None:
    """Return the address of an image's code: None if the image is missing or damaged, 0 if it contains no code."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    code = content[_CHECKSUM.size :]
    if content[: _CHECKSUM.size] != _CHECKSUM.pack(zlib.crc32(code)):
        return None
    if not code:
        return 0
    from llvmlite import binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return int(engine.get_function_address(f"{_ENTRY}.{path.name}"))


def save(path: Path, library: Any, function: str, signature: Signature) -> None:
    """Write an image of the function named `function` in a library that Numba has just compiled.

    The image contains no code if the function would need Numba at run time.
    """
    code = _code(f"{_ENTRY}.{path.name}", library, function, signature)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(_CHECKSUM.pack(zlib.crc32(code)) + code)
    draft.rename(path)


def _code(name: str, library: Any, function: str, signature: Signature) -> bytes:
    """Return an object file with `function` under the name `name`, or nothing if it cannot stand alone."""
    from llvmlite import binding as llvm

    module = module_of(name, library, function, signature)
    if module is None:
        return b""
    target = library.codegen._tm  # the target that Numba compiled for
    strip(module, llvm.create_new_module_pass_manager(), target)
    return bytes(target.emit_object(module)) if stands_alone(module) else b""


def module_of(name: str, library: Any, function: str, signature: Signature) -> Any:
    """Return an LLVM module with `function` of a Numba library, whose only public name is `name`.

    None if the function's parameters do not match the signature.
    """
    from llvmlite import binding as llvm

    module = llvm.parse_assembly(str(library.get_llvm_str()))
    passed = [str(argument.type) for argument in module.get_function(function).arguments]
    if passed != _numba_types(signature):
        return None
    entry = llvm.parse_assembly(_entry(name, function, signature))
    entry.triple, entry.data_layout = module.triple, module.data_layout
    module.link_in(entry)
    for each in [*module.functions, *module.global_variables]:
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
    return module


def strip(module: Any, passes: Any, target: Any, speed: int = 2) -> None:
    """Run LLVM's `passes` on a module, then remove uncalled functions. `speed`: as in -O2."""
    from llvmlite import binding as llvm

    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed)))


def stands_alone(module: Any) -> bool:
    """Return whether a module needs no external functions except the C library's memcpy and memmove."""
    outside = {each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")}
    outside |= {each.name for each in module.global_variables if each.is_declaration}
    return outside <= _OF_LIBC


def _numba_types(signature: Signature) -> list[str]:
    """Return the types of a compiled function's parameters in Numba's calling convention.

    These are addresses for the result and for an exception, then for each array: owner, parent, length, item size,
    data, shape, stride.
    """
    array = ["ptr", "ptr", "i64", "i64", "ptr", "i64", "i64"]
    return ["ptr", "ptr", *(part for each in signature.takes for part in (["i64"] if each is None else array))]


def _entry(name: str, function: str, signature: Signature) -> str:
    """Return an LLVM function that takes the address of words, and calls `function`.

    It checks all arrays before it reads their fields, because arrays of zero dimensions have no shape.
    """
    checks: list[str] = []
    loads: list[str] = []
    passed, good = ["ptr %words", "ptr %exception"], "true"

    def load(lines: list[str], type_: str, base: str, at: int) -> str:
        value = f"%v{len(checks)}.{len(loads)}"
        lines.append(f"{value}.at = getelementptr i8, ptr {base}, i64 {at}\n {value} = load {type_}, ptr {value}.at")
        return value

    for index, argument in enumerate(signature.takes):
        at = 8 * (_RESULTS + index)
        if argument is None:
            passed.append(f"i64 {load(checks, 'i64', '%words', at)}")
            continue
        array, flags = load(checks, "ptr", "%words", at), _CONTIGUOUS | (_WRITEABLE if argument.is_written else 0)
        for field, mask, wanted in ((_DIMENSIONS, -1, 1), (_FLAGS, flags, flags)):
            value, before = load(checks, "i32", array, field), good
            good = f"%good{len(checks)}"
            checks.append(f"{value}.masked = and i32 {value}, {mask}")
            checks.append(f"{value}.good = icmp eq i32 {value}.masked, {wanted}")
            checks.append(f"{good} = and i1 {value}.good, {before}")
        data, length = load(loads, "ptr", array, _DATA), load(loads, "i64", load(loads, "ptr", array, _SHAPE), 0)
        size = f"i64 {argument.type[-1]}"
        passed += ["ptr null", "ptr null", f"i64 {length}", size, f"ptr {data}", f"i64 {length}", size]
    return f"""
declare i32 @"{function}"({", ".join(_numba_types(signature))})
define void @"{_FREES}"(ptr %unused) {{ ret void }}
define i32 @"{name}"(ptr %words) {{
 %exception = alloca ptr
 {_lines(checks)}
 br i1 {good}, label %run, label %refuse
run:
 {_lines(loads)}
 %status = call i32 @"{function}"({", ".join(passed)})
 ret i32 %status
refuse:
 ret i32 {_OTHER_ARRAY}
}}"""


def _lines(texts: list[str]) -> str:
    return "\n ".join(texts)
