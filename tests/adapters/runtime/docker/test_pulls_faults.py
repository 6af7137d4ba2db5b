"""What the engine says of a registry's failure, as Docker 20.10 words it, and what is made of it."""

import pytest

from adapters.images.port import (
    ImageDenied,
    ImageFault,
    ImageNotFound,
    ImageUnusable,
    InvalidReference,
    NoRoom,
    PullFailed,
    RegistryToken,
    RegistryUnreachable,
)
from adapters.images.reference import parse
from adapters.runtime.docker.registry_faults import pull_fault, resolve_fault

ASKED = parse("registry.example:5000/team/thing:1")
GET = 'Get "http://registry.example:5000/v2/"'
HEAD = 'Head "http://registry.example:5000/v2/team/thing/manifests/1"'
TOKEN = RegistryToken("registry.example:5000", "tttooken")
DENIED = (
    "errors:\ndenied: requested access to the resource is denied\nunauthorized: authentication required\n"
)
HIDDEN = (
    "pull access denied for registry.example:5000/team/thing, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied"
)

EITHER: list[tuple[int, str, type[ImageFault]]] = [
    (404, "manifest unknown: manifest unknown", ImageNotFound),
    (404, f"manifest for {ASKED.text} not found: manifest unknown: manifest unknown", ImageNotFound),
    (404, "name unknown: repository name not known to registry", ImageNotFound),
    (400, "invalid reference format: repository name must be lowercase", InvalidReference),
    (500, f"{GET}: dial tcp 127.0.0.1:5000: connect: connection refused", RegistryUnreachable),
    (500, f"{GET}: dial tcp: lookup registry.example: no such host", RegistryUnreachable),
    (500, f"{GET}: net/http: request canceled (Client.Timeout exceeded)", RegistryUnreachable),
    (500, f"{GET}: http: server gave HTTP response to HTTPS client", RegistryUnreachable),
    (500, f"{GET}: x509: certificate signed by unknown authority", RegistryUnreachable),
    (500, f"{HEAD}: no basic auth credentials", ImageDenied),
    (500, f"{HEAD}: unauthorized: authentication required", ImageDenied),
    (401, "unauthorized: authentication required", ImageDenied),
    (500, "unauthorized: authentication required", ImageDenied),
    (403, DENIED, ImageNotFound),
    (404, HIDDEN, ImageNotFound),
    (429, "toomanyrequests: You have reached your pull rate limit", RegistryUnreachable),
    (500, "toomanyrequests: You have reached your pull rate limit", RegistryUnreachable),
    (500, "received unexpected HTTP status: 502 Bad Gateway", RegistryUnreachable),
    (500, "received unexpected HTTP status: 503 Service Unavailable", RegistryUnreachable),
]  # fmt: skip


@pytest.mark.parametrize(("status", "message", "expected"), EITHER)
def test_both_ways_to_ask_a_registry_fail_alike(
    status: int, message: str, expected: type[ImageFault]
) -> None:
    for fault in (resolve_fault(ASKED, status, message), pull_fault(ASKED, status, message)):
        assert type(fault) is expected
        assert fault.fix
        assert "team/thing" in fault.reason or expected is RegistryUnreachable


@pytest.mark.parametrize(
    ("status", "message"), [(403, DENIED), (404, HIDDEN), (401, "unauthorized"), (500, "denied: no")]
)
def test_who_shows_a_token_is_told_that_it_does_not_open_the_image(status: int, message: str) -> None:
    assert type(resolve_fault(ASKED, status, message, token=TOKEN)) is ImageDenied
    assert type(pull_fault(ASKED, status, message, token=TOKEN)) is ImageDenied


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("unknown blob", PullFailed),
        ("unexpected EOF", PullFailed),
        ("filesystem layer verification failed for digest sha256:00", PullFailed),
        (
            "error pulling image configuration: image config verification failed for digest sha256:00",
            PullFailed,
        ),
        (
            'Get "http://registry.example:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection refused',
            PullFailed,
        ),
        ("context canceled", PullFailed),
        ("no matching manifest for linux/amd64 in the manifest list entries", ImageUnusable),
        ('image operating system "windows" cannot be used on this platform', ImageUnusable),
        ("denied: requested access to the resource is denied", ImageDenied),
        ("toomanyrequests: slow down", RegistryUnreachable),
        (
            "failed to register layer: Error processing tar file: write /x: no space left on device",
            NoRoom,
        ),
        ("write /var/lib/docker/tmp/GetImageBlob123: no space left on device", NoRoom),
        ("write /var/lib/docker/tmp/GetImageBlob123: disk quota exceeded", NoRoom),
    ],
)
def test_what_breaks_a_pull_that_had_begun(message: str, expected: type[ImageFault]) -> None:
    fault = pull_fault(ASKED, None, message)
    assert type(fault) is expected
    assert message.split(":")[0] in fault.reason


def test_an_engine_that_cannot_write_has_no_room_whatever_the_status() -> None:
    assert type(pull_fault(ASKED, 500, "mkdir /var/lib/docker/tmp: no space left on device")) is NoRoom


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("http: server gave HTTP response to HTTPS client", "insecure-registries"),
        ("x509: certificate signed by unknown authority", "/etc/docker/certs.d/registry.example:5000/ca.crt"),
        ("dial tcp: connection refused", "try again"),
    ],
)
def test_the_fix_is_the_one_for_what_is_wrong_with_the_way_to_it(message: str, fix: str) -> None:
    assert fix in resolve_fault(ASKED, 500, message).fix


def test_no_credential_is_shown() -> None:
    message = (
        'Get "https://cdn.example/blobs/sha256/ab?X-Signature=signed&X-Token=hidden": EOF; sent Bearer '
        'tttooken to "https://auth.example/token?account=me"'
    )
    for fault in (
        resolve_fault(ASKED, 500, message, token=TOKEN),
        pull_fault(ASKED, None, message, token=TOKEN),
    ):
        shown = fault.reason + fault.fix + repr(fault) + str(fault)
        assert "https://cdn.example/blobs/sha256/ab?…" in shown
        for secret in ("signed", "hidden", "account=me", TOKEN.token):
            assert secret not in shown
    assert TOKEN.token not in repr(TOKEN)


def test_what_is_said_is_kept_short_and_on_one_line() -> None:
    fault = resolve_fault(ASKED, 500, "word\n" * 1000)
    assert len(fault.reason) < 600
    assert "\n" not in fault.reason
