"""Resources and groups: who starts, who waits, what is held, and what is reserved."""

import re
from typing import Any

import pytest

from schedd.core.errors import InvalidRequest, TooLarge, UnknownResource
from schedd.core.events import ClockStepped, Output, SetCapacity, WorkersChanged
from schedd.core.model import Capacity, NewTask, Outcome, RetryPolicy
from schedd.core.resources import Resources
from support.core_driver import Driver, new


def needs(name: str, *deps: str, **amounts: int) -> NewTask:
    return new(name, *deps, resources=tuple(sorted(amounts.items())))


@pytest.fixture
def lab(drive: Any) -> Driver:
    """Eight workers, two named GPUs, three licences of a database."""
    driver: Driver = drive(8)
    driver.step(SetCapacity("gpu", Capacity(2, ("0", "1"))), SetCapacity("db", Capacity(3)))
    return driver


class TestDemands:
    """What is held while a task runs."""

    def test_what_does_not_fit_waits_and_hides_nothing(self, lab: Driver):
        """The best task waits for two GPUs; those behind it that fit start."""
        lab.submit(needs("one", gpu=1))
        lab.submit(needs("two", gpu=2), new("free"), needs("other", gpu=1), needs("late", gpu=1))
        assert lab.starts() == ["one", "free", "other"]
        lab.end("one")
        assert lab.starts() == ["one", "free", "other", "late"]
        lab.end("other")
        lab.end("late")
        assert lab.starts()[-1] == "two"

    def test_named_units_have_one_holder(self, lab: Driver):
        """The first free ones are given, told to the attempt and written with it, and free again afterwards."""
        out = lab.submit(needs("a", gpu=1), needs("b", gpu=1, db=2))
        assert [(order.id, order.units) for order in lab.started] == [("a", {"gpu": ["0"]}), ("b", {"gpu": ["1"]})]
        assert [started.units for started in out.started] == [{"gpu": ["0"]}, {"gpu": ["1"]}]
        lab.end("a")
        lab.submit(needs("c", gpu=1))
        assert lab.started[-1].units == {"gpu": ["0"]}
        lab.end("b")
        lab.end("c")
        assert (lab.machine.resources.held, lab.machine.resources.taken) == ({}, {})

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_no_end_of_an_attempt_leaks_a_unit(self, lab: Driver, outcome: Outcome):
        """However it ends, and whether it runs again or not."""
        lab.submit(new("x", resources=(("gpu", 2),), retry=RetryPolicy(max_attempts=2, base_delay=5)))
        lab.hold("x")
        lab.end("x", outcome, counts=outcome is not Outcome.START_FAILED)
        assert (lab.machine.resources.held, lab.machine.resources.taken) == ({}, {})

    def test_a_cancel_frees_when_the_attempt_has_ended(self, lab: Driver):
        """Not before: its process still uses it."""
        lab.submit(needs("a", gpu=2), needs("b", gpu=1))
        lab.cancel("a")
        assert lab.starts() == ["a"]
        lab.end("a", Outcome.CANCELLED)
        assert lab.starts() == ["a", "b"]

    def test_what_runs_holds_after_a_restart(self, lab: Driver):
        """Also the units by their names."""
        lab.submit(needs("a", gpu=1), needs("b", gpu=1), needs("c", gpu=1))
        lab.end("a")
        lab.restart()
        assert lab.machine.resources.taken == {"gpu": {"0", "1"}}
        lab.end("c")
        lab.submit(needs("d", gpu=1))
        assert lab.started[-1].units == {"gpu": ["0"]}

    @pytest.mark.parametrize(
        ("task", "error", "words"),
        [
            (needs("x", gpu=3), TooLarge, "x needs 3 gpu, and there are 2 in all"),
            (needs("x", tape=1), UnknownResource, "x needs the resource tape, which is not known .known: db, gpu."),
        ],
    )
    def test_what_can_never_be_had_is_refused(self, lab: Driver, task: NewTask, error: type[Exception], words: str):
        """With the batch, before anything of it is taken."""
        refused = lab.refuse(error, lab.submission([new("y"), task]))
        assert re.search(words, str(refused))

    @pytest.mark.parametrize("amount", [0, -1, 10**7])
    def test_an_amount_is_a_sensible_number(self, amount: int):
        """Zero is said by leaving it out."""
        with pytest.raises(InvalidRequest, match="gpu"):
            needs("x", gpu=amount)

    @pytest.mark.parametrize("name", ["", "1gpu", "a b", "a/b", "ü", "x" * 200])
    def test_a_name_is_a_plain_word(self, name: str):
        """It becomes part of an environment variable, and `/` makes a group."""
        with pytest.raises(InvalidRequest, match="resource name"):
            new("x", resources=((name, 1),))


