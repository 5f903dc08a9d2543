"""Answer DescribeTransactions and ListTransactions."""

from __future__ import annotations

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages import describe_transactions, list_transactions
from magicbyte.engine.transactions.coordinator import Coordinator
from magicbyte.engine.transactions.records import TransactionState
from magicbyte.engine.transactions.rules import COMPLETION, STORED
from magicbyte.engine.transactions.transaction import by_topic

_BY_LABEL = {each.label: each for each in STORED}


def describe(coordinator: Coordinator, transactional_id: str) -> describe_transactions.TransactionState:
    """Describe an id; while markers are being sent, with the partitions that lack one."""
    code, transaction = coordinator.status(transactional_id), coordinator.transactions.get(transactional_id)
    if not code and (transaction is None or transaction.pending is TransactionState.DEAD):
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if code or transaction is None:
        return describe_transactions.TransactionState(error_code=code, transactional_id=transactional_id)
    value = transaction.value
    places = transaction.unmarked if transaction.state in COMPLETION else transaction.places
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.start_timestamp,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=[describe_transactions.TopicData(topic=topic, partitions=tuple(ids)) for topic, ids in by_topic(places)],
    )


def list_all(
    coordinator: Coordinator, request: list_transactions.ListTransactionsRequest, date_ms: int
) -> list_transactions.ListTransactionsResponse:
    """List all ids that match every filter of the request. An unknown state is no error: the response lists it."""
    if coordinator.closed:
        return list_transactions.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if coordinator.terms.are_loading:
        return list_transactions.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {_BY_LABEL[transaction] for transaction in request.state_filters if transaction in _BY_LABEL}
    ids, duration_ms = set(request.producer_id_filters), request.duration_filter
    return list_transactions.ListTransactionsResponse(
        unknown_state_filters=[transaction for transaction in request.state_filters if transaction not in _BY_LABEL],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.value.producer_id,
                transaction_state=transaction.state.label,
            )
            for transaction in coordinator.transactions.values()
            if transaction.pending is not TransactionState.DEAD
            and (not request.state_filters or transaction.state in states)
            and (not ids or transaction.value.producer_id in ids)
            and (duration_ms < 0 or date_ms - transaction.value.start_timestamp > duration_ms)
        ],
    )
