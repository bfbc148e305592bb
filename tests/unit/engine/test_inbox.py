"""The inbox: order, bounds, waiting."""

import threading
import time

from schedd.engine.inbox import MAX_ROUND_MESSAGES, Inbox, Question


def question() -> Question:
    return Question(lambda machine: None)


def test_messages_come_out_in_the_order_they_went_in():
    """First in, first out, all that is there at once."""
    inbox = Inbox()
    sent = [question() for _ in range(5)]
    for message in sent:
        inbox.post(message)
    assert inbox.wait(None) == sent


def test_a_round_takes_a_bounded_number():
    """The rest stays for the next one."""
    inbox = Inbox()
    for _ in range(MAX_ROUND_MESSAGES + 1):
        inbox.post(question())
    assert len(inbox.wait(0)) == MAX_ROUND_MESSAGES
    assert len(inbox.wait(0)) == 1


def test_waiting_ends_with_its_timeout():
    """Nothing arrived: an empty list."""
    assert Inbox().wait(0.001) == []


def test_a_post_from_another_thread_wakes_the_waiter():
    """The wait ends long before its timeout."""
    inbox = Inbox()
    thread = threading.Thread(target=lambda: inbox.post(question()))
    before = time.monotonic()
    thread.start()
    assert len(inbox.wait(60)) == 1
    assert time.monotonic() - before < 30
    thread.join()


def test_a_wake_is_not_a_message():
    """It only ends the wait."""
    inbox = Inbox()
    inbox.wake()
    assert inbox.wait(60) == []
