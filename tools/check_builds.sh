#!/bin/sh
# Builds the wheel and the source archive twice and compares them byte for byte: tools/check_builds.sh [FOLDER]
# With FOLDER, the first build is kept there.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
first=${1-$folder/first}
COMMIT=$(git rev-parse HEAD)
export COMMIT # of both builds, whatever is committed meanwhile
tools/build.sh "$first"
tools/build.sh "$folder/second"
for built in "$folder"/second/*; do
    cmp "$built" "$first/${built##*/}"
done
echo "two builds are equal"
