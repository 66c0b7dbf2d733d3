"""A thread: its messages, the runs they belong to, and copies of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from etude.entities import Message, Run, RunFilter, Thread
from etude.errors import NotFound
from etude.store.base import Store
from etude.store.record_bytes import count_record_bytes

TITLE_CHARS = 80


def open_thread(store: Store, thread_id: str | None, text: str, source: str | None) -> Thread:
    """Return the thread of that id, or a new one named after its first message."""
    if thread_id is not None:
        return store.thread(thread_id)
    store.check_storage()
    title = " ".join(text.split())
    return store.create_thread(title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…", source)


def fork_thread(store: Store, thread_id: str, at: int | None = None) -> Thread:
    """Create a thread with the messages of this one up to seq `at`. Their runs are shared, not copied."""
    thread = store.thread(thread_id)
    messages = store.messages(thread_id)
    if at is not None and not any(m.seq == at for m in messages):
        raise NotFound(
            f"Thread `{thread_id}` has no message {at}.",
            hint=f"It has {len(messages)} messages, from 1." if messages else "It has no messages.",
        )
    copied = [message for message in messages if at is None or message.seq <= at]
    store.check_storage(sum(count_record_bytes(message.text) for message in copied))
    fork = store.create_thread(thread.title, thread.source)
    for message in copied:
        store.add_message(fork.id, message.role, message.text, message.run_id)
    return fork


def thread_runs(store: Store, thread_id: str) -> list[str]:
    """Return the ids of the runs of a thread, oldest first: its own, and those of the thread it was forked from."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = store.runs(RunFilter(thread_id=thread_id), limit=200, cursor=cursor)
        found += [summary.id for summary in page.items]
        cursor = page.next
        if cursor is None:
            break
    own, messages = set(found), []
    with contextlib.suppress(NotFound):  # a session may use any name for its thread
        messages = store.messages(thread_id)
    answered = (m.run_id for m in messages if m.role == "assistant" and m.run_id)
    came = dict.fromkeys(run_id for run_id in answered if run_id not in own)
    return [*came, *reversed(found)]


def last_success_in_thread(store: Store, thread_id: str, source: str | None, before: str) -> Run | None:
    """Return the latest run of the thread on that source that succeeded."""
    for run_id in reversed(thread_runs(store, thread_id)):
        if run_id == before:
            continue
        run = store.run(run_id)
        if run.status == "succeeded" and (source is None or run.source == source):
            return run
    return None


def write_thread(store: Store, thread: Thread) -> Iterator[str]:
    """Yield the JSON of the thread with its messages and their runs, in pieces of one message or step."""
    yield f'{{"thread": {thread.model_dump_json()}, "messages": ['
    answered: dict[str, None] = {}
    after, more, comma = 0, True, ""
    while more:
        messages, more = store.message_page(thread.id, after, limit=1000, text_chars=4_000_000)
        for message in messages:
            yield comma + message.model_dump_json()
            comma, after = ",\n", message.seq
            if message.run_id:
                answered[message.run_id] = None
    yield '], "runs": {'
    comma = ""
    for run_id in answered:
        yield f"{comma}{json.dumps(run_id)}: "
        try:
            yield from store.run(run_id).write_json()
        except NotFound:
            yield "null"  # it was deleted
        comma = ",\n"
    yield "}}"


def earlier_thread_messages(store: Store, thread_id: str, run_id: str) -> list[Message]:
    """Return the messages of the thread before the run began."""
    said = []
    for message in store.messages(thread_id):
        if message.run_id == run_id:
            break
        said.append(message)
    return said
