"""Machine code of kernels as files, loaded again without Numba: importing that takes a quarter of a second and 80 MB.

An image is an object file with one function, which takes the place of 64-bit words: room for the results, then the
arguments, of an array its address and its length. Numba makes the code, LLVM alone loads it. Only on Linux, where this
was tried; elsewhere, and where the code is not as expected, kernels come from Numba's own cache.
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

SUPPORTED = sys.platform == "linux" and sys.maxsize > 1 << 32

_RESULTS = 2  # words: no kernel returns more
_ENTRY = "magicbyte_kernel"
_FREES = "NRT_MemInfo_call_dtor"  # called for arrays that Numba owns: never for ours
_OF_LIBC = {"memcpy", "memmove", "memset"}
_CHECKSUM = struct.Struct("<I")  # CRC-32 of the object file, in front of it: LLVM ends the process over a damaged one
_address_of = ctypes.addressof
_bytes_of = (ctypes.c_char * 0).from_buffer  # refuses what is not contiguous, or not to be written to


class Array(NamedTuple):
    """An argument that is an array: numpy's name of its type, and whether the kernel writes to it."""

    type: str
    is_written: bool


class Signature(NamedTuple):
    """What a kernel takes, None for an integer, and how many integers it returns: at most 2."""

    takes: tuple[Array | None, ...]
    results: int


class Image:
    """A kernel's machine code: call it with arrays of the annotated types and integers, as the kernel itself.

    The GIL is released meanwhile.
    """

    def __init__(self, address: int, name: str, signature: Signature) -> None:
        import numpy as np

        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)
        self.__name__ = name
        self._takes = [each and (np.dtype(each.type), each.is_written) for each in signature.takes]
        self._results = signature.results
        words = _RESULTS + sum(1 if each is None else 2 for each in signature.takes)
        self._words = struct.Struct(f"{words}q")

    def __call__(self, *arguments: Any) -> Any:
        """Run it. Raises TypeError for arguments of other types."""
        words = [0] * _RESULTS
        for argument, wanted in zip(arguments, self._takes, strict=True):
            if wanted is None:
                words.append(argument)
                continue
            dtype, is_written = wanted
            if argument.dtype != dtype or argument.ndim != 1:
                raise TypeError(
                    f"{self.__name__}: {argument.ndim} dimensions of {argument.dtype} where {dtype} belongs"
                )
            if is_written:
                words += _address_of(_bytes_of(argument)), len(argument)
            elif argument.flags.c_contiguous:
                words += argument.ctypes.data, len(argument)
            else:
                raise TypeError(f"{self.__name__}: the array is not contiguous")
        room = bytearray(self._words.size)
        self._words.pack_into(room, 0, *words)
        status = self._call(_address_of(_bytes_of(room)))
        assert status == 0, "kernels raise nothing"
        if self._results == 0:
            return None
        found = self._words.unpack(room)
        return found[0] if self._results == 1 else found[: self._results]


@cache
def machine() -> str:
    """Return the name of what machine code depends on, apart from its source: LLVM and the processor."""
    from llvmlite import binding as llvm

    return f"{llvm.llvm_version_info} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def _engine() -> Any:
    """Return what holds the images that are loaded, as long as the process runs."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine(jit=True))


def load(path: Path) -> int | None:
    """Return the address of the code in an image: None if there is no image, or a damaged one, 0 if it has no code."""
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

    It is without code if that would need Numba at run time.
    """
    code = _code(f"{_ENTRY}.{path.name}", library, function, signature)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(_CHECKSUM.pack(zlib.crc32(code)) + code)
    draft.rename(path)


def _code(name: str, library: Any, function: str, signature: Signature) -> bytes:
    """Return an object file with `function`, to be called as `name`."""
    from llvmlite import binding as llvm

    module = llvm.parse_assembly(str(library.get_llvm_str()))
    passed = [str(argument.type) for argument in module.get_function(function).arguments]
    if passed != _numba_types(signature):
        return b""
    entry = llvm.parse_assembly(_entry(name, function, signature))
    entry.triple, entry.data_layout = module.triple, module.data_layout
    module.link_in(entry)
    for each in [*module.functions, *module.global_variables]:
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    target = library.codegen._tm  # the machine that Numba compiled it for
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    outside = {each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")}
    outside |= {each.name for each in module.global_variables if each.is_declaration}
    return bytes(target.emit_object(module)) if outside <= _OF_LIBC else b""


def _numba_types(signature: Signature) -> list[str]:
    """Return the types of a compiled function's arguments in Numba's calling convention.

    Places for the result and for an exception; of an array owner, parent, length, item size, data, shape, stride.
    """
    array = ["ptr", "ptr", "i64", "i64", "ptr", "i64", "i64"]
    return ["ptr", "ptr", *(part for each in signature.takes for part in (["i64"] if each is None else array))]


def _entry(name: str, function: str, signature: Signature) -> str:
    """Return a function in LLVM's language that takes the place of words, and calls `function`."""
    loads: list[str] = []

    def word(type_: str) -> str:
        at = _RESULTS + len(loads)
        loads.append(f"%at{at} = getelementptr i64, ptr %words, i64 {at}\n %w{at} = load {type_}, ptr %at{at}")
        return f"{type_} %w{at}"

    passed = ["ptr %words", "ptr %exception"]
    for each in signature.takes:
        if each is None:
            passed.append(word("i64"))
        else:
            data, length, size = word("ptr"), word("i64"), f"i64 {each.type[-1]}"
            passed += ["ptr null", "ptr null", length, size, data, length, size]
    lines = "\n ".join(loads)
    return f"""
declare i32 @"{function}"({", ".join(_numba_types(signature))})
define void @"{_FREES}"(ptr %unused) {{ ret void }}
define i32 @"{name}"(ptr %words) {{
 %exception = alloca ptr
 {lines}
 %status = call i32 @"{function}"({", ".join(passed)})
 ret i32 %status
}}"""
