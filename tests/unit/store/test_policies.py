"""Policies in JSON columns: written and read back alike, and distrusted."""

import pytest

from schedd.core.errors import InvalidRequest
from schedd.core.model import NewTask, RetryPolicy
from schedd.store import policies

POLICIES = [
    RetryPolicy(),
    RetryPolicy(on_exit_codes=(1, 75)),
    RetryPolicy(never_on_exit_codes=(2,)),
    RetryPolicy(on_exceptions=("ConnectionError", "http.client.HTTPException")),
    RetryPolicy(on_timeout=False, on_exit_codes=()),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_rules_come_back(policy: RetryPolicy):
    """What is the default is not written at all."""
    text = policies.retry_rules(policy)
    assert (text is None) == (policy == RetryPolicy())
    assert RetryPolicy(**policies.read_retry_rules(text)) == policy


@pytest.mark.parametrize("text", ["", "[]", "{", 7, b"{}", '{"on_timeout": 1}', '{"on_exit_codes": [true]}',
                                  '{"on_exit_codes": 3}', '{"on_exceptions": [1]}', '{"other": 1}'])  # fmt: skip
def test_damaged_rules_are_refused(text: object):
    """A row that was damaged is set aside, not guessed."""
    with pytest.raises(InvalidRequest, match="retry_rules"):
        policies.read_retry_rules(text)


def test_a_demand_comes_back():
    """Sorted by name, with the place in the group."""
    task = NewTask(None, resources=(("db", 1), ("zip", 2)), group="training")
    assert policies.read_demand('{"zip":2,"db":1}', "training") == task.demand
    assert task.demand == (("db", 1), ("group/training", 1), ("zip", 2))
    assert policies.read_demand(None, None) == NewTask(None).demand == ()


@pytest.mark.parametrize(("resources", "group"), [("{}x", None), ('{"a": 0}', None), ('{"a": "1"}', None), (None, 7)])
def test_damaged_demands_are_refused(resources: object, group: object):
    """An amount that is none, or no JSON."""
    with pytest.raises(InvalidRequest):
        policies.read_demand(resources, group)


def test_units_come_back():
    """And are refused where they are not lists of names."""
    assert policies.read_units(None) is None
    assert policies.read_units('{"gpu":["0","1"]}') == {"gpu": ["0", "1"]}
    for text in ('{"gpu": 1}', '{"gpu": [1]}', "[]", "x"):
        with pytest.raises(InvalidRequest):
            policies.read_units(text)
