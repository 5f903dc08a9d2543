#!/bin/sh
# Finds a Python that can make .venv and hands over to set_up.py: sh tools/set_up.sh light|run|spark|dev
# Each candidate is tried, not only looked up: a version manager's shim may be there and still not run.
without_venv=
for name in python3 python3.14 python3.13 python3.12 python3.11; do
    command -v "$name" >/dev/null 2>&1 || continue
    "$name" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 || continue
    if "$name" -I -c 'import ensurepip, venv' >/dev/null 2>&1; then
        exec "$name" -I "${0%/*}/set_up.py" "$1"
    fi
    without_venv=${without_venv:-$name}
done
if [ -n "$without_venv" ]; then
    echo "magicbyte: $without_venv cannot make virtual environments; on Debian or Ubuntu: sudo apt install $without_venv-venv" >&2
else
    echo "magicbyte: needs Python 3.11 to 3.14; on Debian or Ubuntu: sudo apt install python3 python3-venv" >&2
fi
exit 1
