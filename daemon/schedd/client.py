"""A client of the daemon's API: one class, standard library only, so that the command line starts fast.

It knows the socket, the routes and the shapes of `schedd.answers`; it refuses to know what an answer means to a
person (`cli`) and how the daemon makes it (`api`). One `Client` is for one thread at a time.

    with Client() as schedd:
        batch = schedd.submit({"name": "ci", "tasks": {"build": {"run": "make"}}})
        if schedd.wait(batch["ids"])["unsuccessful"]: ...

What goes wrong is a `ClientError`: `NoDaemon` (nothing to talk to), `ProblemError` (it said no, and why), `NoAnswer`
(a question stayed unanswered) or `OutcomeUnknown` (so did a change, which may have been made).
Tests: tests/api/test_client*.py.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from schedd.answers import (
    BatchView,
    CheckAnswer,
    DependAnswer,
    ErrorItem,
    EventsAnswer,
    EventView,
    Health,
    PausedAnswer,
    PruneAnswer,
    ResultsAnswer,
    RetryAnswer,
    StatusAnswer,
    SubmitAnswer,
    TaskDetail,
    TasksAnswer,
    TaskView,
    UndependAnswer,
    WaitAnswer,
)
from schedd.connection import ClientError, NoDaemon, SocketPathTooLong, UnixConnection
from schedd.paths import default_socket

MAX_TARGET_BYTES = 200_000
"""The longest path and query that is sent; the daemon takes a little more (`api.server`)."""

TIMEOUT_S = 60.0
CHECK_PATIENCE_S = 3_600.0
TRIES = 9
COST_OF_BUSY = 3
"""How many tries a 503 costs: it comes after seconds of the daemon's own patience, a lost connection at once."""

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
LONG_POLL_S = 30.0
CHUNK_BYTES = 65_536


class NoAnswer(NoDaemon):
    """The daemon did not answer a question; nothing was to be changed by it."""


