"""Machine code of kernels as files, loaded again without Numba: importing that takes a quarter of a second and 80 MB.

These are made on the machine where they are used; `shipped.py` has those that come with the package.

An image is an object file with one function, which takes the place of 64-bit words: room for the results, then the
arguments, of an array the place of numpy's object, where the function finds what Numba's own calls find there. Numba
makes the code, LLVM alone loads it. Only on Linux, where this was tried; elsewhere, and where the code or those objects
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

# numpy's PyArrayObject: bytes in front of its fields
_DATA, _DIMENSIONS, _SHAPE, _FLAGS = 16, 24, 32, 64
_CONTIGUOUS, _WRITEABLE = 1, 0x400
_OTHER_ARRAY = 1  # what the code returns for one that it cannot take
_RESULTS = 2  # words: no kernel returns more
_ENTRY = "magicbyte_kernel"
_FREES = "NRT_MemInfo_call_dtor"  # called for arrays that Numba owns: never for ours
_OF_LIBC = {"memcpy", "memmove", "memset"}
_CHECKSUM = struct.Struct("<I")  # CRC-32 of the object file, in front of it: LLVM ends the process over a damaged one


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

        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address)
        self.__name__ = name
        self._arrays = [(at, np.dtype(each.type)) for at, each in enumerate(signature.takes) if each]
        self._pack = struct.Struct(f"={_RESULTS + len(signature.takes)}q").pack
        self._unpack = struct.Struct(f"={signature.results}q").unpack_from
        self._is_single = signature.results == 1

    def __call__(self, *arguments: Any) -> Any:
        """Run it. Raises TypeError for arguments of other types."""
        words = list(arguments)
        for at, dtype in self._arrays:
            array = words[at]
            if array.dtype is not dtype and array.dtype != dtype:  # mostly it is: comparing takes longer
                raise TypeError(f"{self.__name__}: an array of {array.dtype} where {dtype} belongs")
            words[at] = id(array)
        # The code writes its results into these bytes, which nobody else has. Every other kind of memory that ctypes
        # takes costs some microseconds more, which is what small kernels take.
        room = self._pack(0, 0, *words)
        if self._call(room):
            raise TypeError(f"{self.__name__}: an array of more dimensions, not contiguous, or not to be written to")
        results = self._unpack(room)
        return results[0] if self._is_single else results or None


@cache
def supported() -> bool:
    """Say whether images work here: Linux, 64 bits, and numpy's objects are laid out as the code presumes."""
    import numpy as np

    # Elsewhere than in CPython `id` is no address: looking there could end the process.
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
    """Return an object file with `function`, to be called as `name`; nothing where it cannot stand alone."""
    from llvmlite import binding as llvm

    module = module_of(name, library, function, signature)
    if module is None:
        return b""
    target = library.codegen._tm  # the machine that Numba compiled it for
    strip(module, llvm.create_new_module_pass_manager(), target)
    return bytes(target.emit_object(module)) if stands_alone(module) else b""


def module_of(name: str, library: Any, function: str, signature: Signature) -> Any:
    """Return an LLVM module with `function` of a library of Numba's, whose only public name is `name`.

    None where the function does not take what the signature says.
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
    """Run LLVM's `passes` on a module, and then remove what nothing calls. `speed`: as in -O2."""
    from llvmlite import binding as llvm

    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed)))


def stands_alone(module: Any) -> bool:
    """Say whether a module needs nothing of others but the C library's copying of memory."""
    outside = {each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")}
    outside |= {each.name for each in module.global_variables if each.is_declaration}
    return outside <= _OF_LIBC


def _numba_types(signature: Signature) -> list[str]:
    """Return the types of a compiled function's arguments in Numba's calling convention.

    Places for the result and for an exception; of an array owner, parent, length, item size, data, shape, stride.
    """
    array = ["ptr", "ptr", "i64", "i64", "ptr", "i64", "i64"]
    return ["ptr", "ptr", *(part for each in signature.takes for part in (["i64"] if each is None else array))]


def _entry(name: str, function: str, signature: Signature) -> str:
    """Return a function in LLVM's language that takes the place of words, and calls `function`.

    It looks at all arrays before it takes anything out of them: those of no dimensions have no shape.
    """
    checks: list[str] = []
    loads: list[str] = []
    passed, good = ["ptr %words", "ptr %exception"], "true"

    def load(lines: list[str], type_: str, base: str, at: int) -> str:
        value = f"%v{len(checks)}.{len(loads)}"
        lines.append(f"{value}.at = getelementptr i8, ptr {base}, i64 {at}\n {value} = load {type_}, ptr {value}.at")
        return value

    for index, each in enumerate(signature.takes):
        at = 8 * (_RESULTS + index)
        if each is None:
            passed.append(f"i64 {load(checks, 'i64', '%words', at)}")
            continue
        array, flags = load(checks, "ptr", "%words", at), _CONTIGUOUS | (_WRITEABLE if each.is_written else 0)
        for field, mask, wanted in ((_DIMENSIONS, -1, 1), (_FLAGS, flags, flags)):
            value, before = load(checks, "i32", array, field), good
            good = f"%good{len(checks)}"
            checks.append(f"{value}.masked = and i32 {value}, {mask}")
            checks.append(f"{value}.good = icmp eq i32 {value}.masked, {wanted}")
            checks.append(f"{good} = and i1 {value}.good, {before}")
        data, length = load(loads, "ptr", array, _DATA), load(loads, "i64", load(loads, "ptr", array, _SHAPE), 0)
        size = f"i64 {each.type[-1]}"
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
