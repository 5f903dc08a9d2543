#!/bin/sh
# Builds the documentation site in build/site/VERSION: tools/site.sh. Its generator has an environment of its own, build/site-venv.
# To look at it: python3 -m http.server -d build/site
set -eu
cd "$(dirname "$0")/.."
# The copy of the lock comes last: an environment without it is half made, or of an older lock, and is made anew.
venv=build/site-venv
if ! cmp -s requirements/docs.txt $venv/lock.txt; then
    rm -rf $venv
    python3 -m venv $venv
    $venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
    cp requirements/docs.txt $venv/lock.txt
fi
NO_MKDOCS_2_WARNING=1 exec $venv/bin/python tools/make_site.py
