"""The nouns: what each shape accepts, where its bounds are, and what it says when it refuses."""

import math

import pytest

from schedd.core import limits
from schedd.core.errors import InvalidRequest
from schedd.core.model import (
    TERMINAL,
    CatchUp,
    Dependency,
    NewTask,
    OpenTask,
    Recurrence,
    RetryPolicy,
    Status,
    When,
    check_duration,
    check_id,
)

A_YEAR = 31_536_000.0


def record(seq: int) -> OpenTask:
    return OpenTask(seq, str(seq), 0, RetryPolicy(), None, 0.0)


class TestDurations:
    """Seconds from 0 to about a hundred years."""

    @pytest.mark.parametrize("value", [0, 0.0, 0.001, 5, A_YEAR, limits.MAX_DURATION_S])
    def test_a_duration_within_the_bounds_is_accepted(self, value: float):
        """Both bounds belong to the range."""
        check_duration("delay", value)

    @pytest.mark.parametrize(
        "value", [-1, -0.001, math.nan, math.inf, -math.inf, 4e9, pytest.param(10**400, id="huge")]
    )
    def test_a_duration_outside_is_refused_by_name(self, value: float):
        """Negative, endless, not a number, too long: the message names the field and the bound."""
        with pytest.raises(InvalidRequest, match=r"^delay must be from 0 to 3\.2e\+09 seconds, not ") as caught:
            check_duration("delay", value)
        assert len(str(caught.value)) < 100

    def test_the_message_ends_with_the_value(self):
        """A person sees what was given."""
        with pytest.raises(InvalidRequest, match=r"not -2.5$"):
            check_duration("delay", -2.5)


class TestIds:
    """What a user may call a task or a batch."""

    @pytest.mark.parametrize("value", ["a", "build", "test 1", "1a", "a-b_c.d:e", "büro", "x" * limits.MAX_ID_CHARS])
    def test_an_ordinary_id_is_accepted(self, value: str):
        """Letters, digits, inner spaces and most signs are free."""
        check_id(value)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("", "1 to 200 characters, not 0"),
            ("x" * (limits.MAX_ID_CHARS + 1), "1 to 200 characters, not 201"),
            ("ci/build", "separates a batch from its tasks"),
            ("a\nb", "must be printable"),
            ("a\x00b", "must be printable"),
            ("a\ud800b", "must be printable"),
            (" a", "without spaces at its ends"),
            ("a ", "without spaces at its ends"),
            ("12", "must not be a number"),
            ("٣", "must not be a number"),
            ("-a", "must not begin with '-'"),
            ("@a", "must not begin with '@'"),
            ("a*", "select several tasks"),
            ("a?", "select several tasks"),
            ("a[1]", "select several tasks"),
        ],
    )
    def test_an_id_that_would_mean_something_else_is_refused(self, value: str, reason: str):
        """Each refusal says which rule it is."""
        with pytest.raises(InvalidRequest, match=r"^id ") as caught:
            check_id(value)
        assert reason in str(caught.value)

    def test_a_batch_name_has_its_own_word_and_bound(self):
        """The message speaks of what was checked."""
        with pytest.raises(InvalidRequest, match=r"^batch name must have 1 to 100 characters, not 101"):
            check_id("x" * 101, "batch name", limits.MAX_BATCH_NAME_CHARS)


class TestStatuses:
    """States and what they say."""

    def test_four_states_are_ends(self):
        """A task that succeeded, failed, was cancelled or skipped has ended, no other has."""
        ends = {status.value for status in Status if status.is_terminal}
        assert ends == {"succeeded", "failed", "cancelled", "skipped"}
        assert {status.value for status in TERMINAL} == ends

    @pytest.mark.parametrize(
        ("when", "met_by"),
        [
            (When.SUCCEEDED, {Status.SUCCEEDED}),
            (When.FAILED, {Status.FAILED}),
            (When.FINISHED, {Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED}),
        ],
    )
    def test_each_when_is_met_by_its_ends_only(self, when: When, met_by: set[Status]):
        """`failed` is met by failed only, `finished` by any end."""
        assert {status for status in TERMINAL if when.is_met_by(status)} == met_by


