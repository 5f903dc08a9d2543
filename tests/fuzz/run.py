"""Fuzzes one target, guided by coverage: run.py TARGET SECONDS [FOLDER]; needs atheris.

What is found is kept in FOLDER/findings, one input for each place that fails; figures go to FOLDER/TARGET.json.
0 seconds: the corpus is cut down to FOLDER/minimal. See docs/internals/fuzzing.md.
"""

from __future__ import annotations

import collections
import json
import logging
import os
import random
import sys
import time
import traceback
from pathlib import Path

os.environ["MAGICBYTE_KERNELS"] = "plain"
HERE = Path(__file__).resolve().parent
sys.path = [str(HERE.parent), *(path for path in sys.path if Path(path).resolve() != HERE)]

import atheris  # noqa: E402  (its import hook comes before what it instruments)

GUIDED = {"login": ("magicbyte.server.serving.entrance", "magicbyte.access.net.server", "magicbyte.access.security")}
"""Modules whose coverage guides a target, by the beginning of their names; all for other targets.

Counting branches takes half the time of a login, and other targets cover what reads messages.
"""


def unguided(target: str) -> list[str]:
    """Return the modules that are not instrumented for a target."""
    source, guided = HERE.parents[1] / "src", GUIDED.get(target, ("magicbyte",))
    names = [".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.py")]
    return [each for each in (name.removesuffix(".__init__") for name in names) if not each.startswith(guided)]


with atheris.instrument_imports(include=["magicbyte"], exclude=unguided(sys.argv[1])):
    from fuzz import logins, targets

    if sys.argv[1:2] == ["protocol"]:
        targets.codecs()  # which imports all messages
    if sys.argv[1:2] == ["login"]:
        logging.disable()
        for _, content in logins.login_inputs():  # what is imported at first use
            logins.fuzz_login(content)
from fuzz import mutations, seeds  # noqa: E402

STRUCTURED = {"decode", "scan", "views", "anatomy", "reader", "convert", "partition"}
LONGEST = 8192


def main() -> None:
    name, seconds = sys.argv[1], int(sys.argv[2])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else "fuzz-out").resolve()
    corpus, findings = folder / "corpus" / name, folder / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    for seed, content in seeds.inputs(name):
        (corpus / f"seed-{seed}").write_bytes(content[:LONGEST])
    target = targets.TARGETS[name]
    logging.disable()  # lines about what is refused would take most of the time
    flags = 2 if name in ("convert", "partition", "protocol") else 1  # bytes before the log that choose options
    failures: collections.Counter[str] = collections.Counter()
    executions, slowest = 0, 0.0
    began = time.monotonic()

    def report() -> None:
        figures = {
            "target": name,
            "executions": executions,
            "seconds": round(time.monotonic() - began),
            "corpus": len(list(corpus.iterdir())),
            "slowest_seconds": round(slowest, 3),
            "failures": dict(failures),
        }
        (folder / f"{name}-{int(time.time())}-{os.getpid()}.json").write_text(json.dumps(figures))

    def once(data: bytes) -> None:
        nonlocal executions, slowest
        executions += 1
        before = time.process_time()
        try:
            target(data)
        except Exception as error:  # noqa: BLE001  (that there is none is what we prove)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{name}-{type(error).__name__}-{Path(where.filename).stem}-{where.lineno}"
            failures[place] += 1
            if failures[place] == 1:
                (findings / place).write_bytes(data)
                (findings / f"{place}.txt").write_text(traceback.format_exc())
        taken = time.process_time() - before
        if taken > max(slowest, 1.0):
            (findings / f"{name}-slow").write_bytes(data)
        slowest = max(slowest, taken)
        if 0 < seconds < time.monotonic() - began:
            report()
            os._exit(0)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rnd = random.Random(seed)
        choice = rnd.random()
        if choice < 0.75 and len(data) > 20:
            changed = data[:flags] + mutations.change_entries(data[flags:], rnd)
            return changed[:max_size] if len(changed) > max_size else changed
        if choice < 0.78 and data:
            return rnd.randbytes(flags) + data[flags:]
        return bytes(atheris.Mutate(data, max_size))

    again = f"{sys.executable} {__file__} {name} {seconds} {folder}"  # how merging starts itself again
    options = [
        again,
        *sys.argv[4:],
        f"-max_len={LONGEST}",
        "-timeout=20",
        "-rss_limit_mb=2000",
        f"-artifact_prefix={findings}/",
    ]
    if seconds:
        options += [str(corpus), "-len_control=0", "-reload=0", "-print_final_stats=1"]
    elif not sys.argv[4:]:  # keep the smallest inputs that together cover the same
        minimal = folder / "minimal" / name
        minimal.mkdir(parents=True, exist_ok=True)
        options += ["-merge=1", str(minimal), str(corpus)]
    if name in STRUCTURED:
        atheris.Setup(options, once, custom_mutator=mutate)
    else:
        atheris.Setup(options, once)
    atheris.Fuzz()


main()
