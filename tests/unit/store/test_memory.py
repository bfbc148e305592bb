"""What the memory store does beyond the contract: any payload, and a view for other threads."""

import threading

import pytest

from schedd.core.batch import NewBatch
from schedd.core.events import Output, Submit
from schedd.core.machine import Machine
from schedd.core.model import NewTask
from schedd.store.base import StatementFailed
from schedd.store.memory import MemoryStore


def submit(store: MemoryStore, *tasks: NewTask) -> None:
    """Write tasks into the open transaction."""
    out = Output()
    batch = store.add_batch(None, 1.0)
    ids = tuple(str(task.name) for task in tasks)
    Machine(1).handle(Submit(NewBatch(tasks), batch.seq, store.next_seq(), ids, {}), 1.0, out)
    store.write(out)


def test_a_payload_is_any_object():
    """It comes back as the very same one."""
    store = MemoryStore()
    store.begin()
    submit(store, NewTask(print, "a"))
    store.commit()
    assert store.payloads([1])[1] is print


def test_an_id_is_given_once():
    """As in the table, where it is unique."""
    store = MemoryStore()
    store.begin()
    submit(store, NewTask(None, "a"))
    with pytest.raises(StatementFailed, match="'a'"):
        submit(store, NewTask(None, "a"))
    store.rollback()
    assert store.rows() == []


def test_other_threads_see_committed_rows_only():
    """Who asks within a round waits for its end, and does not see what is taken back."""
    store = MemoryStore()
    store.begin()
    submit(store, NewTask(None, "a"))
    seen: list[int] = []
    asking = threading.Event()

    def ask() -> None:
        asking.set()
        seen.append(len(store.rows()))

    thread = threading.Thread(target=ask)
    thread.start()
    assert asking.wait(5.0)
    store.rollback()
    thread.join(5.0)
    assert seen == [0]


def test_two_transactions_at_once_are_a_bug():
    """The engine has one."""
    store = MemoryStore()
    store.begin()
    with pytest.raises(AssertionError, match="open already"):
        store.begin()