class OutcomeUnknown(ClientError):
    """The daemon did not say whether it made a change. Repeated with the same `key` it is made once at most."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(f"{message}; the outcome is unknown, repeat it with the idempotency key {key} to be sure")
        self.key = key


class ProblemError(ClientError):
    """The daemon refused a request: `code` for programs, `detail` for people, `errors` with a place for each."""

    def __init__(self, status: int, code: str, detail: str, errors: list[ErrorItem] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []


class _Request(NamedTuple):
    """What is sent, and how long its answer may take in seconds."""

    method: str
    target: str
    body: bytes | None
    headers: dict[str, str]
    timeout_s: float | None


class _Lost(Exception):
    """The connection broke. `sent` is False if the daemon cannot have taken the request for a whole one."""

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent


class Client:
    """Talks to the daemon on one kept-alive connection, made when it is first needed and made again when it broke.

    Every method may raise NoDaemon, NoAnswer or ProblemError; those that change something OutcomeUnknown instead of
    NoAnswer. `timeout` bounds the wait for an answer in seconds; long polls add their own time to it.
    """

    def __init__(self, socket_path: str | Path | None = None, timeout: float = TIMEOUT_S) -> None:
        self.socket_path = Path(socket_path) if socket_path is not None else default_socket()
        self._timeout = timeout
        self._connection: UnixConnection | None = None

    def close(self) -> None:
        """Let go of the connection. The client may be used again, on a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- changes ------------------------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any] | bytes, key: str | None = None) -> SubmitAnswer:
        """Submit a batch: its spec as an object, or as JSON text in UTF-8. Accepted whole or refused whole."""
        body = spec if isinstance(spec, bytes) else _encode(spec)
        return cast("SubmitAnswer", self._change("/v1/batches", body, key))

    def cancel(self, ids: Iterable[str], key: str | None = None) -> ResultsAnswer:
        """Cancel tasks, by id or by batch name; each is judged by itself."""
        return cast("ResultsAnswer", self._change("/v1/cancel", _encode({"ids": list(ids)}), key))

    def hold(self, ids: Iterable[str], key: str | None = None) -> ResultsAnswer:
        """Keep tasks from starting their next attempt."""
        return cast("ResultsAnswer", self._change("/v1/hold", _encode({"ids": list(ids)}), key))

    def release(self, ids: Iterable[str], key: str | None = None) -> ResultsAnswer:
        """Undo holds."""
        return cast("ResultsAnswer", self._change("/v1/release", _encode({"ids": list(ids)}), key))

    def retry(
        self,
        ids: Iterable[str],
        *,
        downstream: bool = False,
        only_failed: bool = False,
        dry_run: bool = False,
        key: str | None = None,
    ) -> RetryAnswer:
        """Run ended tasks again, with what was skipped only because of them (`downstream`: and what ran after them)."""
        asked = {"ids": list(ids), "downstream": downstream, "only_failed": only_failed, "dry_run": dry_run}
        return cast("RetryAnswer", self._change("/v1/retry", _encode(asked), key))

    def undepend(self, before: str, after: str, key: str | None = None) -> UndependAnswer:
        """Let `after` wait for `before` no longer."""
        edge = {"before": before, "after": after}
        return cast("UndependAnswer", self._change("/v1/undepend", _encode(edge), key))

    def pause(self, key: str | None = None) -> PausedAnswer:
        """Start no further attempt of any task until `resume`."""
        return cast("PausedAnswer", self._change("/v1/pause", b"{}", key))

    def resume(self, key: str | None = None) -> PausedAnswer:
        """Undo a pause."""
        return cast("PausedAnswer", self._change("/v1/resume", b"{}", key))

    def depend(self, before: str, after: str, when: str | None = None, key: str | None = None) -> DependAnswer:
        """Let `after` wait for `before`; `when` is succeeded (the default), failed or finished."""
        edge = {"before": before, "after": after} | ({"when": when} if when else {})
        return cast("DependAnswer", self._change("/v1/depend", _encode(edge), key))

    def prune(self, older_than: float, keep_last: int = 0, *, dry_run: bool = False) -> PruneAnswer:
        """Remove what ended longer than `older_than` seconds ago, for a few seconds; ask again while there is more."""
        asked = {"older_than": older_than, "keep_last": keep_last, "dry_run": dry_run}
        return cast("PruneAnswer", self._change("/v1/prune", _encode(asked), None))

    # --- questions ----------------------------------------------------------------------------------------------

    def status(self) -> StatusAnswer:
        """The daemon at a glance."""
        return cast("StatusAnswer", self._ask("/v1/status"))

    def health(self) -> Health:
        """Whether it lives, accepts work, and what it has to hold back."""
        return cast("Health", self._ask("/v1/health"))

    def check(self) -> CheckAnswer:
        """What is wrong with the daemon's rows and log files. Takes as long as it takes to read them all."""
        return cast("CheckAnswer", self._ask("/v1/check", poll_s=CHECK_PATIENCE_S))

    def tasks(
        self,
        status: Iterable[str] = (),
        batch: str | None = None,
        ids: Iterable[str] = (),
        limit: int | None = None,
        after: int | None = None,
    ) -> TasksAnswer:
        """One page of the tasks that are in any of `status`, of `batch` and among `ids`, as far as these are given."""
        query = [("status", value) for value in status] + [("id", value) for value in ids]
        for name, value in (("batch", batch), ("limit", limit), ("after", after)):
            if value is not None:
                query.append((name, str(value)))
        return cast("TasksAnswer", self._ask("/v1/tasks", query))

    def iter_tasks(
        self,
        status: Iterable[str] = (),
        batch: str | None = None,
        ids: Iterable[str] = (),
        limit: int | None = None,
        page: int = 1_000,
    ) -> Iterator[TaskView]:
        """The same tasks, page after page, `limit` of them at most. What changes meanwhile may be missed."""
        wanted, names = tuple(status), tuple(ids)
        left, after = limit, None
        while left is None or left > 0:
            answer = self.tasks(wanted, batch, names, page if left is None else min(left, page), after)
            yield from answer["tasks"]
            after = answer["next"]
            if after is None:
                return
            left = None if left is None else left - len(answer["tasks"])

    def task(self, task_id: str) -> TaskDetail:
        """One task with all that is known of it."""
        return cast("TaskDetail", self._ask("/v1/task", [("id", task_id)]))

    def batch(self, name: str) -> BatchView:
        """One batch by its full name."""
        return cast("BatchView", self._ask("/v1/batch", [("name", name)]))

    def wait(self, ids: Iterable[str], timeout: float | None = None) -> WaitAnswer:
        """Wait until the tasks and batches named have all ended; at the timeout the answer has `done` False."""
        names = [("id", name) for name in ids]
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            poll_s = LONG_POLL_S if deadline is None else min(max(deadline - time.monotonic(), 0.0), LONG_POLL_S)
            answer = cast("WaitAnswer", self._ask("/v1/wait", [*names, ("timeout", f"{poll_s:.3f}")], poll_s))
            if answer["done"] or (deadline is not None and time.monotonic() >= deadline):
                return answer

    def events(self, after: int = 0, limit: int | None = None, timeout: float = 0.0) -> EventsAnswer:
        """Lines of the ordered log that follow the one with the id `after`.

        With a timeout (60 seconds at most) it waits for the first of them if there is none yet.
        """
        query = [("after", str(after)), ("timeout", f"{timeout:.3f}")]
        if limit is not None:
            query.append(("limit", str(limit)))
        return cast("EventsAnswer", self._ask("/v1/events", query, timeout))

    def iter_events(self, after: int = 0, follow: bool = False) -> Iterator[EventView]:
        """Every line that follows `after`, in order; with `follow` it goes on to wait for more, without end."""
        while True:
            answer = self.events(after, timeout=LONG_POLL_S if follow else 0.0)
            yield from answer["events"]
            if not answer["events"] and not follow:
                return
            after = answer["next"]

    def log(self, task_id: str, attempt: int | None = None, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """The output of an attempt (of the last one, unless told which) from a byte offset on, in chunks.

        With `follow` it goes on while the attempt runs and ends with it. On a connection of its own, which is closed
        when the iterator is.
        """
        query = [("id", task_id), ("offset", str(offset)), ("follow", "1" if follow else "0")]
        if attempt is not None:
            query.append(("attempt", str(attempt)))
        connection = UnixConnection(self.socket_path, self._timeout)
        try:
            response = _exchange(connection, _Request("GET", _target("/v1/log", query), None, {}, self._timeout))
            if response.status != 200:
                raise _problem(response.status, response.read())
            if follow and connection.sock is not None:
                connection.sock.settimeout(None)  # a task may be silent for as long as it likes
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (_Lost, OSError, HTTPException) as error:
            raise NoAnswer(f"the log of {task_id} broke off ({error}); ask again from there") from error
        finally:
            connection.close()

    # --- the connection -----------------------------------------------------------------------------------------

    def _ask(self, path: str, query: Iterable[tuple[str, str]] = (), poll_s: float = 0.0) -> Any:
        target = _target(path, query)

        def failure(reason: str) -> ClientError:
            return NoAnswer(f"schedd at {self.socket_path} did not answer: {reason}")

        return self._persist(_Request("GET", target, None, {}, self._timeout + poll_s), failure)

    def _change(self, path: str, body: bytes, key: str | None) -> Any:
        key = key or os.urandom(16).hex()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}

        def failure(reason: str) -> ClientError:
            return OutcomeUnknown(f"schedd at {self.socket_path} did not answer: {reason}", key)

        return self._persist(_Request("POST", path, body, headers, self._timeout), failure)

    def _persist(self, request: _Request, failure: Callable[[str], ClientError]) -> Any:
        """The answer, after as many tries as it takes, within bounds.

        Repeated are requests whose connection was lost or that were answered 503: questions change nothing, and
        changes carry a key that lets the daemon make them once. The first repetition comes at once, because a
        connection kept too long is no fault. `failure(reason)` makes the error of the last try.
        """
        tries, pause_s, maybe_taken = TRIES, 0.0, False
        while True:
            try:
                status, answer = self._try(request)
            except TimeoutError:
                raise failure(f"it took longer than {request.timeout_s:g} s") from None
            except NoDaemon:
                if not maybe_taken:
                    raise
                tries, reason = tries - 1, "it went away and has not come back"
            except _Lost as lost:
                maybe_taken = maybe_taken or lost.sent
                tries, reason = tries - 1, f"the connection was lost ({lost})"
            else:
                if status < 400:
                    return _decode(status, answer)
                problem = _problem(status, answer)
                if status != 503:
                    raise problem
                maybe_taken = True
                tries, reason = tries - COST_OF_BUSY, problem.detail
            if tries <= 0:
                raise failure(reason)
            time.sleep(pause_s)
            pause_s = min(max(pause_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)

    def _try(self, request: _Request) -> tuple[int, bytes]:
        """Status and body of one try. Raises NoDaemon, _Lost or TimeoutError; then the connection is closed."""
        if self._connection is None:
            self._connection = UnixConnection(self.socket_path, self._timeout)
        connection = self._connection
        whole = False
        try:
            response = _exchange(connection, request)
            answer = response.read()
            whole = True
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise _Lost(error, sent=True) from error
        finally:
            if not whole or response.will_close:
                self.close()
        return response.status, answer


def _exchange(connection: UnixConnection, request: _Request) -> HTTPResponse:
    """Send a request and read the head of its answer. Raises NoDaemon, _Lost or TimeoutError."""
    if connection.sock is None:
        connection.connect()
    connection.sock.settimeout(request.timeout_s)
    broken: OSError | None = None
    try:
        connection.request(request.method, request.target, body=request.body, headers=request.headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        broken = error  # the daemon may have answered before it had read all, as it does when a body is too large
    try:
        return connection.getresponse()
    except TimeoutError:
        raise
    except (OSError, HTTPException) as error:
        raise _Lost(broken or error, sent=broken is None) from error


def _target(path: str, query: Iterable[tuple[str, str]]) -> str:
    pairs = list(query)
    target = f"{path}?{urlencode(pairs)}" if pairs else path
    if len(target) > MAX_TARGET_BYTES:
        raise ProblemError(414, "too_large", "too many ids for one request; name fewer at a time, or their batch")
    return target


def _encode(value: Any) -> bytes:
    """JSON text. What JSON has no word for (a lone surrogate, NaN) is sent as Python writes it, and refused there."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _decode(status: int, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise ProblemError(status, "internal", "the answer is not JSON; is it schedd that listens there?") from None


def _problem(status: int, answer: bytes) -> ProblemError:
    """The error that an answer tells of; one that is not schedd's own is quoted."""
    try:
        body = json.loads(answer)
        return ProblemError(status, str(body["code"]), str(body["detail"]), body.get("errors"))
    except (ValueError, KeyError, TypeError):
        quoted = answer[:200].decode("utf-8", "replace").strip()
        code = "unavailable" if status == 503 else "internal"
        return ProblemError(status, code, f"schedd answered {status}: {quoted or 'nothing more'}")


__all__ = [
    "Client",
    "ClientError",
    "NoAnswer",
    "NoDaemon",
    "OutcomeUnknown",
    "ProblemError",
    "SocketPathTooLong",
    "default_socket",
]
