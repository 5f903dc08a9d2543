"""Split large requests to the group coordinator into pieces, with turns for others in between.

Repeated names are handled once if the answer is the same. A commit of thousands of offsets becomes several sets, each
within the limit of a set, as if its sender had sent several commits; codes are per partition anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

PIECE: Final = 200  # elements

T = TypeVar("T")
Looked = TypeVar("Looked", OffsetFetchRequestTopic, OffsetFetchRequestTopics)
Changed = TypeVar("Changed", OffsetCommitRequestTopic, OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic)


class _Topic(Protocol):
    """A topic in a response, with its partitions' results."""

    name: str
    partitions: list[Any]


Told = TypeVar("Told", bound=_Topic)


class _Form(NamedTuple):
    """How to split a request, and to merge the responses to its pieces, at least one, into the first."""

    cut: Callable[[Any], Iterator[Message]]
    join: Callable[[Sequence[Any]], Message]


def pieces(message: Message) -> Iterator[Message]:
    """Yield the pieces of a request in order; a small or indivisible one is one piece."""
    form = _FORMS.get(type(message))
    return iter((message,)) if form is None else form.cut(message)


def joined(request: type[Message], answers: Sequence[Any]) -> Message:
    """Merge the responses to the pieces of a request."""
    return _FORMS[request].join(answers)


# ---- requests


def _parts(items: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(items) or 1, PIECE):
        yield list(items[at : at + PIECE])


def _looked_up(topic: Looked) -> Iterator[tuple[Looked, int]]:
    """Yield a topic with few of its partitions each, and their number."""
    for part in _parts(topic.partition_indexes):
        yield replace(topic, partition_indexes=tuple(part)), len(part)


def _changed(topic: Changed) -> Iterator[tuple[Changed, int]]:
    for part in _parts(topic.partitions):
        yield replace(topic, partitions=part), len(part)


def _in_parts(topics: Iterable[T], cut: Callable[[T], Iterator[tuple[T, int]]]) -> Iterator[list[T]]:
    """Yield topics with all their partitions in lists of about `PIECE` of these; at least one list."""
    piece, count, is_first = list[T](), 0, True
    for topic in topics:
        for part, size in cut(topic):
            piece.append(part)
            count += size + 1
            if count >= PIECE:
                yield piece
                piece, count, is_first = [], 0, False
    if piece or is_first:
        yield piece


def _cut_fetch(message: OffsetFetchRequest) -> Iterator[OffsetFetchRequest]:
    if message.groups:
        yield from _cut_groups(message)
    elif message.topics is None:  # all offsets of the group
        yield message
    else:
        for topics in _in_parts(message.topics, _looked_up):
            yield replace(message, topics=topics)


def _cut_groups(message: OffsetFetchRequest) -> Iterator[OffsetFetchRequest]:
    few, count = list[OffsetFetchRequestGroup](), 0
    for group in {each.group_id: each for each in message.groups}.values():
        for topics in (None,) if group.topics is None else _in_parts(group.topics, _looked_up):
            few.append(replace(group, topics=topics))
            count += 1 + sum(1 + len(each.partition_indexes) for each in topics or ())
            if count >= PIECE:
                yield replace(message, groups=few)
                few, count = [], 0
    if few:
        yield replace(message, groups=few)


def _cut_commit(message: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    return (replace(message, topics=topics) for topics in _in_parts(message.topics, _changed))


def _cut_transactional(message: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitRequest]:
    return (replace(message, topics=topics) for topics in _in_parts(message.topics, _changed))


def _cut_offset_delete(message: OffsetDeleteRequest) -> Iterator[OffsetDeleteRequest]:
    return (replace(message, topics=topics) for topics in _in_parts(message.topics, _changed))


def _cut_describe(message: DescribeGroupsRequest) -> Iterator[DescribeGroupsRequest]:
    return (replace(message, groups=names) for names in _parts(list(dict.fromkeys(message.groups))))


def _cut_delete(message: DeleteGroupsRequest) -> Iterator[DeleteGroupsRequest]:
    return (replace(message, groups_names=names) for names in _parts(list(dict.fromkeys(message.groups_names))))


def _cut_leave(message: LeaveGroupRequest) -> Iterator[LeaveGroupRequest]:
    return (replace(message, members=members) for members in _parts(message.members))


# ---- answers


def _merged(topics: Iterable[Told]) -> list[Told]:
    """Return topics, merging adjacent ones of the same name."""
    merged = list[Told]()
    for each in topics:
        if merged and merged[-1].name == each.name:
            merged[-1].partitions.extend(each.partitions)
        else:
            merged.append(each)
    return merged


def _first_code(codes: Iterable[int]) -> int:
    return next((code for code in codes if code), 0)


def _join_fetch(answers: Sequence[OffsetFetchResponse]) -> OffsetFetchResponse:
    whole, groups = answers[0], dict[str, OffsetFetchResponseGroup]()
    whole.error_code = _first_code(each.error_code for each in answers)
    whole.topics = _merged(topic for each in answers for topic in each.topics)
    for group in (group for each in answers for group in each.groups):
        known = groups.setdefault(group.group_id, group)
        if known is not group:
            known.topics.extend(group.topics)
            known.error_code = known.error_code or group.error_code
    for group in groups.values():
        group.topics = _merged(group.topics)
    whole.groups = list(groups.values())
    return whole


def _join_commit(answers: Sequence[OffsetCommitResponse]) -> OffsetCommitResponse:
    whole = answers[0]
    whole.topics = _merged(topic for each in answers for topic in each.topics)
    return whole


def _join_transactional(answers: Sequence[TxnOffsetCommitResponse]) -> TxnOffsetCommitResponse:
    whole = answers[0]
    whole.topics = _merged(topic for each in answers for topic in each.topics)
    return whole


def _join_offset_delete(answers: Sequence[OffsetDeleteResponse]) -> OffsetDeleteResponse:
    whole = answers[0]
    whole.error_code = _first_code(each.error_code for each in answers)
    whole.topics = _merged(topic for each in answers for topic in each.topics)
    return whole


def _join_describe(answers: Sequence[DescribeGroupsResponse]) -> DescribeGroupsResponse:
    return replace(answers[0], groups=[group for each in answers for group in each.groups])


def _join_delete(answers: Sequence[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return replace(answers[0], results=[result for each in answers for result in each.results])


def _join_leave(answers: Sequence[LeaveGroupResponse]) -> LeaveGroupResponse:
    code = _first_code(each.error_code for each in answers)
    return replace(answers[0], error_code=code, members=[member for each in answers for member in each.members])


_FORMS: Final[Mapping[type[Message], _Form]] = {
    OffsetFetchRequest: _Form(_cut_fetch, _join_fetch),
    OffsetCommitRequest: _Form(_cut_commit, _join_commit),
    TxnOffsetCommitRequest: _Form(_cut_transactional, _join_transactional),
    OffsetDeleteRequest: _Form(_cut_offset_delete, _join_offset_delete),
    DescribeGroupsRequest: _Form(_cut_describe, _join_describe),
    DeleteGroupsRequest: _Form(_cut_delete, _join_delete),
    LeaveGroupRequest: _Form(_cut_leave, _join_leave),
}
