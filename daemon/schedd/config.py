"""The daemon's settings: a TOML file under the environment under the command line. Unknown keys are refused.

Tests: tests/unit/test_config.py.
"""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schedd import durations
from schedd.core import limits
from schedd.paths import default_config, default_socket, default_state_dir


class ConfigError(Exception):
    """The configuration is not valid."""


class Config(BaseModel):
    """Every setting with its default. Durations are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    state_dir: Path = Field(default_factory=default_state_dir, strict=False, description="Where schedd keeps its data.")
    socket: Path | None = Field(default=None, strict=False, description="The unix socket of the API.")
    socket_mode: int = Field(default=0o660, ge=0, le=0o777, description="The permissions of the socket.")
    socket_group: str | None = Field(default=None, description="The group that may use the socket.")
    workers: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=limits.MAX_WORKERS,
        description="How many tasks run at once.",
    )
    drain_timeout: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="How long a stop lets running tasks finish before it interrupts them.",
    )
    keep_for: float = Field(
        default=7_776_000.0,
        ge=0,
        le=limits.MAX_DURATION_S,
        description="How long ended tasks are kept, with their logs and events: a number of seconds, or `90d`.",
    )
    keep_last: int = Field(default=1, ge=0, description="How many batches of each name are kept however old they are.")
    keep_tasks: int = Field(
        default=1_000_000, ge=0, description="How many ended tasks are kept; the oldest batches go first."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` is console on a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info")

    @field_validator("drain_timeout", "keep_for", mode="before")
    @classmethod
    def _read_duration(cls, value: Any) -> Any:
        return durations.parse_duration(value) if isinstance(value, str) else value

    @field_validator("state_dir", "socket")
    @classmethod
    def _make_absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else path.absolute()

    @property
    def socket_path(self) -> Path:
        """The socket's path: the one configured, else the default that goes with the state directory."""
        if self.socket is not None:
            return self.socket
        named = "state_dir" in self.model_fields_set
        return default_socket(self.state_dir if named else None)


_FROM_ENVIRONMENT = {"state_dir": "SCHEDD_STATE_DIR", "socket": "SCHEDD_SOCKET"}


def load(path: Path | None, overrides: dict[str, Any]) -> Config:
    """The settings: from `path` (which must exist), else from the default file if there is one, under the environment,
    under `overrides` (those that are None count as not given). Raises ConfigError with a sentence for each thing that
    is wrong.
    """
    values: dict[str, Any] = {}
    source = path or default_config()
    if path is not None or source.exists():
        values = _read(source)
    values |= {name: os.environ[variable] for name, variable in _FROM_ENVIRONMENT.items() if os.environ.get(variable)}
    values |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentence(source, item) for item in error.errors())) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _sentence(source: Path, item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Config.model_fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; the keys are {', '.join(sorted(Config.model_fields))}"
        return f"{source}: unknown key {key!r}{hint}"
    return f"{source} or command line: {key}: {item['msg']} (got {item['input']!r})"
