"""Refusals: each has a code for programs and a sentence for people."""

import pytest

from schedd.core import errors
from schedd.core.errors import CycleError, IllegalTransition, Refused

REFUSALS = [refusal for refusal in vars(errors).values() if isinstance(refusal, type) and issubclass(refusal, Refused)]
WITH_DEFAULT = [refusal for refusal in REFUSALS if refusal is not CycleError]


class TestRefusals:
    """What all of them share."""

    @pytest.mark.parametrize("refusal", WITH_DEFAULT)
    def test_the_docstring_is_the_default_message(self, refusal: type[Refused]):
        """Raised bare, a refusal still says a whole sentence."""
        assert str(refusal()) == (refusal.__doc__ or "").strip()
        assert str(refusal()).endswith(".")

    @pytest.mark.parametrize("refusal", WITH_DEFAULT)
    def test_a_given_message_is_kept(self, refusal: type[Refused]):
        """What is known better is said instead."""
        assert str(refusal("this one")) == "this one"

    @pytest.mark.parametrize("refusal", REFUSALS)
    def test_a_refusal_is_a_value_error(self, refusal: type[Refused]):
        """Users of the library catch what they know."""
        assert issubclass(refusal, ValueError)

    def test_codes_are_distinct(self):
        """A program can tell every refusal from every other."""
        assert len({refusal.code for refusal in REFUSALS}) == len(REFUSALS)

    def test_an_illegal_transition_is_not_a_refusal(self):
        """It is our fault, never the caller's."""
        assert issubclass(IllegalTransition, AssertionError)
        assert not issubclass(IllegalTransition, Refused)


class TestCycleError:
    """The path, and how it is told."""

    def test_the_message_reads_x_depends_on_y(self):
        """The path stands in the message as it is."""
        error = CycleError(["a", "c", "b", "a"])
        assert error.path == ["a", "c", "b", "a"]
        assert error.stuck == 0
        assert str(error) == "dependency cycle: a -> c -> b -> a; remove one of these dependencies"

    @pytest.mark.parametrize(
        ("stuck", "words"), [(1, "(1 more task waits behind it)"), (2, "(2 more tasks wait behind it)")]
    )
    def test_the_tasks_behind_it_are_counted(self, stuck: int, words: str):
        """One waits, two wait."""
        error = CycleError(["a", "b", "a"], stuck)
        assert error.stuck == stuck
        assert words in str(error)

    def test_twenty_steps_are_shown_whole(self):
        """The longest path that is not shortened."""
        path = [str(step) for step in range(20)]
        assert " -> ".join(path) in str(CycleError(path))

    def test_a_long_path_keeps_its_two_ends(self):
        """The message is short, the path is whole."""
        path = [f"n{step}" for step in range(1_000)] + ["n0"]
        error = CycleError(path)
        assert error.path == path
        assert "n9 -> ... 981 more ... -> n991" in str(error)
        assert str(error).count("->") == 20
