"""Images at an engine that answers what no good engine would, played by a transport."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import httpx
import pytest
import trio
import trio.testing

from adapters.images.port import (
    EngineDown,
    ImageFault,
    Pinned,
    PullFailed,
    PullLimits,
    PullProgress,
    RegistryToken,
    RegistryUnreachable,
)
from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.images import DockerImages

DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
VERSION = {"Version": "1", "ApiVersion": "1.41", "MinAPIVersion": "1.12", "Os": "linux", "Arch": "amd64"}
DISTRIBUTION = {"Descriptor": {"digest": DIGEST}, "Platforms": None}
DONE = b'{"status": "Status: Downloaded newer image for thing"}\n'
HELD = {"Id": OTHER, "RepoDigests": [f"thing@{DIGEST}"], "Os": "linux", "Architecture": "amd64", "Size": 1}


@attrs.frozen
class Sent(httpx.AsyncByteStream):
    body: bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body


@attrs.define
class Engine(httpx.AsyncBaseTransport):
    """Answers by the part of a path that the test names; 404 to all else. A callable answers itself."""

    answers: dict[str, object]
    requests: list[httpx.Request] = attrs.field(factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        for part, answer in {"/version": VERSION, **self.answers}.items():
            if part in request.url.path:
                if callable(answer):
                    answer = await answer()
                if isinstance(answer, tuple):
                    return self.reply(answer[0], {"message": answer[1]})
                return self.reply(200, answer)
        return self.reply(404, {"message": "not found"})

    def reply(self, status: int, answer: object) -> httpx.Response:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return httpx.Response(status, stream=Sent(body))

    def asked(self, part: str) -> list[httpx.Request]:
        return [one for one in self.requests if part in one.url.path]


def unheard(progress: PullProgress) -> None:
    """Progress that nobody asks for."""


async def on(engine: Engine, ask: Callable[[DockerImages], Awaitable[object]]) -> object:
    async with DockerClient(unix_endpoint(), transport=engine) as client:
        return await ask(DockerImages(client))


async def hang() -> object:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    "answer",
    [{}, [], None, 7, {"Descriptor": None}, {"Descriptor": {"digest": 7}}, {"Descriptor": {"digest": "x"}}],
)
async def test_a_registry_with_no_digest_cannot_be_used(answer: object) -> None:
    with pytest.raises(RegistryUnreachable, match="no digest"):
        await on(Engine({"/distribution/": answer}), lambda images: images.resolve("thing"))


async def test_a_pull_that_is_done_and_not_there_failed() -> None:
    """moby/moby#8844: what an engine says of a pull is not what it holds."""
    engine = Engine({"/distribution/": DISTRIBUTION, "/images/create": DONE})
    with pytest.raises(PullFailed, match="does not hold it"):
        await on(engine, lambda images: images.pull("thing", unheard))


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b'{"status": "Digest: sha256:00"}\n',
        b'{"id": "a", "status": "Pull complete"}\n',
        b'{"id": "a", "status": "Downlo',
        b"<html>",
        b'{"status": "' + b"x" * 1_000_000 + b'"}\n',
    ],
)
async def test_a_stream_that_does_not_say_that_it_is_done_failed(stream: bytes) -> None:
    engine = Engine({"/distribution/": DISTRIBUTION, "/images/create": stream})
    with pytest.raises(PullFailed):
        await on(engine, lambda images: images.pull("thing", unheard))


async def test_an_error_after_the_end_is_one() -> None:
    stream = DONE + b'{"errorDetail": {"message": "layers from manifest do not match"}}\n'
    engine = Engine({"/distribution/": DISTRIBUTION, "/images/create": stream})
    with pytest.raises(PullFailed, match="layers from manifest"):
        await on(engine, lambda images: images.pull("thing", unheard))


async def test_an_engine_that_finds_a_digest_of_another_repository_does_not_hold_it() -> None:
    """Some find an image by its digest whatever stands before it."""
    found = {**HELD, "RepoDigests": [f"quay.io/thing@{DIGEST}", f"thing@{OTHER}", "<none>@<none>"]}
    engine = Engine({f"@{DIGEST}/json": found})
    assert await on(engine, lambda images: images.held(f"thing@{DIGEST}")) is None


@pytest.mark.parametrize("digests", [None, [], ["<none>@<none>"], [7], "text"])
async def test_an_image_with_no_digest_of_its_own_runs_by_its_id(digests: object) -> None:
    engine = Engine({"/thing:latest/json": {**HELD, "RepoDigests": digests}})
    held = await on(engine, lambda images: images.held("thing"))
    assert held == attrs.evolve(held, run=OTHER, digest=None)  # type: ignore[misc]


async def test_a_name_is_always_spelled_in_full_so_that_it_is_no_beginning_of_an_id() -> None:
    engine = Engine({})
    assert await on(engine, lambda images: images.held("cafe")) is None
    assert engine.requests[-1].url.path == "/v1.41/images/docker.io/library/cafe:latest/json"


