"""The `@kernel` decorator: compiles an annotated function with Numba at its first call, and caches it on disk.

A kernel is ordinary Python over flat buffers and integers, so it also runs uncompiled: `kernel.py_func`, the plain
twin, needs no Numba, takes bytes and lists, and handles small batches. Kernels never raise: they return a status. A
kernel may use integers, indexing, other kernels, and the primitives of `primitives.py` and `checksums.py`, each of
which has a Python body for the twin and a machine body (LLVM) for the compiled form.

Annotations give the compiled signature: `int` (int64), `Bytes` (read only), `MutableBytes`, `Int64s`, `Int32s`, `Int8s`
(all one-dimensional, C-contiguous).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types as python_types
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias, overload

from magicbyte.engine.compiled import image, shipped
from magicbyte.engine.extras import advise, present


class Ints(Protocol):
    """A flat array of integers: a list in the plain twin, a NumPy array in the compiled kernel."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> int: ...
    def __setitem__(self, at: int, value: int, /) -> None: ...


class ReadOnlyBytes(Protocol):
    """Bytes, a memoryview or, in the compiled kernel, an array of uint8."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, at: int, /) -> int: ...
    @overload
    def __getitem__(self, at: slice, /) -> Any: ...


Bytes: TypeAlias = ReadOnlyBytes
MutableBytes: TypeAlias = Any
Int64s: TypeAlias = Ints
Int32s: TypeAlias = Ints
Int8s: TypeAlias = Ints

WORTH_LOADING = 8 << 20
"""Bytes of records from which loading Numba (about a second) costs less than the plain twins (about 50 ns a byte)."""
WORTH_MAPPING = 1 << 20
"""The same if machine code came with the package, where importing NumPy takes most of the time."""
WORTH_CALLING = 4096
"""Bytes of records from which loaded kernels are faster than their plain twins."""
WORTH_WALKING = 16
"""The same for kernels that only walk over records: they have no columns to convert."""

WORTH_INSTALLING = 256 << 20
"""Bytes of records from which a missing Numba is mentioned: the plain twins take as long as its installation."""

_CHOICE: Any = os.environ.encodekey("MAGICBYTE_KERNELS")
_PLAIN, _COMPILED = (os.environ.encodevalue(each) for each in ("plain", "compiled"))
_environment: Any = os.environ._data  # type: ignore[attr-defined]  # asking os.environ takes 0.7 us, a third of a small kernel
_lock = threading.RLock()
_all: list[Kernel] = []
_machine_bodies: dict[Callable[..., Any], Callable[[], Any]] = {}
_loaded = False
_warming = False


class Kernel:
    """A function and, from its first call on, its machine code. `py_func` is the plain twin."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        self.origin = py_func
        self.py_func: Any = _linked(py_func, {name: k.py_func for name, k in _kernels_named_by(py_func).items()})
        self.__doc__ = py_func.__doc__
        self.__name__ = py_func.__name__
        self._compiled: Any = None
        self._dispatcher: Any = None
        _all.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled kernel with integers and arrays of the annotated types."""
        return (self._compiled or self.compiled())(*arguments)

    def compiled(self) -> Any:
        """Return the machine form, which is loaded from the cache or compiled at the first use."""
        global _loaded
        with _lock:
            if self._compiled is None:
                self._compiled = _shipped(self) or _image(self, self.origin) or self.dispatcher()
                _loaded = True
        return self._compiled

    @property
    def is_loaded(self) -> bool:
        """Return whether the machine form has been loaded or requested."""
        return self._compiled is not None

    def dispatcher(self) -> Any:
        """Return Numba's dispatcher, for other kernels to call."""
        with _lock:
            if self._dispatcher is None:
                self._dispatcher = _compile(self.origin)
        return self._dispatcher


def kernel(py_func: Callable[..., Any]) -> Kernel:
    """Make a kernel of `py_func`: `numba.njit(cache=True, nogil=True)` with the signature of its annotations."""
    return Kernel(py_func)


def machine_body(primitive: Callable[..., Any]) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register the replacement of `primitive` in compiled kernels: a function that imports Numba and returns it."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        _machine_bodies[primitive] = cache(make)
        return make

    return register


def worth_compiling(size: int, least: int = WORTH_CALLING) -> bool:
    """Return whether `size` bytes of records should go through the compiled kernels. True from `least` on once they
    are loaded.

    The environment variable MAGICBYTE_KERNELS (`plain` or `compiled`) overrides it.
    """
    choice = _environment.get(_CHOICE)
    if choice in (_PLAIN, _COMPILED):
        return bool(choice == _COMPILED)
    if _warming or size < least:
        return False
    return _loaded or (size >= WORTH_MAPPING and _obtainable(size))


