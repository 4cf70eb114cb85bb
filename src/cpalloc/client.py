"""A small HTTP client of the service, on nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cpalloc.errors import CpallocError, InputError, Issue
from cpalloc.schema import Allocation, CheckReport, parse_allocation

T = TypeVar("T")

MAX_TIME_LIMIT_S = 3600.0
"""Longest solve a round may ask for; what a client must be ready to wait for."""

QUEUE_PATIENCE_S = 300.0
"""Seconds a client waits on top, for the queue and the transfer."""


class ServerError(CpallocError):
    """The service cannot be reached, is busy, or failed; ``status`` is ``None`` where there was no HTTP answer."""

    def __init__(self, message: str, *, status: int | None = None, retry_after_s: int | None = None) -> None:
        self.status = status
        self.retry_after_s = retry_after_s
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Talks to one service.

    Parameters
    ----------
    url : str
        Where the service is, e.g. ``http://127.0.0.1:8000``.
    timeout_s : float
        Longest silence of the service that is put up with, in seconds.

    Raises
    ------
    ValueError
        When ``url`` is not an http or https address.

    Examples
    --------
    >>> Client(url="http://127.0.0.1:8000/").url
    'http://127.0.0.1:8000'
    """

    url: str
    timeout_s: float = MAX_TIME_LIMIT_S + QUEUE_PATIENCE_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is not an http or https address")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def solve(self, document: Mapping[str, Any] | bytes, *, deadline_s: float | None = None) -> Allocation:
        """Have a round solved.

        Parameters
        ----------
        document : mapping or bytes
            The round, or its JSON text.
        deadline_s : float, optional
            Seconds after which the service is to answer with the best it has (``X-Server-Timeout``).

        Raises
        ------
        InputError
            When the service refuses the round; with every issue.
        ServerError
            When there is no answer.
        """
        headers = {} if deadline_s is None else {"X-Server-Timeout": f"{deadline_s:.6f}"}
        return self._answer(parse_allocation, self._post("/v1/solve", _encoded(document), headers))

    def check(self, round_document: Mapping[str, Any], allocation_document: Mapping[str, Any]) -> CheckReport:
        """Have an allocation checked against its round; raises as :meth:`solve` does."""
        body = _encoded({"round": round_document, "allocation": allocation_document})
        return self._answer(CheckReport.model_validate_json, self._post("/v1/check", body, {}))

    def post_what_if(self, document: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """Have scenarios compared.

        Returns
        -------
        dict
            The status: its ``id`` is what the other methods take. All raise as :meth:`solve` does.
        """
        return self._answer(_object, self._post("/v1/what-if", _encoded(document), {}))

    def what_if(self, id: str) -> dict[str, Any]:
        """Ask how far a what-if is."""
        return self._answer(_object, self._send("GET", f"/v1/what-if/{id}"))

    def what_if_result(self, id: str) -> dict[str, Any]:
        """Ask for the best so far: ``comparison`` (or None) and the runs that are ``missing``."""
        return self._answer(_object, self._send("GET", f"/v1/what-if/{id}/result"))

    def what_if_page(self, id: str) -> bytes:
        """Ask for the page of what is done (HTML)."""
        return self._send("GET", f"/v1/what-if/{id}/result?format=html")

    def cancel_what_if(self, id: str) -> dict[str, Any]:
        """Stop a what-if; what is done is kept."""
        return self._answer(_object, self._send("DELETE", f"/v1/what-if/{id}"))

    def watch_what_if(self, id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Follow a what-if until it is over.

        Yields
        ------
        tuple of str and dict
            Events by name, with their data: ``status``, then ``run`` and ``progress``, at last ``done``, ``failed`` or
            ``cancelled``.
        """
        name, over = "", False
        with self._open("GET", f"/v1/what-if/{id}/events") as response:
            for line in response:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    over = name in ("done", "failed", "cancelled")
                    yield name, self._answer(_object, value.encode())
        if not over:
            raise ServerError(f"{self.url} broke off; what-if {id} may go on there: see {self.url}/v1/what-if/{id}")

    def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        return self._send("POST", path, body, {"Content-Type": "application/json", **headers})

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        with self._open(method, path, body, headers) as response:
            answer: bytes = response.read()
            return answer

    @contextmanager
    def _open(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Send a request; whatever goes wrong until its answer is read to the end is told as the client's errors."""
        request = urllib.request.Request(
            self.url + path, data=body, method=method, headers={"Accept": "*/*", **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                yield response
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error, error.read()) from None
        except urllib.error.URLError as error:
            raise ServerError(f"cannot reach {self.url}: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.url} broke off: {error or type(error).__name__}") from None

    def _answer(self, parse: Callable[[bytes], T], body: bytes) -> T:
        try:
            return parse(body)
        except (InputError, ValueError):
            raise ServerError(f"{self.url} answered something that is not cpalloc's; is the address right?") from None


def _object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _encoded(document: Mapping[str, Any] | bytes) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def _failure(error: urllib.error.HTTPError, body: bytes) -> CpallocError:
    """Read an RFC 9457 body: issues where there are some, otherwise what the service says in a sentence."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    problem = problem if isinstance(problem, dict) else {}
    try:
        issues = [Issue(i["code"], i["path"], i["message"]) for i in problem.get("issues", ())]
    except (TypeError, KeyError):
        issues = []
    if error.code in (400, 422) and issues:
        return InputError(issues)
    detail = problem.get("detail") or problem.get("title") or error.reason
    retry = error.headers.get("Retry-After", "")
    retry_after_s = int(retry) if retry.isdecimal() else None
    again = "" if retry_after_s is None else f"; try again in {retry_after_s} s"
    return ServerError(f"HTTP {error.code}: {detail}{again}", status=error.code, retry_after_s=retry_after_s)
