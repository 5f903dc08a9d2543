#!/bin/sh
# Builds the wheel, installs it as a user would, alone and with Spark, and runs it from there: tools/check_wheel.sh
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

.venv/bin/python -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip wheel --no-deps --wheel-dir "$folder" .
pip install "$(echo "$folder"/magicbyte-*.whl)"
cd "$folder" # away from the sources
venv/bin/python -c 'from magicbyte.extras import EXTRAS, present; assert not any(map(present, EXTRAS))'
venv/bin/magicbyte tour --unpack tour
venv/bin/magicbyte inventory tour/logs >/dev/null
venv/bin/magicbyte verify tour/logs/kafka-4.3.1 --deep >/dev/null
venv/bin/magicbyte convert tour/logs/kafka-0.8.2.2/basic-none-0 --to v2 --out newer --verify >/dev/null
if venv/bin/magicbyte cat tour/logs/kafka-4.3.1/basic-zstd-0 --format parquet -o records 2>said; then exit 1; fi
grep -qF "pip install 'magicbyte[arrow]'" said
pip install "$(echo "$folder"/magicbyte-*.whl)[spark]"
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
