"""References: what is one, how it is completed, which are the same."""

import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adapters.images.port import InvalidReference, Pinned
from adapters.images.reference import MAX_NAME, MAX_TEXT, Reference, is_digest, parse

DIGEST = "sha256:" + "0123456789abcdef" * 4

_path = st.lists(
    st.sampled_from(["a", "0", "thing", "a-b", "a--b", "a_b", "a__b", "a.b", "library"]), min_size=1
)
_host = st.sampled_from(
    ["localhost", "localhost:5000", "127.0.0.1:5000", "quay.io", "a.b-c.example:1", "[::1]:5000"]
)
_tag = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("alpine", "docker.io/library/alpine:latest"),
        ("alpine:3", "docker.io/library/alpine:3"),
        ("docker.io/alpine", "docker.io/library/alpine:latest"),
        ("index.docker.io/library/alpine", "docker.io/library/alpine:latest"),
        ("Index.Docker.io/alpine", "docker.io/library/alpine:latest"),
        ("ollama/ollama:0.40.6-rocm", "docker.io/ollama/ollama:0.40.6-rocm"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("127.0.0.1:5000/a/b:T", "127.0.0.1:5000/a/b:T"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("quay.io/a", "quay.io/a:latest"),
        (f"alpine@{DIGEST}", f"docker.io/library/alpine@{DIGEST}"),
        (f"alpine:3@{DIGEST}", f"docker.io/library/alpine@{DIGEST}"),
    ],
)
def test_a_reference_is_completed_as_docker_completes_it(text: str, full: str) -> None:
    assert str(parse(text)) == full


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ("alpine:3", "alpine"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b"),
        ("localhost:5000/a", "localhost:5000/a"),
        (f"x/y:z@{DIGEST}", "x/y"),
    ],
)
def test_a_pinned_image_keeps_its_repository_as_it_was_written(text: str, repository: str) -> None:
    pinned = parse(text).pinned(DIGEST)
    assert pinned == Pinned(repository, DIGEST)
    assert parse(str(pinned)).is_same_repository(parse(text))
    assert parse(str(pinned)).digest == DIGEST


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "alpine ",
        "al pine",
        "alpine\n",
        "alpine:",
        "alpine:a b",
        "alpine:" + "t" * 129,
        "alpine@",
        "alpine@sha256:abc",
        f"alpine@{DIGEST.upper()}",
        f"alpine@{DIGEST}0",
        "alpine@md5:" + "0" * 32,
        "/alpine",
        "alpine/",
        "a//b",
        "-alpine",
        "alpine-",
        "a..b",
        "a___b",
        "http://quay.io/alpine",
        "quay.io:port/alpine",
        "quay.io:123456/alpine",
        "../../containers/json",
        "a?b",
        "a#b",
        "a%2fb",
        "ünder/x",
        "a/b" + "c" * MAX_TEXT,
        "localhost/" + "a" * MAX_NAME,
        "0123456789abcdef" * 4,
        "@" + DIGEST,
        ":tag",
    ],
)
def test_what_is_no_reference_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        parse(text)
    assert caught.value.fix
    assert len(caught.value.reason) < 300
    assert caught.value.reason.isprintable()


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("Alpine:Edge", "write alpine:Edge"),
        ("quay.io/Some/Thing", "write quay.io/some/thing"),
        (f"Alpine@{DIGEST}", f"write alpine@{DIGEST}"),
        ("Some/Thing", "write some/thing"),
    ],
)
def test_capital_letters_are_refused_with_the_name_in_lower_case(text: str, instead: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        parse(text)
    assert caught.value.fix == instead
    parse(instead.removeprefix("write "))


@settings(deadline=None)
@given(st.text(max_size=60) | st.text("aA.:/@-_0[] \n", max_size=40))
def test_any_text_is_a_reference_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except InvalidReference:
        return
    assert found.text == text
    _is_harmless(found)


@settings(deadline=None)
@given(st.none() | _host, _path, _tag)
def test_every_part_of_a_reference_is_found_again(host: str | None, path: list[str], tag: str) -> None:
    name = "/".join(path)
    first = path[0]
    assume(host is not None or ("." not in first and first != "localhost"))
    text = f"{host}/{name}" if host is not None else name
    assume(len(text) < MAX_NAME - 20)
    found = parse(f"{text}:{tag}")
    assert (found.repository, found.tag, found.digest) == (text, tag, None)
    assert found.registry == (host or "docker.io")
    assert found.path.removeprefix("library/") == name.removeprefix("library/")
    assert str(parse(str(found))) == str(found)
    _is_harmless(found)


@pytest.mark.parametrize(
    "text", ["alpine", "library/alpine:3", "docker.io/alpine", f"index.docker.io/library/alpine@{DIGEST}"]
)
def test_a_repository_is_the_same_however_spelled(text: str) -> None:
    assert parse(text).is_same_repository(parse("alpine"))
    assert parse(text).is_served_by("docker.io")
    assert parse(text).is_served_by("index.docker.io")
    assert not parse(text).is_served_by("quay.io")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("alpine", "alpine2"),
        ("alpine", "other/alpine"),
        ("alpine", "quay.io/library/alpine"),
        ("localhost:5000/a", "localhost:5001/a"),
        ("localhost/a", "localhost:80/a"),
    ],
)
def test_other_repositories_are_others(one: str, other: str) -> None:
    assert not parse(one).is_same_repository(parse(other))


def test_a_hosts_case_makes_no_other_registry() -> None:
    assert parse("Quay.io/a").is_same_repository(parse("quay.io/a"))
    assert parse("Quay.io/a").is_served_by("quay.IO")


def test_a_digest_is_sha256_in_lower_case() -> None:
    assert is_digest(DIGEST)
    assert not is_digest(DIGEST[:-1])
    assert not is_digest(DIGEST.replace("sha256", "sha512"))


def _is_harmless(found: Reference) -> None:
    """What is put into the engine's paths holds nothing that means something there."""
    allowed = set(string.ascii_letters + string.digits + "._-:/@[]")
    assert set(str(found)) <= allowed
    assert not {"", ".", ".."} & set(str(found).split("/"))
    assert found.registry
    assert found.path
    assert (found.tag is None) != (found.digest is None)
