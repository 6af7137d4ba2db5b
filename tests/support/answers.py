"""What an answer says, with its shape checked on the way."""

from typing import Any

import httpx

from tests.support.best_schemas import best_errors


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The `error` of a BEST error with that status (H01): `code`, `message`, and `details` if any."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert best_errors("error.json", body) == []
    found: dict[str, Any] = body["error"]
    return found


def code(answer: httpx.Response, status: int) -> str:
    """The code of a BEST error."""
    found: str = error(answer, status)["code"]
    return found


def flat(answer: httpx.Response, status: int = 400) -> str:
    """The code of an error of the sign-in's two URLs (R15), which says in words what is wrong as well."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert set(body) == {"error", "error_description"}
    assert body["error_description"]
    found: str = body["error"]
    return found


def pointers(answer: httpx.Response) -> set[str]:
    """Where the problems of a refusal lie."""
    return {problem["pointer"] for problem in answer.json()["error"]["details"]["problems"]}