@pytest.mark.parametrize(
    ("architecture", "runs"), [("amd64", True), ("386", True), ("arm64", False), ("", False)]
)
async def test_a_machine_runs_what_is_made_for_it(architecture: str, runs: bool) -> None:
    engine = Engine({"/json": {**HELD, "Architecture": architecture}})
    if runs:
        assert await on(engine, lambda images: images.held("thing")) is not None
    else:
        with pytest.raises(ImageFault, match="runs linux on amd64"):
            await on(engine, lambda images: images.held("thing"))


async def test_another_system_is_another_machine() -> None:
    with pytest.raises(ImageFault, match="made for windows on amd64"):
        await on(Engine({"/json": {**HELD, "Os": "windows"}}), lambda images: images.held("thing"))


async def test_a_registry_that_hangs_is_told_from_an_engine_that_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(RegistryUnreachable, match="within 30 s"):
        await on(Engine({"/distribution/": hang}), lambda images: images.resolve("thing"))
    versions = iter([VERSION])

    async def once() -> object:
        found = next(versions, None)
        return found if found is not None else await hang()

    with pytest.raises(EngineDown, match="did not answer GET /version"):
        await on(Engine({"/version": once, "/distribution/": hang}), lambda images: images.resolve("thing"))


async def test_an_engine_that_cannot_look_is_down() -> None:
    engine = Engine({"/json": (500, "layer store is corrupt")})
    with pytest.raises(EngineDown, match="layer store is corrupt"):
        await on(engine, lambda images: images.held("thing"))
    with pytest.raises(EngineDown, match="no JSON"):
        await on(Engine({"/json": b"<html>"}), lambda images: images.held("thing"))


async def test_an_image_that_cannot_be_tagged_was_not_pulled_as_asked() -> None:
    engine = Engine({"/distribution/": DISTRIBUTION, "/json": HELD, "/tag": (500, "read-only file system")})
    with pytest.raises(PullFailed, match="read-only file system"):
        await on(engine, lambda images: images.pull("thing", unheard))


@pytest.mark.parametrize(
    ("status", "fix"), [(409, "end what uses it first"), (500, "see what the engine says")]
)
async def test_a_removal_that_is_refused_says_why(status: int, fix: str) -> None:
    engine = Engine({f"@{DIGEST}": (status, "conflict: it is in use")})
    with pytest.raises(ImageFault, match="it is in use") as caught:
        await on(engine, lambda images: images.remove(Pinned("thing", DIGEST)))
    assert caught.value.fix == fix
    assert "force" not in str(engine.requests[-1].url)


async def test_a_token_travels_as_the_engine_reads_it() -> None:
    """Padded: without its padding an engine takes it for none, and asks as nobody."""
    engine = Engine({"/distribution/": DISTRIBUTION, "/images/create": DONE})
    token = RegistryToken("docker.io", "zz?>")
    with pytest.raises(PullFailed):
        await on(engine, lambda images: images.pull("thing", unheard, token=token))
    for part in ("/distribution/", "/images/create"):
        (request,) = engine.asked(part)
        header = request.headers["x-registry-auth"]
        assert len(header) % 4 == 0
        assert json.loads(base64.urlsafe_b64decode(header)) == {"registrytoken": "zz?>"}
        assert "zz" not in str(request.url)


async def test_without_a_token_none_is_sent() -> None:
    engine = Engine({"/distribution/": DISTRIBUTION})
    await on(engine, lambda images: images.resolve("thing"))
    assert "x-registry-auth" not in engine.requests[-1].headers


async def test_a_pull_names_its_digest_and_never_the_repository_alone() -> None:
    """An engine that is given no tag pulls them all."""
    engine = Engine({"/distribution/": DISTRIBUTION, "/images/create": DONE})
    with pytest.raises(PullFailed):
        await on(engine, lambda images: images.pull("thing", unheard))
    (request,) = engine.asked("/images/create")
    assert dict(request.url.params) == {"fromImage": f"docker.io/library/thing@{DIGEST}"}


async def test_a_pull_held_to_limits_that_is_cancelled_at_its_end_leaves_nothing() -> None:
    """It was cancelled before anybody could look whether the image keeps to them."""
    asked = trio.Event()

    async def wait() -> object:
        asked.set()
        return await hang()

    engine = Engine({"/distribution/": DISTRIBUTION, "/info": {}, "/images/create": wait})
    async with DockerClient(unix_endpoint(), transport=engine) as client:
        images = DockerImages(client)
        async with trio.open_nursery() as nursery:

            async def pull() -> None:
                await images.pull("thing", unheard, limits=PullLimits(most_bytes=1000))

            nursery.start_soon(pull)
            await asked.wait()
            nursery.cancel_scope.cancel()
    deleted = [one.url.path for one in engine.requests if one.method == "DELETE"]
    assert set(deleted) == {f"/v1.41/images/docker.io/library/thing@{DIGEST}"}