class TestRetryPolicy:
    """How often and how long."""

    def test_the_default_is_one_attempt(self):
        """Without a policy a task is tried once."""
        assert RetryPolicy() == RetryPolicy(max_attempts=1, base_delay=1.0, max_delay=3_600.0)

    @pytest.mark.parametrize("attempts", [1, limits.MAX_ATTEMPTS])
    def test_attempts_within_the_bounds(self, attempts: int):
        """Both bounds belong to the range."""
        assert RetryPolicy(max_attempts=attempts).max_attempts == attempts

    @pytest.mark.parametrize("attempts", [0, -1, limits.MAX_ATTEMPTS + 1])
    def test_attempts_outside_are_refused(self, attempts: int):
        """Zero attempts is not a task."""
        with pytest.raises(InvalidRequest, match=f"max_attempts must be from 1 to 1000000, not {attempts}"):
            RetryPolicy(max_attempts=attempts)

    @pytest.mark.parametrize("field", ["base_delay", "max_delay"])
    def test_delays_are_durations(self, field: str):
        """A negative delay is refused by its name."""
        with pytest.raises(InvalidRequest, match=f"^{field} must be from 0"):
            RetryPolicy(**{field: -0.1})


class TestRecurrence:
    """Finite repetition."""

    def test_by_default_every_missed_start_is_made_up_for(self):
        """A task's own repetition leaves nothing out."""
        assert Recurrence(1.0, 1).catch_up is CatchUp.ALL

    @pytest.mark.parametrize(("every", "times"), [(limits.MIN_EVERY_S, 1), (limits.MAX_DURATION_S, limits.MAX_TIMES)])
    def test_values_within_the_bounds(self, every: float, times: int):
        """The bounds belong to the range."""
        assert Recurrence(every, times).times == times

    @pytest.mark.parametrize(
        ("every", "times", "message"),
        [
            (0, 1, "every must be at least 0.001 seconds, not 0"),
            (0.0005, 1, "every must be at least 0.001 seconds, not 0.0005"),
            (-1, 1, "every must be from 0"),
            (math.nan, 1, "every must be from 0"),
            (math.inf, 1, "every must be from 0"),
            (1, 0, "times must be from 1 to 1000000000, not 0"),
            (1, -3, "times must be from 1"),
            (1, limits.MAX_TIMES + 1, "times must be from 1"),
        ],
    )
    def test_values_outside_are_refused(self, every: float, times: int, message: str):
        """No busy loop, no endless repetition."""
        with pytest.raises(InvalidRequest) as caught:
            Recurrence(every, times)
        assert str(caught.value).startswith(message)


class TestNewTask:
    """A task as it is submitted."""

    def test_a_name_is_checked_as_an_id(self):
        """What is no id is no name."""
        with pytest.raises(InvalidRequest, match=r"^id '7' must not be a number"):
            NewTask(payload=None, name="7")

    @pytest.mark.parametrize("priority", [-limits.MAX_PRIORITY, 0, limits.MAX_PRIORITY])
    def test_priorities_within_the_bounds(self, priority: int):
        """Both bounds belong to the range."""
        assert NewTask(payload=None, priority=priority).priority == priority

    @pytest.mark.parametrize("priority", [-limits.MAX_PRIORITY - 1, limits.MAX_PRIORITY + 1, 2**63])
    def test_priorities_outside_are_refused(self, priority: int):
        """An integer that no table could hold is refused here."""
        with pytest.raises(InvalidRequest, match=f"priority must be within 2147483647 of zero, not {priority}"):
            NewTask(payload=None, priority=priority)

    def test_too_many_dependencies_are_refused(self):
        """The bound is a number of deps, said in the message."""
        deps = (Dependency("a"),) * (limits.MAX_DEPS_PER_TASK + 1)
        with pytest.raises(InvalidRequest, match="at most 100000 deps, not 100001"):
            NewTask(payload=None, deps=deps)

    def test_a_delay_is_a_duration(self):
        """A task cannot start in the past."""
        with pytest.raises(InvalidRequest, match=r"^delay must be from 0"):
            NewTask(payload=None, delay=-1)

    def test_the_payload_is_not_looked_at(self):
        """Whatever it is, the core hands on the same object."""
        payload = object()
        assert NewTask(payload=payload).payload is payload


class TestOpenTask:
    """The mutable record."""

    def test_records_are_ordered_by_seq(self):
        """Ties in a heap go to what was submitted first."""
        assert record(1) < record(2)
        assert not record(2) < record(1)

    def test_two_records_are_never_equal(self):
        """A record is itself, whatever it holds: identity tells a revived task from its old self."""
        assert record(1) != record(1)

    def test_a_record_is_told_without_its_children(self):
        """Its text is one line long, however deep the graph below it is, and takes no recursion."""
        top = record(1)
        task = top
        for seq in range(2, 5_000):
            child = record(seq)
            task.children = task.children_if_failed = task.children_if_finished = [child]
            task = child
        assert len(repr(top)) < 1_000