def expect(size: int) -> None:
    """Announce about `size` bytes of records that will come in pieces; if they are many, load the kernels."""
    global _loaded
    _loaded = _loaded or (size >= WORTH_MAPPING and _obtainable(size))


def available() -> bool:
    """Return whether there is machine code, or Numba to make it. Otherwise only the plain twins run."""
    return _has_shipped() or present("fast")


def _has_shipped() -> bool:
    """Return whether code of the package is used: never where indexes are to be checked, because it does not."""
    return not bounds_checked() and shipped.library() is not None


def _obtainable(size: int) -> bool:
    """Return whether machine code is worth loading for `size` bytes of records.

    For very many bytes a missing Numba is mentioned, unless code came with the package. The size of data never
    installs it.
    """
    # Three tiers, each used from the size on at which its start-up cost is paid back. The plain twins need nothing and
    # cost about 50 ns a byte. Machine code of the package costs the import of NumPy, from WORTH_MAPPING on. Without it,
    # Numba costs about a second (or the load of an image, where one was made before), from WORTH_LOADING on. So a `cat`
    # of one record starts in milliseconds, and a scan of gigabytes runs compiled, without a setting.
    if _has_shipped():
        return True
    if size >= WORTH_INSTALLING:
        advise("fast", f"{size >> 20:,} MiB of records")
    return size >= WORTH_LOADING and present("fast")


def kernels() -> tuple[Kernel, ...]:
    """Return every imported kernel."""
    return tuple(_all)


def is_warm() -> bool:
    """Return whether `warm` would compile nothing: every imported kernel has its image, or cannot have one."""
    if _has_shipped() or not present("fast"):
        return True
    paths = [_image_path(each.origin) for each in kernels()]
    return all(path is not None and path.exists() for path in paths)


def warm() -> int:
    """Compile every imported kernel, or load it from the cache; return their number.

    Other threads use the plain twins meanwhile, so that none waits for a kernel. Without Numba nothing is done.
    """
    global _warming
    if not available():
        return 0
    _warming = True
    try:
        for each in kernels():
            each.compiled()
    finally:
        _warming = False
    return len(kernels())


def _compile(py_func: Callable[..., Any], *, from_cache: bool = True) -> Any:
    """Compile `py_func` for its annotated signature. Kernels and primitives that it names become their machine form.

    `from_cache`: load it from Numba's cache, if it is there. No image can be made of a cached function.
    """
    import numba

    names = {name: each.dispatcher() for name, each in _kernels_named_by(py_func).items()}
    for name in py_func.__code__.co_names:
        value = py_func.__globals__.get(name)
        if isinstance(value, python_types.FunctionType) and value in _machine_bodies:
            body = _machine_bodies[value]()
            names[name] = body.dispatcher() if isinstance(body, Kernel) else body
    linked = _linked(py_func, names)
    with _cache_directory() as cached:
        return numba.njit(_signature(py_func), cache=cached and from_cache, nogil=True, error_model="numpy")(linked)


def _shipped(kernel: Kernel) -> image.Image | None:
    """Return a kernel's machine code that came with the package, or None."""
    origin = kernel.origin
    address = shipped.load(origin.__module__, origin.__name__) if _has_shipped() else None
    return image.Image(address, kernel.__name__, signature_of(origin)) if address else None


def signature_of(origin: Callable[..., Any]) -> image.Signature:
    """Return the parameters and results of a kernel by its annotations."""
    notes = {name: str(text) for name, text in origin.__annotations__.items()}
    return image.Signature(results=_RESULTS[notes.pop("return")], takes=tuple(map(_ARRAYS.get, notes.values())))


def compiled_by_numba(origin: Callable[..., Any]) -> tuple[Any, str]:
    """Recompile a kernel's function; return Numba's library and the name of the function in it."""
    (made,) = _compile(origin, from_cache=False).overloads.values()
    return made.library, str(made.fndesc.llvm_func_name)


def _image(kernel: Kernel, origin: Callable[..., Any]) -> image.Image | None:
    """Return a kernel's machine code from its image, which is made if missing; None where images cannot be made."""
    path = _image_path(origin)
    if path is None:
        return None
    folder, signature = path.parent, signature_of(origin)
    if (address := image.load(path)) is None:
        # Tested again under the lock: of several processes that start at once, for instance Spark's workers, one
        # compiles each kernel, and the others load its image. The first test, without the lock, keeps the usual start
        # free of it.
        with (folder / "images").open("w") as lock_file:
            _lock_file(lock_file.fileno())
            if (address := image.load(path)) is None:
                image.save(path, *compiled_by_numba(origin), signature)
                address = image.load(path)
    return image.Image(address, kernel.__name__, signature) if address else None


