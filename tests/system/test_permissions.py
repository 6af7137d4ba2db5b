"""Every kind of key at everything that a door can be asked: allowed, or the exact refusal (F5, F12, F36).

`docs/permissions.md` is made from the same rules, which stand in `tests/support/permissions/`.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.metrics import SERIES as TOLD_SERIES
from peer.door.http import COMMANDS_PATH, STREAM_PATH
from tests.support.agents import begin, envelope
from tests.support.permissions.acts import Act, acts, commands_of, documents_of, scope_of
from tests.support.permissions.answers import INVALID_GRANT, Answer, read
from tests.support.permissions.facts import TYPES, fact_of
from tests.support.permissions.ground import HELD, NOBODYS, REASON, Ground, Request, open_ground
from tests.support.permissions.kinds import EVERYTHING, KINDS, NO_KEY, REFUSED_GRANTS, Kind
from tests.support.permissions.page import markdown
from tests.support.permissions.sight import FACTS, SERIES, devices_of, finds_series, reads_fact, scrapes_all
from tests.support.scrapes import read_answer

if TYPE_CHECKING:
    from peer.door.catalogue import Catalogue

ROOT = Path(__file__).resolve().parents[2]
OPEN = [kind for kind in KINDS if kind.is_open]


def named(kinds: list[Kind] | tuple[Kind, ...]) -> Any:
    """A test's parameters, each with the name that the page has for it."""
    return pytest.mark.parametrize("kind", kinds, ids=[kind.name.replace(" ", "-") for kind in kinds])


def catalogue_of(ground: Ground) -> Catalogue:
    return ground.door.peer.app._door.catalogue


@named(KINDS)
async def test_each_kind_of_key_is_answered_and_shown_what_the_rules_say(tmp_path: Path, kind: Kind) -> None:
    """What it sees first: what it may do changes that, and the last thing is to give itself back."""
    async with open_ground(tmp_path, kind) as ground:
        if kind.is_open:
            await sees_its_metrics(ground)
        if kind.is_open and not kind.is_collectors:
            await sees_its_part(ground)
            await reads_its_facts(ground)
        every = acts(catalogue_of(ground))
        assert await answered_otherwise(ground, every) == []
        assert not kind.may("any") or ground.door.peer.registrar.authenticate(_secret(ground)) is None


async def answered_otherwise(ground: Ground, every: tuple[Act, ...]) -> list[tuple[str, Answer, Answer]]:
    """What was answered in another way than its rule says: what was asked, that, and what came."""
    found = []
    for act in every:
        expected = act.rule(ground.kind)
        request = act.ask(ground)
        came = [await ground.ask(request)]
        if act.group == "Queries":
            came.append(await ground.ask(request, ground.bearer))
        found += [(f"{act.group}, {act.column}: {request}", expected, one) for one in came if one != expected]
    return found


async def sees_its_part(ground: Ground) -> None:
    """Commands, devices and workloads."""
    kind, own, theirs = ground.kind, ground.own, ground.theirs
    listed = (await ground.get("/commands"))["commands"]
    assert {one["commandType"] for one in listed} == commands_of(kind)
    hardware = await ground.get("/queries/get-hardware-state")
    assert {one["id"] for one in hardware["devices"]} == devices_of(kind)
    held = next(one for one in hardware["devices"] if one["id"] == HELD.id)
    assert held["availability"] == {"state": "busy", "reason": REASON}
    seen = await ground.get("/queries/get-workloads")
    visible = [own, theirs] if kind.sees_all else [own]
    assert {one["deployment"] for one in seen["deployments"]} == {work.deployment for work in visible}
    boxed = {one["job"]: one["boxed"] for one in seen["jobs"]}
    assert set(boxed) == {work.job for work in visible}
    assert boxed[own.job] is kind.boxed


async def reads_its_facts(ground: Ground) -> None:
    """One fact of each type, its own and another holder's, and the owner's; on the page and the stream."""
    store, kind = ground.door.peer.house.store, ground.kind
    told = [name for name in TYPES if FACTS[name] != "all"]
    for whose, holder in (("own", ground.own.holder), ("theirs", ground.theirs.holder)):
        await store.events.tell(*(fact_of(name, holder, f"facts-{whose}") for name in told))
        page = await ground.get("/events", correlationId=f"facts-{whose}", limit="500")
        expected = [name for name in told if reads_fact(kind, name, own=whose == "own")]
        assert [fact["type"] for fact in page["events"]] == expected, whose
    # The owner's facts are acted on: none is made up.
    for name in (name for name in TYPES if FACTS[name] == "all"):
        assert store.world.events_told[name]
        page = await ground.get("/events", type=name)
        assert bool(page["events"]) is reads_fact(kind, name, own=False)
    page = await ground.get("/events", limit="500")
    agent = ground.door.agent(_secret(ground))
    async with agent.stream("from the beginning") as listener:
        streamed = [await listener.next() for _ in page["events"]]
    assert streamed == page["events"]


