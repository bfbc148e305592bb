"""Policies that are kept as JSON in one column, and how they are read back, in distrust.

Tests: tests/unit/store/test_policies.py.
"""

import json
from typing import Any, Final

from schedd.core import limits
from schedd.core.errors import InvalidRequest
from schedd.core.model import GROUP_PREFIX, Demand, RetryPolicy

_RULES: Final = ("on_exit_codes", "never_on_exit_codes", "on_exceptions", "on_timeout")
_NO_RULES: Final = {name: getattr(RetryPolicy(), name) for name in _RULES}


def retry_rules(retry: RetryPolicy) -> str | None:
    """Which failures are tried again, as JSON text; None for all of them."""
    rules = {name: value for name in _RULES if (value := getattr(retry, name)) != _NO_RULES[name]}
    return json.dumps(rules, separators=(",", ":")) if rules else None


def read_retry_rules(text: object) -> dict[str, Any]:
    """The arguments of a RetryPolicy that `retry_rules` has written. Raises InvalidRequest."""
    if text is None:
        return {}
    rules = _object(text, "retry_rules")
    if not rules.keys() <= set(_RULES):
        raise InvalidRequest(f"its retry_rules have unknown keys: {sorted(rules.keys() - set(_RULES))!r:.120}")
    for name, value in rules.items():
        kind = str if name == "on_exceptions" else int
        if name == "on_timeout":
            if type(value) is not bool:
                raise InvalidRequest(f"its retry_rules are damaged: {name} is {value!r:.80}")
            continue
        if type(value) is not list or any(type(item) is not kind for item in value):
            raise InvalidRequest(f"its retry_rules are damaged: {name} is {value!r:.80}")
        rules[name] = tuple(value)
    return rules


def read_demand(resources: object, group: object) -> Demand:
    """What `resources` and `group` of a row ask for, as `NewTask.demand` says it. Raises InvalidRequest."""
    demand: list[tuple[str, int]] = []
    if resources is not None:
        for name, amount in _object(resources, "resources").items():
            if type(amount) is not int or not 1 <= amount <= limits.MAX_CAPACITY:
                raise InvalidRequest(f"its demand for {name:.80} is not an amount: {amount!r:.80}")
            demand.append((name, amount))
    if group is not None:
        if not isinstance(group, str):
            raise InvalidRequest(f"its group is not text but {type(group).__name__}")
        demand.append((GROUP_PREFIX + group, 1))
    return tuple(sorted(demand))


def read_units(text: object) -> dict[str, list[str]] | None:
    """The named units that an attempt holds. Raises InvalidRequest."""
    if text is None:
        return None
    units = _object(text, "units")
    for name, names in units.items():
        if type(names) is not list or any(type(unit) is not str for unit in names):
            raise InvalidRequest(f"the units of {name:.80} that it holds are not a list of names: {names!r:.80}")
    return units


def _object(text: object, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        value = None
    if type(value) is not dict:
        raise InvalidRequest(f"its {what} are not a JSON object: {text!r:.80}")
    return value
