#!/bin/sh
# Builds the wheel of what is committed, installs it as a user would, alone and with each extra, and runs it from there:
# tools/check_wheel.sh. Needs ld.lld, as tools/build.sh does, and npx for pyright.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

root=$PWD
tools/build.sh "$folder"
.venv/bin/python -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip install "$(echo "$folder"/magicbyte-*.whl)"
cd "$folder" # away from the sources
venv/bin/python -c 'from magicbyte.engine.extras import EXTRAS, present; assert not any(map(present, EXTRAS))'
# The machine code that came along: all kernels, without Numba, and the same records as of the plain twins.
venv/bin/magicbyte warm | grep -q "kernels are ready in .*magicbyte/engine/compiled/images"
outcomes() { MAGICBYTE_KERNELS=$1 venv/bin/python "$root/tests/engine/wire/golden_outcomes.py" >"$1.json"; }
outcomes compiled
outcomes plain
venv/bin/python - <<'END'
import json

compiled, plain = (json.load(open(f"{name}.json")) for name in ("compiled", "plain"))
assert compiled["outcomes"] == plain["outcomes"]
assert "magicbyte/engine/compiled/images" in compiled["library"] and compiled["kernels"] and not plain["kernels"]
END
grep -q "on.-damage" venv/share/man/man1/magicbyte-cat.1 # where man looks for what a command in venv/bin is
venv/bin/magicbyte tour --unpack tour
venv/bin/magicbyte inventory tour/logs >/dev/null
venv/bin/magicbyte verify tour/logs/kafka-4.3.1 --deep >/dev/null
venv/bin/magicbyte convert tour/logs/kafka-0.8.2.2/basic-none-0 --to v2 --out newer --verify >/dev/null
if venv/bin/magicbyte cat tour/logs/kafka-4.3.1/basic-zstd-0 --format parquet -o records 2>said; then exit 1; fi
grep -qF "pip install 'magicbyte[arrow]'" said
# A user's program: both type checkers agree with it, and it runs with the base alone and with each extra on top.
cp "$root/examples/keep_old_logs.py" .
printf '[mypy]\nstrict = True\npython_executable = venv/bin/python\n' >mypy.ini
"$root/.venv/bin/python" -m mypy --config-file mypy.ini keep_old_logs.py
echo '{"include": ["keep_old_logs.py"]}' >pyrightconfig.json
npx --yes pyright@1.1.407 --pythonpath venv/bin/python
runs() { venv/bin/python keep_old_logs.py tour/logs/kafka-0.10.2.2 "new-$1" >"$1.out" && tail -1 "$1.out" | grep -qF "['crash-flip']"; }
runs base
for extra in capture cluster security s3 arrow fast spark; do
    pip install "$(echo "$folder"/magicbyte-*.whl)[$extra]"
    runs "$extra"
done
grep -qF "[('crash-flip', 59)] None" base.out # without Arrow
grep -qF "[('crash-flip', 59)] 59" arrow.out
venv/bin/magicbyte --help >/dev/null
venv/bin/magicbyte schema diff FetchRequest FetchRequest >/dev/null # the schemas came along
venv/bin/python - <<'END'
from importlib.metadata import distribution
from importlib.resources import files

import magicbyte

assert all(hasattr(magicbyte, name) for name in magicbyte.__all__)
assert files("magicbyte").joinpath("py.typed").is_file()
assert any(path.name == "LICENSE" for path in distribution("magicbyte").files)
assert [each.value for each in distribution("magicbyte").entry_points if each.group == "pytest11"] == [
    "magicbyte.testing.plugin"
]
END
echo "the wheel installs and runs"