async def sees_its_metrics(ground: Ground) -> None:
    """Which series there are, whose workloads they tell of, and of which devices."""
    kind = ground.kind
    await ground.send(Request("POST", "/commands", json={}), {})  # a refusal to count
    scraped = read_answer(await ground.send(Request("GET", "/metrics")))
    assert set(scraped.series) == {name for name in SERIES if finds_series(kind, name)}
    visible = {ground.own, ground.theirs} if scrapes_all(kind) else {ground.own}
    visible.discard(NOBODYS)
    holders = {ground.theirs.holder} if kind.is_collectors else {work.holder for work in visible}
    for name in ("best_peer_deployment_info", "best_peer_job_info"):
        assert set(scraped.labels(name, "holder")) == holders
    assert set(scraped.labels("best_peer_device_info", "device")) == devices_of(kind)


def _secret(ground: Ground) -> str:
    return ground.bearer["authorization"].removeprefix("Bearer ")


async def test_everything_that_a_door_has_is_asked_of_it(tmp_path: Path) -> None:
    """A new route, command, query, document, fact or series needs a rule, in `acts.py` or `sight.py`."""
    async with open_ground(tmp_path, EVERYTHING) as ground:
        catalogue = catalogue_of(ground)
        every = acts(catalogue)
        rules = ground.door.peer.app._app.url_map.iter_rules()
        routes = {f"{method} {rule.rule}" for rule in rules for method in rule.methods - {"HEAD", "OPTIONS"}}
        # These two are answered before the routes are looked at.
        routes |= {f"POST {COMMANDS_PATH}", f"GET {STREAM_PATH}"}
        assert routes <= {act.route for act in every}
        assert {act.route for act in every} - routes == {"GET /nothing"}
        subjects = {act.subject for act in every}
        commands = set(catalogue.command_types(["all"]))
        assert commands <= subjects
        assert {command: catalogue.command(command).scope for command in commands} == {  # type: ignore[union-attr]
            command: scope_of(command) for command in commands
        }
        for names in documents_of(catalogue).values():
            assert set(names) <= subjects
        assert set(TYPES) == set(catalogue.event_dataschemas) <= set(FACTS)
        assert {series.name for series in TOLD_SERIES} == set(SERIES)


async def test_another_holders_work_is_refused_in_the_words_for_what_is_not_there(tmp_path: Path) -> None:
    """Ids are not secrets: to know one shows nothing, not even that there is something (F5, 26)."""
    (tenant,) = (kind for kind in KINDS if kind.name == "share")
    async with open_ground(tmp_path, tenant) as ground:
        theirs = ground.theirs
        said = {"messages": [{"role": "user", "content": "hello"}]}
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("UndeployModel", "deployment", {}),
            ("Prompt", "deployment", said),
            ("StopJob", "job", {}),
        ]
        for command, field, more in asked:
            texts = []
            for work in (theirs, NOBODYS):
                name = getattr(work, field)
                body = envelope(ground.door.endpoint, command, {field: name, **more})
                answer = await ground.send(Request("POST", "/commands", json=body))
                texts.append((answer.status_code, answer.text.replace(name, "it")))
            assert texts[0] == texts[1]
        for field in ("deployment", "job"):
            texts = []
            for work in (theirs, NOBODYS):
                name = getattr(work, field)
                query = {field: name}
                answer = await ground.send(Request("GET", "/queries/get-workloads", query=query))
                texts.append((answer.status_code, answer.text.replace(name, "it")))
            assert texts[0] == texts[1]
        page = await ground.get("/events", correlationId=theirs.correlation)
        assert page == {"events": []}
        assert theirs.holder not in str(await ground.get("/events", limit="500"))


async def test_no_approval_grants_what_no_key_may_have(tmp_path: Path) -> None:
    async with open_ground(tmp_path, NO_KEY) as ground:
        door, client = ground.door, ground.client
        for each in REFUSED_GRANTS:
            lifetime = {"credential_lifetime": "session"} if each.is_session else {}
            begun = await begin(client, "asker", **lifetime)
            assert read(await door.approve(begun["user_code"], **each.body)) == INVALID_GRANT, each
            denied = await door.admin("POST", "deny", json={"user_code": begun["user_code"]})
            assert denied.status_code == 200, "it was approved after all"


def test_the_permissions_page_is_up_to_date() -> None:
    assert (ROOT / "docs/permissions.md").read_text(encoding="utf-8") == markdown()
    script = runpy.run_path(str(ROOT / "scripts/make-permissions-docs"))
    assert script["main"](["--check"]) == 0