class TestCapacities:
    """How much there is may change while tasks run."""

    def test_more_starts_more(self, lab: Driver):
        """In the same round."""
        lab.submit(needs("a", db=3), needs("b", db=1))
        out = lab.step(SetCapacity("db", Capacity(4)))
        assert lab.starts() == ["a", "b"]
        assert out.capacities == {"db": Capacity(4)}

    def test_less_than_is_held_takes_nothing_away(self, lab: Driver):
        """Nothing of it is given until enough came back."""
        lab.submit(needs("a", db=1), needs("b", db=1), needs("c", db=1), needs("d", db=1))
        lab.step(SetCapacity("db", Capacity(1)))
        lab.end("a")
        lab.end("b")
        assert lab.starts() == ["a", "b", "c"]
        lab.end("c")
        assert lab.starts() == ["a", "b", "c", "d"]

    def test_a_resource_that_goes_starts_nothing_more(self, lab: Driver):
        """What needs it waits until it is known again."""
        lab.submit(needs("a", db=3), needs("b", db=1))
        lab.step(SetCapacity("db", None))
        lab.end("a")
        assert lab.starts() == ["a"]
        lab.step(SetCapacity("db", Capacity(1)))
        assert lab.starts() == ["a", "b"]

    def test_the_same_again_is_no_change(self, lab: Driver):
        """No row, no line in the log."""
        assert not lab.step(SetCapacity("db", Capacity(3))).has_rows()

    def test_units_may_get_other_names(self, lab: Driver):
        """What runs keeps the old ones; nobody gets one of those."""
        lab.submit(needs("a", gpu=1))
        lab.step(SetCapacity("gpu", Capacity(2, ("1", "2"))))
        lab.submit(needs("b", gpu=1), needs("c", gpu=1))
        assert [order.units for order in lab.started] == [{"gpu": ["0"]}, {"gpu": ["1"]}]
        lab.end("a")
        assert lab.started[-1].units == {"gpu": ["2"]}


class TestGroups:
    """A limit for those that belong together."""

    def test_a_group_takes_no_more_workers_than_its_limit(self, lab: Driver):
        """Others pass those of it that wait."""
        lab.step(SetCapacity("group/training", Capacity(2)))
        lab.submit(*(new(f"t{number}", group="training") for number in range(4)), new("mine"))
        assert lab.starts() == ["t0", "t1", "mine"]
        lab.end("t0")
        assert lab.starts()[-1] == "t2"

    def test_a_group_without_a_limit_is_none(self, lab: Driver):
        """And neither is one that nobody has ever heard of refused."""
        lab.submit(*(new(f"t{number}", group="any") for number in range(4)))
        assert len(lab.running()) == 4
        assert lab.machine.resources.held == {"group/any": 4}

    def test_a_limit_may_come_later(self, lab: Driver):
        """It counts those that run already."""
        lab.submit(*(new(f"t{number}", group="g") for number in range(3)))
        lab.step(SetCapacity("group/g", Capacity(3)))
        lab.submit(new("x", group="g"))
        assert "x" not in lab.running()
        lab.end("t0")
        assert "x" in lab.running()


