"""Writes tests/golden/protocol/messages.jsonl.gz: messages of every version, as Kafka's own classes write them.

Run: python tools/freeze_messages.py; needs Java and Maven. tests/golden/README.md says what is in the file.
"""

import gzip
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from engine.protocol.schemas import all_schemas, versions  # noqa: E402
from engine.protocol.values import examples  # noqa: E402
from interop.kafka_messages import NEW, OLD, Json, ask, java_version  # noqa: E402  (the tests' modules)

TARGET = ROOT / "tests/golden/protocol/messages.jsonl.gz"


def main() -> None:
    """Ask the older release for all versions that it has, the newer one for the rest."""
    frozen: dict[tuple[str, int], list[Json]] = {}
    for kafka in (OLD, NEW):
        messages, questions = [], []
        for name, version in versions():
            java = java_version(name, version, kafka)
            if java is None or (name, version) in frozen:
                continue
            for values in examples(all_schemas()[name], version):
                messages.append({"message": name, "version": version, "kafka": kafka, "values": values})
                questions.append({"op": "encode", "message": name, "version": java, "values": values})
        for message, answer in zip(messages, ask(questions, kafka), strict=True):
            frozen.setdefault((message["message"], message["version"]), []).append(message | {"bytes": answer["bytes"]})
    lines = [json.dumps(message, separators=(",", ":")) + "\n" for key in sorted(frozen) for message in frozen[key]]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
