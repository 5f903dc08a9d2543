"""Requests to the group coordinator that name much, in pieces: it answers each at once, and in between others.

What is named twice is asked once where the answer is the same. A commit of thousands of offsets becomes several sets,
each within the limit of a set, as it would if its sender had sent several commits; codes are of each partition anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from magicbyte.protocol import Message
from magicbyte.protocol.messages.delete_groups import DeleteGroupsRequest
from magicbyte.protocol.messages.describe_groups import DescribeGroupsRequest
from magicbyte.protocol.messages.leave_group import LeaveGroupRequest
from magicbyte.protocol.messages.offset_commit import OffsetCommitRequest
from magicbyte.protocol.messages.offset_delete import OffsetDeleteRequest
from magicbyte.protocol.messages.offset_fetch import OffsetFetchRequest

PIECE: Final = 200  # elements


class _Form(NamedTuple):
    """How a request is cut, and an answer made of those to its pieces."""

    cut: Callable[[Any], Iterator[Message]]
    join: Callable[[Sequence[Any]], Message]


def pieces(message: Message) -> Iterator[Message]:
    """Yield the pieces of a request in order; one that cannot be cut, or is small, is one piece."""
    form = _FORMS.get(type(message))
    return iter((message,)) if form is None else form.cut(message)


def joined(request: type[Message], answers: Sequence[Any]) -> Message:
    """Return the answer to a request, of the answers to its pieces."""
    return _FORMS[request].join(answers)


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items) or 1, PIECE):
        yield items[at : at + PIECE]


def _cut_names(field: str, message: Message) -> Iterator[Message]:
    """Cut a list, each element of it named once."""
    for part in _parts(list(dict.fromkeys(getattr(message, field)))):
        yield replace(message, **{field: part})  # type: ignore[type-var]


def _cut_list(field: str, message: Message) -> Iterator[Message]:
    for part in _parts(getattr(message, field)):
        yield replace(message, **{field: part})  # type: ignore[type-var]


def _cut_topics(partitions: str, message: Message) -> Iterator[Message]:
    for topics in _topics_in_parts(message.topics, partitions):  # type: ignore[attr-defined]
        yield replace(message, topics=topics)  # type: ignore[type-var]


def _topics_in_parts(topics: Iterable[Any] | None, partitions: str) -> Iterator[list[Any] | None]:
    """Yield topics with all their partitions in lists of about `PIECE` of these; one list at least."""
    if topics is None:
        yield None
        return
    found, count, is_first = list[Any](), 0, True
    for topic in topics:
        for part in _parts(getattr(topic, partitions)):
            found.append(replace(topic, **{partitions: part}))
            count += len(part) + 1
            if count >= PIECE:
                yield found
                found, count, is_first = [], 0, False
    if found or is_first:
        yield found


def _cut_fetch(message: OffsetFetchRequest) -> Iterator[Message]:
    if not message.groups:
        yield from _cut_topics("partition_indexes", message)
        return
    few, count = list[Any](), 0
    for group in {each.group_id: each for each in message.groups}.values():
        for topics in _topics_in_parts(group.topics, "partition_indexes"):
            few.append(replace(group, topics=topics))
            count += 1 + sum(1 + len(each.partition_indexes) for each in topics or ())
            if count >= PIECE:
                yield replace(message, groups=few)
                few, count = [], 0
    if few:
        yield replace(message, groups=few)


def _join_lists(field: str, answers: Sequence[Any]) -> Message:
    whole = answers[0]
    for each in answers[1:]:
        getattr(whole, field).extend(getattr(each, field))
        if getattr(each, "error_code", 0) and not whole.error_code:
            whole.error_code = each.error_code
    return whole  # type: ignore[no-any-return]


def _join_topics(answers: Sequence[Any]) -> Message:
    whole = _join_lists("topics", answers)
    whole.topics = _merged(whole.topics)  # type: ignore[attr-defined]
    return whole


def _merged(topics: Iterable[Any]) -> list[Any]:
    """Return topics of which those that follow each other have different names."""
    found = list[Any]()
    for each in topics:
        if found and found[-1].name == each.name:
            found[-1].partitions.extend(each.partitions)
        else:
            found.append(each)
    return found


def _join_fetch(answers: Sequence[Any]) -> Message:
    whole = _join_topics(answers)
    groups: dict[str, Any] = {}
    for each in (group for answer in answers for group in answer.groups):
        known = groups.setdefault(each.group_id, each)
        if known is not each:
            known.topics.extend(each.topics)
    for each in groups.values():
        each.topics = _merged(each.topics)
    whole.groups = list(groups.values())  # type: ignore[attr-defined]
    return whole


_FORMS: Final[Mapping[type[Message], _Form]] = {
    OffsetFetchRequest: _Form(_cut_fetch, _join_fetch),
    OffsetCommitRequest: _Form(partial(_cut_topics, "partitions"), _join_topics),
    OffsetDeleteRequest: _Form(partial(_cut_topics, "partitions"), _join_topics),
    DescribeGroupsRequest: _Form(partial(_cut_names, "groups"), partial(_join_lists, "groups")),
    DeleteGroupsRequest: _Form(partial(_cut_names, "groups_names"), partial(_join_lists, "results")),
    LeaveGroupRequest: _Form(partial(_cut_list, "members"), partial(_join_lists, "members")),
}