def _image_path(origin: Callable[..., Any]) -> Path | None:
    """Return the path of a kernel's image, or None where images cannot be used."""
    folder = cache_directory() if image.supported() and not bounds_checked() else None
    if folder is None:
        return None
    notes = {name: str(text) for name, text in origin.__annotations__.items()}
    code = image.machine(), origin.__code__.co_code, origin.__code__.co_consts, notes
    return folder / f"{origin.__module__}.{origin.__name__}.{zlib.crc32(repr(code).encode()):08x}.o"


_ARRAYS = {
    "Bytes": image.Array("u1", is_written=False),
    "MutableBytes": image.Array("u1", is_written=True),
    "Int64s": image.Array("i8", is_written=True),
    "Int32s": image.Array("i4", is_written=True),
    "Int8s": image.Array("i1", is_written=True),
}
_RESULTS = {"int": 1, "tuple[int, int]": 2, "None": 0}


def _kernels_named_by(py_func: Callable[..., Any]) -> dict[str, Kernel]:
    """Return the kernels that `py_func` calls, by their names in it."""
    named = {name: py_func.__globals__.get(name) for name in py_func.__code__.co_names}
    return {name: value for name, value in named.items() if isinstance(value, Kernel)}


def _linked(py_func: Callable[..., Any], names: dict[str, Any]) -> Any:
    """Return a copy of `py_func` with some of its global names replaced."""
    linked = python_types.FunctionType(py_func.__code__, py_func.__globals__ | names, py_func.__name__)
    linked.__module__, linked.__qualname__ = py_func.__module__, py_func.__qualname__
    linked.__annotations__, linked.__doc__ = py_func.__annotations__, py_func.__doc__
    return linked


def _signature(py_func: Callable[..., Any]) -> Any:
    from numba import types

    nb: Any = types

    read_only = nb.Array(nb.uint8, 1, "C", readonly=True)
    known = {"int": nb.int64, "bool": nb.boolean, "Bytes": read_only, "MutableBytes": nb.uint8[::1]}
    known |= {"Int64s": nb.int64[::1], "Int32s": nb.int32[::1], "Int8s": nb.int8[::1]}
    known |= {"tuple[int, int]": nb.UniTuple(nb.int64, 2), "None": nb.void}
    types_by_name = {name: known[str(text)] for name, text in py_func.__annotations__.items()}
    result = types_by_name.pop("return")
    return result(*types_by_name.values())


def bounds_checked() -> bool:
    """Return whether kernels are built with bounds checks (NUMBA_BOUNDSCHECK=1), for fuzzing."""
    return os.environ.get("NUMBA_BOUNDSCHECK") == "1"


@cache
def cache_directory() -> Path | None:
    """Return the folder of the compiled kernels, or None if no folder is writable.

    MAGICBYTE_CACHE_DIR, else the user's cache folder. Its name contains a digest of everything on which the machine
    code depends, because Numba itself checks only the file of a kernel, not the files of the kernels that it calls.
    """
    import hashlib  # imported here because small commands do not need it, and it takes 7 ms
    import tempfile

    package = Path(__file__).parent.parent
    machine = sys.version_info[:2], bounds_checked(), str(package), shipped.sources_digest()
    digest = hashlib.blake2b(repr(machine).encode(), digest_size=8)
    chosen = os.environ.get("MAGICBYTE_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magicbyte"
    folder = base / f"kernels-{digest.hexdigest()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


@contextlib.contextmanager
def _cache_directory() -> Iterator[bool]:
    """Point Numba's cache at our folder for one compilation, one process at a time; yield False without a folder."""
    from numba.core import config as numba_config

    folder = cache_directory()
    if folder is None:
        yield False
        return
    config: Any = numba_config  # its attributes are created at run time
    before = config.CACHE_DIR
    with (folder / "lock").open("w") as lock_file:
        _lock_file(lock_file.fileno())
        config.CACHE_DIR = str(folder)
        try:
            yield True
        finally:
            config.CACHE_DIR = before


def _lock_file(descriptor: int) -> None:
    """Wait until no other process compiles, so that each machine compiles a kernel once. Released with the file."""
    try:
        import fcntl
    except ImportError:  # no such lock on Windows: both processes compile, and the last one's cache stays
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
