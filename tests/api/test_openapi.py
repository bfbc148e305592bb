"""The description of the API agrees with the API."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, is_typeddict

import pytest

from schedd import answers
from schedd.api import problems
from support.api_daemon import ApiDaemon

Ask = Callable[..., Any]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "api.md"

ROUTES = {
    ("get", "/v1/status"), ("get", "/v1/health"), ("post", "/v1/pause"), ("post", "/v1/resume"),
    ("post", "/v1/batches"), ("get", "/v1/batch"), ("get", "/v1/tasks"), ("get", "/v1/task"),
    ("post", "/v1/cancel"), ("post", "/v1/hold"), ("post", "/v1/release"), ("post", "/v1/depend"),
    ("get", "/v1/wait"), ("get", "/v1/log"), ("get", "/v1/events"), ("get", "/v1/check"),
    ("post", "/v1/prune"), ("post", "/v1/retry"), ("post", "/v1/undepend"),
}  # fmt: skip


@pytest.fixture
def described(ask: Ask) -> dict[str, Any]:
    """The description as it is served."""
    answer = ask("GET", "/v1/openapi.json")
    assert answer.status == 200
    body: dict[str, Any] = answer.body
    return body


def refs(value: Any) -> Iterator[str]:
    """Every reference in a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs(item)


def test_every_route_is_described(described: dict[str, Any]) -> None:
    """All of them, each with a summary and the schema of its answer."""
    found = {(method, path) for path, methods in described["paths"].items() for method in methods}
    assert found == ROUTES
    for methods in described["paths"].values():
        for route in methods.values():
            assert route["summary"]
            good = next(answer for status, answer in route["responses"].items() if status.startswith("2"))
            assert all(content["schema"] for content in good["content"].values())


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    """The document is whole."""
    found = set(refs(described))
    assert found
    for ref in found:
        assert ref.removeprefix("#/components/schemas/") in described["components"]["schemas"], ref


def test_every_answer_type_is_among_the_schemas(described: dict[str, Any]) -> None:
    """A typed dict that is added to the answers is described without further ado."""
    names = {name for name, shape in vars(answers).items() if is_typeddict(shape)}
    assert names <= described["components"]["schemas"].keys()
    assert described["components"]["schemas"]["TaskView"]["properties"]["batch"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }


def test_parameters_are_described_with_their_bounds(described: dict[str, Any]) -> None:
    """What the routes check is what the description says."""
    parameters = {item["name"]: item for item in described["paths"]["/v1/tasks"]["get"]["parameters"]}
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert not parameters["limit"]["required"]
    [task_id] = described["paths"]["/v1/task"]["get"]["parameters"]
    assert task_id["required"]


def test_the_reference_for_people_names_every_route_and_every_code(daemon: ApiDaemon) -> None:
    """docs/api.md leaves nothing out."""
    text = DOCS.read_text("utf-8")
    headings = " ".join(line for line in text.splitlines() if line.startswith("###"))
    for _, path in ROUTES:
        assert re.search(rf"{path}\b", headings), path
    for code in problems.STATUS_OF:
        assert f"`{code}`" in text, code
