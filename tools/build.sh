#!/bin/sh
# Builds the wheel and the source archive into a folder: tools/build.sh FOLDER
# From what is committed, in a folder of its own; with the kernels' machine code (tools/images.py), which needs ld.lld, and man pages.
# COMMIT is what is built, HEAD by default.
# PROJECT_URL, if it is set, is the address that the package's metadata name (tools/prepare_release.py).
# The same commit gives the same bytes: times come from the commit, versions of what builds from requirements/.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
target=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python=$PWD/.venv/bin/python
commit=${COMMIT:-HEAD}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH
mkdir "$folder/tree"
git archive "$commit" | tar -x -C "$folder/tree"
"$python" -I -m pip --disable-pip-version-check --quiet install --target "$folder/hatchling" \
    --require-hashes --only-binary=:all: -r requirements/release.txt
cd "$folder/tree"
"$python" -P tools/images.py src/magicbyte/engine/compiled/images
"$python" -P tools/man_pages.py man
"$python" -P tools/prepare_release.py .
chmod -R u=rwX,go=rX .
PYTHONPATH=$folder/hatchling "$python" -P -m hatchling build -d "$target"
