#!/bin/sh
# Makes requirements/*.txt anew from pyproject.toml: tools/lock.sh [--upgrade]. Needs uv.
# One lock for Python 3.11 to 3.14 on Linux, macOS and Windows: versions and hashes, no addresses.
set -eu
cd "$(dirname "$0")/.."

lock() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --no-header "$@"
}
fits() { # PYTHON PLATFORM: every package of the locks has a wheel there
    uv pip compile --quiet --no-deps --only-binary :all: --no-binary pyspark \
        --python-version "$1" --python-platform "$2" -o /dev/null requirements/dev.txt >/dev/null
}

# The last numba with wheels for Macs with Intel processors (there: Python 3.11 to 3.13).
intel_mac=$(mktemp)
intel_mac_dev=$(mktemp)
trap 'rm -f "$intel_mac" "$intel_mac_dev"' EXIT
cat >"$intel_mac" <<'END'
numba==0.62.1; sys_platform == "darwin" and platform_machine == "x86_64"
numba>0.62.1; sys_platform != "darwin" or platform_machine != "x86_64"
END
# The same of cryptography, which moto needs.
cat >"$intel_mac_dev" <<'END'
cryptography==48.0.0; sys_platform == "darwin" and platform_machine == "x86_64"
cryptography>48.0.0; sys_platform != "darwin" or platform_machine != "x86_64"
END

printf 'pip\nsetuptools\n' | lock "$@" -o requirements/build.txt -
printf 'hatchling\n' | lock "$@" -o requirements/release.txt - # what tools/build.sh builds with
# The documentation site: tools/site.sh.
printf 'mkdocs>=1.6,<2\nmkdocs-material>=9.6\nmkdocstrings[python]>=1.0\n' | lock "$@" -o requirements/docs.txt -
# From the largest to the smallest: each is held to the versions of the one before it.
lock "$@" --extra dev -o requirements/dev.txt pyproject.toml "$intel_mac" "$intel_mac_dev"
smaller() { # NAME LARGER EXTRAS…: a lock that is part of another
    lock --no-emit-package magicbyte -c "requirements/$2.txt" -o "requirements/$1.txt" $3 pyproject.toml
}
smaller spark dev "--extra cluster --extra fast --extra arrow --extra s3 --extra security --extra capture --extra spark"
smaller run spark "--extra cluster --extra fast --extra arrow --extra s3 --extra security --extra capture"
smaller light run "--extra cluster"

for python in 3.11 3.12 3.13 3.14; do
    for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-pc-windows-msvc; do
        fits $python $platform
    done
    [ $python = 3.14 ] || fits $python x86_64-apple-darwin
done
