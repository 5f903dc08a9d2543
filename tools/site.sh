#!/bin/sh
# Builds the documentation site in build/site/VERSION: tools/site.sh. Its generator has an environment of its own, build/site-venv.
# To look at it: python3 -m http.server -d build/site
set -eu
cd "$(dirname "$0")/.."
[ -x build/site-venv/bin/python ] || python3 -m venv build/site-venv
build/site-venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
NO_MKDOCS_2_WARNING=1 exec build/site-venv/bin/python tools/make_site.py
