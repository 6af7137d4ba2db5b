"""`docs/errors.md` lists every code that the door, the sign-in and the facts can say, and no other."""

from __future__ import annotations

import ast
import importlib
import re
import typing
from pathlib import Path

from adapters.engine.port import EngineFault
from adapters.images.port import ImageFault, RoomUnknown, TooLarge
from adapters.runtime.port import StartFailed
from peer.door import limits, signin
from peer.door.problems import STATUS
from peer.door.validation import ProblemCode

ROOT = Path(__file__).parents[2]
FACTS = (
    *("deployment.py", "job.py", "jobends.py", "launch.py"),
    *("loading.py", "prompt.py", "pull.py", "tree.py"),
)
"""The actors that tell of failures."""
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_CODE = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)+|INTERNAL|INTERRUPTED|UNAUTHORIZED|FORBIDDEN")


def tables() -> dict[str, dict[str, str]]:
    """Code and second column of each table, by its heading; every row says when, and what to do."""
    found = {}
    for section in (ROOT / "docs" / "errors.md").read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        rows = _ROW.findall(section)
        assert len(rows) == section.count("\n| `"), heading
        assert all(when.strip() and fix.strip() for _, _, when, fix in rows)
        found[heading] = {code: second.strip() for code, second, _, _ in rows}
        assert len(found[heading]) == len(rows), heading
    return found


def calls(path: Path, *names: str) -> list[list[object]]:
    """The constants that calls of these names begin with, where they begin with one."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            constants: list[object] = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            if constants:
                found.append(constants)
    return found


def texts(path: Path) -> set[str]:
    """Every string in a module."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def sources() -> list[Path]:
    return [*(ROOT / "actors").rglob("*.py"), *(ROOT / "peer" / "door").rglob("*.py")]


def of_the_server() -> dict[str, int]:
    """Code and status of what the server refuses before the door is asked."""
    found = calls(Path(limits.__file__), "Refusal")
    return {code: status for status, code in found if isinstance(status, int) and isinstance(code, str)}


def test_each_code_is_listed_with_its_status() -> None:
    listed: dict[str, int] = {}
    for heading, rows in tables().items():
        if heading not in {"Signing in", "In facts"}:
            assert not set(listed) & set(rows)
            listed |= {code: int(status) for code, status in rows.items()}
    assert listed == {**STATUS, **of_the_server()}
    shared = set(STATUS) & set(of_the_server())
    assert {code: STATUS[code] for code in shared} == {code: of_the_server()[code] for code in shared}


def test_every_code_that_is_said_has_a_status() -> None:
    said = {
        str(arguments[0])
        for path in sources()
        if path != Path(limits.__file__)
        for arguments in calls(path, "Refusal", "error_body")
    }
    said |= set(typing.get_args(ProblemCode))
    assert len(said) > 30
    assert said <= set(STATUS)


def test_no_status_is_kept_for_a_code_that_nobody_says() -> None:
    said = {fault.code for fault in faults()}
    for path in sources():
        if path.name != "problems.py":
            said |= texts(path)
    assert set(STATUS) <= said


def faults() -> set[type[EngineFault | ImageFault]]:
    found: set[type[EngineFault | ImageFault]] = set()
    waiting: list[type[EngineFault | ImageFault]] = [EngineFault, ImageFault]
    while waiting:
        for fault in waiting.pop().__subclasses__():
            found.add(fault)
            waiting.append(fault)
    told = found - {TooLarge, RoomUnknown}  # raised to who sets limits to a pull, which nobody does yet
    return {fault for fault in told if fault.__module__.startswith(("actors.", "adapters."))}


def test_the_facts_codes_are_listed() -> None:
    for actor in ("actors.loading", "actors.image"):
        importlib.import_module(actor)  # its faults are among them
    listed = set(tables()["In facts"]) | set(STATUS)
    said = {fault.code for fault in faults()}
    said |= set(_CODE.findall(StartFailed.__doc__ or ""))
    for name in FACTS:
        said |= {text for text in texts(ROOT / "actors" / name) if _CODE.fullmatch(text)}
    assert said <= listed
    assert set(tables()["In facts"]) <= said


def test_the_sign_ins_errors_are_listed() -> None:
    said: dict[str, str] = {}
    for path in (Path(signin.__file__), ROOT / "actors" / "registrar.py"):
        for name, *_ in calls(path, "OAuthError", "PollRefused"):
            said[str(name)] = "503" if name == "temporarily_unavailable" else "400"
    assert tables()["Signing in"] == said
