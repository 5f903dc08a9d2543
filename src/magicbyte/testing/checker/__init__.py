"""A checker of histories: judges what clients saw of a Kafka cluster, with any clients and any cluster.

The list of anomalies is that of Jepsen's Kafka workload. `Recorder` records operations, `check` judges them: see
docs/python/testing.md.
"""

from magicbyte.testing.checker.history import (
    ClientOperation,
    HistoryFile,
    HistoryRules,
    Kind,
    OperationOutcome,
    Polled,
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
    "ClientOperation",
    "HistoryFile",
    "HistoryRules",
    "Kind",
    "OperationOutcome",
    "Pending",
    "Polled",
    "Recorder",
    "Report",
    "Sent",
    "Value",
    "check",
    "write_history",
]
