"""Make the machine code of all kernels for the processors that a wheel has it for: `python tools/images.py FOLDER`.

Numba's front end makes LLVM's language of each kernel, LLVM makes machine code of that for each level of processor
(`shipped.LEVELS`), whatever this machine is, and LLD links a shared object of it. Needs `ld.lld`
(on Debian or Ubuntu: sudo apt install lld). Takes a minute for each level. The same sources and the same versions of
Numba and LLVM give the same bytes.

A process makes one level: `python tools/images.py FOLDER LEVEL`.
"""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("magicbyte.engine.codecs", "magicbyte.engine.records", "magicbyte.engine.log")
LINK = ("-shared", "-s", "--gc-sections", "--build-id=none", "-z", "relro", "-z", "now", "-z", "noexecstack")
SPEED = 3


def main(folder: Path, names: list[str]) -> None:
    """Make the levels of these names, or all of them."""
    from magicbyte.engine.compiled import shipped

    if shutil.which("ld.lld") is None:
        raise SystemExit("tools/images.py: needs ld.lld; on Debian or Ubuntu: sudo apt install lld")
    folder.mkdir(parents=True, exist_ok=True)
    levels = [level for level in shipped.LEVELS if level.name in names or not names]
    if len(levels) == 1:
        make(folder, levels[0])
        return
    # What a kernel is made of is kept for the whole process, for one level.
    environment = os.environ | {"NUMBA_OPT": "0", "PYTHONHASHSEED": "0"}
    running = [
        subprocess.Popen([sys.executable, "-P", __file__, folder, level.name], env=environment) for level in levels
    ]
    failed = [level.name for level, each in zip(levels, running, strict=True) if each.wait()]
    if failed:
        raise SystemExit(f"tools/images.py: no code for {', '.join(failed)}")


def make(folder: Path, level: Any) -> None:
    """Write a level's shared object into `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        # Kernels that others call are taken from Numba's cache: that of this machine has them for its own processor.
        os.environ["MAGICBYTE_CACHE_DIR"] = scratch
        _make(folder, level, Path(scratch))


def _make(folder: Path, level: Any, scratch: Path) -> None:
    os.environ["NUMBA_OPT"] = "0"  # Numba then leaves to LLVM, and the level, what depends on the processor
    warnings.simplefilter("ignore")  # of Numba's cache
    from llvmlite import binding as llvm

    from magicbyte.engine.compiled import kernel, shipped

    shipped.made_for = level
    for room in ROOMS:
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            if module.name.endswith("kernels") or ".kernels." in module.name:
                importlib.import_module(module.name)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{level.machine}-unknown-linux-gnu").create_target_machine(
        cpu=level.cpu, features=level.features, opt=SPEED, reloc="pic", codemodel="default"
    )
    objects = []
    for number, each in enumerate(kernel.kernels()):
        path = scratch / f"{number}.o"
        path.write_bytes(code_of(each, level, target))
        objects.append(path)
    made = scratch / "made.so"
    subprocess.run(["ld.lld", *LINK, "-o", made, *objects], check=True)
    (folder / shipped.file_name(level)).write_bytes(shipped.with_checksum(made.read_bytes()))


def code_of(each: Any, level: Any, target: Any) -> bytes:
    """Return the object file of one kernel. It stands alone, or the build fails: a wheel has all or none."""
    from llvmlite import binding as llvm

    from magicbyte.engine.compiled import image, kernel, shipped

    origin = each.origin
    name = shipped.symbol(origin.__module__, origin.__name__)
    library, function = kernel.compiled_by_numba(origin)
    module = image.module_of(name, library, function, kernel.signature_of(origin))
    if module is None:
        raise SystemExit(f"tools/images.py: {name}: Numba passes its arguments differently from its annotations")
    module.triple, module.data_layout = f"{level.machine}-unknown-linux-gnu", str(target.target_data)
    tuning = llvm.create_pipeline_tuning_options(SPEED)
    tuning.loop_vectorization, tuning.slp_vectorization = True, False  # as Numba has it
    builder = llvm.create_pass_builder(target, tuning)
    builder.getModulePassManager().run(module, builder)
    image.strip(module, llvm.create_new_module_pass_manager(), target)
    # An address of this process, made into a number, would be another place in every other one.
    if not image.stands_alone(module) or re.search(r"inttoptr \(i64 \d", str(module)):
        raise SystemExit(f"tools/images.py: {name}: its code needs more than the C library's copying of memory")
    return bytes(target.emit_object(module))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main(Path(sys.argv[1]), sys.argv[2:])