class TestReservation:
    """No task is passed over for ever."""

    def test_what_was_passed_over_for_long_gets_its_turn(self, lab: Driver):
        """Small tasks pass a large one for `reserve_after`; then what it needs is kept for it."""
        lab.machine.reserve_after = 60.0
        lab.submit(needs("s0", gpu=1), needs("s1", gpu=1))
        lab.submit(needs("big", gpu=2), *(needs(f"s{number}", gpu=1) for number in range(2, 20)))
        lab.end("s0")  # s2 passes: the clock of `big` begins
        lab.advance(59)
        lab.end("s1")
        assert lab.starts()[-1] == "s3"
        lab.advance(1)
        lab.end("s2")
        lab.end("s3")
        assert lab.starts()[-1] == "big"

    def test_what_does_not_touch_it_passes(self, lab: Driver):
        """Other resources, none at all, or the same one as far as it is not short."""
        lab.machine.reserve_after = 0.0
        lab.submit(needs("holder", gpu=1))
        lab.submit(needs("big", gpu=2, db=1), needs("first", gpu=1))
        assert lab.starts() == ["holder", "first"]
        lab.submit(new("free"), needs("small", db=2), needs("more", db=1), needs("thief", gpu=1))
        lab.end("first")
        assert lab.starts() == ["holder", "first", "free", "small"], "of `db` one is reserved, and of `gpu` all"
        lab.end("holder")
        assert lab.starts()[4:] == ["big"]

    def test_a_group_at_its_limit_reserves_nothing(self, lab: Driver):
        """It is meant to wait, and must not keep a GPU idle meanwhile."""
        lab.machine.reserve_after = 0.0
        lab.step(SetCapacity("group/g", Capacity(1)))
        lab.submit(new("a", group="g"), new("b", group="g", resources=(("gpu", 2),)))
        lab.submit(needs("c", gpu=1))
        lab.advance(10)
        lab.submit(needs("d", gpu=1))
        assert lab.starts() == ["a", "c", "d"]

    def test_a_set_clock_shortens_no_wait(self, lab: Driver):
        """The time since it was passed over moves along."""
        lab.machine.reserve_after = 60.0
        lab.submit(needs("s0", gpu=1), needs("s1", gpu=1), needs("big", gpu=2), needs("s2", gpu=1), needs("s3", gpu=1))
        lab.end("s0")
        lab.now += 3_600
        lab.step(ClockStepped(3_600.0, "k"))
        lab.end("s1")
        assert lab.starts()[-1] == "s3"

    def test_only_what_waits_is_remembered(self, lab: Driver):
        """Nothing is left of a task that started, was held or has ended."""
        lab.submit(needs("s0", gpu=1))
        for act in (lab.cancel, lab.hold):
            name = f"big-{act.__name__}"
            lab.submit(needs(name, gpu=2), needs(f"pass-{act.__name__}", gpu=1))
            assert lab.machine.ready.passed
            act(name)
            assert not lab.machine.ready.passed
            lab.end(f"pass-{act.__name__}")


class TestBookkeeping:
    """The leaf under all of it."""

    def test_what_is_free(self):
        """None where there is no limit, negative where more is held than there is."""
        resources = Resources({"a": Capacity(2)})
        assert (resources.free("a"), resources.free("b"), resources.free("group/b")) == (2, 0, None)
        assert resources.fits((("a", 2), ("group/x", 1)))
        assert resources.lacks((("a", 3), ("b", 1), ("group/x", 1))) == ["a", "b"]
        assert resources.can_ever_fit((("a", 2),)) is None
        assert resources.can_ever_fit((("a", 3),)) == "a"
        assert resources.leaves((("a", 1),), (("a", 1),))
        assert not resources.leaves((("a", 2),), (("a", 1),))

    def test_no_worker_starts_nothing(self, lab: Driver):
        """However much is free; `could_start` says the same without doing it."""
        lab.step(WorkersChanged(0))
        lab.submit(needs("a", gpu=1))
        assert lab.starts() == []
        assert not lab.machine.could_start(lab.now)
        lab.machine.workers = 1
        assert lab.machine.could_start(lab.now)
        lab.machine.claim(lab.now, out := Output())
        lab.keep(out)
        assert lab.starts() == ["a"]
