"""The inputs that fuzzing kept, again: through the twins, the compiled kernels and a bounds-checked build of them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import tries
from fuzz import agreement, mutations, seeds, targets
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.layout import Dialect

SEEDS = {
    **{name: (log, Dialect.KAFKA) for name, log in seeds.golden_logs().items()},
    **{name: (log, Dialect.ENRICHED) for name, log in seeds.enriched_logs().items()},
}


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("target", targets.TARGETS)
def test_nothing_that_fuzzing_kept_breaks_a_promise(target: str, form: str) -> None:
    found = 0
    with agreement.kernels(form):
        for _, content in agreement.corpus(target):
            targets.TARGETS[target](content)
            found += 1
    assert found > 10


def test_the_forms_of_the_kernels_agree_on_the_corpus() -> None:
    for _, content in agreement.corpus(*agreement.LOGS):
        options, dialect = targets.options_of(content[0] if content else 0)
        agreement.assert_agreement(content[1:], options, dialect)


@pytest.mark.slow
def test_kernels_that_check_every_index_agree_as_well() -> None:
    with agreement.kernels("plain"):
        expected = [agreement.digest(content) for _, content in agreement.corpus(*agreement.LOGS)]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "MAGICBYTE_KERNELS": "compiled"}
    program = Path(agreement.__file__)
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == expected


@tries(400)
@given(name=st.sampled_from(sorted(SEEDS)), seed=st.integers(0, 1 << 32), flags=st.integers(0, 31))
@example(name="magic0-00-small", seed=0, flags=0)
def test_the_forms_of_the_kernels_agree_on_changed_golden_batches(name: str, seed: int, flags: int) -> None:
    log, dialect = SEEDS[name]
    changed = mutations.change_entries(log, random.Random(seed))
    options, _ = targets.options_of(flags)
    agreement.assert_agreement(changed, options, dialect)


def test_both_forms_convert_alike() -> None:
    for _, content in agreement.corpus("convert"):
        seen = []
        for form in ("plain", "compiled"):
            with agreement.kernels(form):
                output, error = targets.converted(content)
            seen.append((output if error is None else b"", agreement.told(error)))
        assert seen[0] == seen[1]


@tries(150)
@given(seed=st.integers(0, 1 << 32), flags=st.integers(0, 15))
def test_many_batches_with_damage_between_are_read_alike(seed: int, flags: int) -> None:
    rnd = random.Random(seed)
    plain = [entry for name in ("magic2-00-row", "magic2-10-row") for entry in mutations.split(SEEDS[name][0])[0]]
    other = [entry for name in SEEDS if name.endswith("small") for entry in mutations.split(SEEDS[name][0])[0]]
    entries = [rnd.choice(plain if rnd.random() < 0.95 else other) for _ in range(rnd.randrange(8, 60))]
    for at in rnd.sample(range(len(entries)), rnd.randrange(4)):
        entries[at] = mutations.change_entry(entries[at], rnd)
    options, _ = targets.options_of(flags & ~1)
    seen = []
    for form in ("plain", "compiled"):
        with agreement.kernels(form):
            found, damage = targets.read_log(b"".join(entries), options)
            seen.append((found, [agreement.told(error) for error in damage]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_sound_logs_decode_alike_with_and_without_verification(name: str) -> None:
    log, dialect = SEEDS[name]
    verified, _, _ = agreement.outcome(log, DecodeOptions(), dialect)
    assert agreement.outcome(log, DecodeOptions(verify=False), dialect) == (verified, "None", None)
