"""A checker of histories: it judges what clients saw of a Kafka cluster, whatever clients and cluster they were.

After the list of Jepsen's Kafka workload. `Recorder` notes operations, `check` judges them: see docs/testing.md.
"""

from magicbyte.testing.checker.history import (
    HistoryFile,
    Kind,
    Operation,
    Outcome,
    Polled,
    Rules,
    Sent,
    Value,
    write_history,
)
from magicbyte.testing.checker.judge import check
from magicbyte.testing.checker.recorder import Pending, Recorder
from magicbyte.testing.checker.report import Anomaly, AnomalyKind, Report

__all__ = [
    "Anomaly",
    "AnomalyKind",
    "HistoryFile",
    "Kind",
    "Operation",
    "Outcome",
    "Pending",
    "Polled",
    "Recorder",
    "Report",
    "Rules",
    "Sent",
    "Value",
    "check",
    "write_history",
]
