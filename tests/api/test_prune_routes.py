"""POST /v1/prune."""

from typing import Any

import pytest

from schedd.client import Client, ProblemError
from support.api_daemon import ApiDaemon


def test_old_tasks_are_removed(daemon: ApiDaemon, schedd: Client) -> None:
    """A dry run only counts them."""
    schedd.submit({"tasks": {"a": {"run": "true"}, "b": {"run": "true", "deps": ["a"]}}})
    daemon.end("a")
    daemon.end("b")
    assert schedd.prune(3_600)["tasks"] == 0
    assert schedd.prune(0, dry_run=True) == {"tasks": 2, "lines": 0, "more": False}
    answer = schedd.prune(0)
    assert (answer["tasks"], answer["more"]) == (2, False)
    assert schedd.tasks()["tasks"] == []


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "older_than"),
        ({"older_than": -1}, "older_than"),
        ({"older_than": "soon"}, "older_than"),
        ({"older_than": 1, "keep_last": -1}, "keep_last"),
        ({"older_than": 1, "keep": 1}, "keep"),
        ({"older_than": 1, "dry_run": "yes"}, "dry_run"),
    ],
)
def test_a_mistake_is_told_with_its_place(schedd: Client, body: Any, where: str) -> None:
    """And nothing goes."""
    import json

    with pytest.raises(ProblemError) as caught:
        schedd._change("/v1/prune", json.dumps(body).encode(), None)
    assert where in str(caught.value)
