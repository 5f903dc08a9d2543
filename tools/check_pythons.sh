#!/bin/sh
# Tries the base install with other versions of Python: tools/check_pythons.sh PYTHON...
# For each: the locked packages in an environment of its own, then commands, the tour, a user's program, a broker and a secured one, from
# src/. Python checks certificates strictly from 3.13 on.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for python in "$@"; do
    here=$folder/$("$python" -c 'import platform; print(platform.python_version())')
    "$python" -m venv "$here/venv"
    "$here/venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-compile \
        --require-hashes --only-binary=:all: -r requirements/light.txt
    cd "$here"
    magicbyte() { PYTHONPATH=$root/src venv/bin/python -W error::DeprecationWarning -m magicbyte "$@"; }
    magicbyte tour --unpack tour
    magicbyte tour >/dev/null
    magicbyte verify tour/logs/kafka-4.3.1 --deep >/dev/null
    magicbyte convert tour/logs/kafka-0.8.2.2/basic-none-0 --to v2 --codec zstd --out newer --verify >/dev/null
    magicbyte diff tour/logs/kafka-0.8.2.2/basic-none-0 newer --ignore timestamps >/dev/null
    PYTHONPATH=$root/src venv/bin/python "$root/examples/keep_old_logs.py" tour/logs/kafka-0.10.2.2 kept >/dev/null 2>&1
    PYTHONPATH=$root/src venv/bin/python - <<'END'
import asyncio

import magicbyte
from magicbyte.access.client import admin


async def produce(address: str) -> None:
    async with magicbyte.Client(address) as client:
        await admin.create_topic(client, admin.NewTopic("orders"))
        async with client.producer() as producer:
            await producer.send("orders", b"value")


with magicbyte.testing.Broker() as broker:
    asyncio.run(produce(broker.bootstrap_servers))
    (record,) = magicbyte.records(f"kafka://{broker.bootstrap_servers}/orders")
    assert record.value == b"value"
END
    # The blocks of the lock that the secured broker needs, with their hashes.
    awk '/^[a-z]/ { wanted = /^(cryptography|cffi|pycparser)==/ } wanted' "$root/requirements/dev.txt" >security.txt
    venv/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
        --require-hashes --only-binary=:all: -r security.txt
    PYTHONPATH=$root/src venv/bin/python - <<'END'
import asyncio
import ssl

from magicbyte.testing import Broker


async def connect() -> None:
    async with Broker(security="SSL") as broker:
        host, port = broker.bootstrap_servers.split(":")
        context = ssl.create_default_context(cafile=broker.security.authority)
        _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
        writer.close()


asyncio.run(connect())
END
    cd "$root"
    echo "Python ${here##*/}: the base installs and runs"
done
