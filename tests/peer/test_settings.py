"""Settings: defaults, each reader, what refuses a start and how it says so (F33, F34)."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from cryptography.hazmat.primitives import serialization

from adapters.certificates import ensure_certificate
from peer.addresses import Address
from peer.logs import LogSpec
from peer.setting import Problem, Setting, SettingsError, shown
from peer.settings import Settings, settings_table
from peer.settings_names import LATER, RETIRED
from peer.settings_text import settings_help, settings_markdown
from peer.units import GIB

REPOSITORY = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4
NOWHERE = {"HOME": "/home/someone", "PATH": "/nowhere"}


def read(**variables: str) -> Settings:
    """Settings from ``LISTEN="..."`` and the like, in a home of their own."""
    return Settings.read(NOWHERE | {f"BEST_PEER_{name}": value for name, value in variables.items()})


def refused(**variables: str) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as caught:
        read(**variables)
    assert len(str(caught.value).splitlines()) == len(caught.value.problems)
    assert caught.value.code == "BAD_SETTINGS"
    return caught.value.problems


def line(**variables: str) -> str:
    """The one line that refuses these."""
    [problem] = refused(**variables)
    return str(problem)


def test_with_nothing_set_everything_has_its_default() -> None:
    settings = read()
    assert settings.listen == Address("127.0.0.1", 7777)
    assert str(settings.endpoint) == "http://127.0.0.1:7777"
    assert settings.data == Path("/home/someone/.best-peer")
    assert settings.models == Path("/home/someone/.best-peer/models")
    assert (settings.cleartext, settings.tls_cert, settings.tls_key) == (None, None, None)
    assert (settings.gpu, settings.runtime, settings.engine_host) == ("nvml", "docker", "127.0.0.1")
    assert (settings.driver_wait, settings.busy, settings.busy_memory) == (0, True, 2 * GIB)
    assert (settings.busy_utilisation, settings.busy_after, settings.free_after) == (0.3, 30, 300)
    assert (settings.pull, settings.model_store, settings.llama_server) == ("always", None, None)
    assert (settings.ollama_image, settings.vllm_image) == (None, "vllm/vllm-openai:v0.32.0")
    assert (settings.engine_memory, settings.engine_pids) == (None, 4096)
    assert (settings.job_memory, settings.job_pids) == (4 * GIB, 4096)
    assert (settings.ready_seconds, settings.load_seconds) == (900, 3600)
    assert (settings.commands_per_minute, settings.streams_per_credential) == (60, 4)
    assert settings.log == LogSpec("info")
    assert settings.warnings == ()


def test_each_setting_is_read(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = read(
        LISTEN="[::1]:0",
        ENDPOINT="https://peer.example/",
        CLEARTEXT="vpn",
        DATA="~/elsewhere",
        GPU="none",
        DRIVER_WAIT="2m",
        BUSY="off",
        BUSY_MEMORY="512M",
        BUSY_UTILISATION="55%",
        BUSY_AFTER="0",
        FREE_AFTER="1h",
        BUSY_EVERY="1m",
        RUNTIME="process",
        PULL="missing",
        OLLAMA_IMAGE="mirror.example:5000/ollama/ollama:0.40.6",
        VLLM_IMAGE=f"mirror.example/vllm@{DIGEST}",
        MODELS=str(tmp_path),
        LLAMA_SERVER=str(program),
        ENGINE_HOST="engines.example",
        READY_SECONDS="15m",
        LOAD_SECONDS="2h",
        ENGINE_MEMORY="8G",
        ENGINE_PIDS="none",
        JOB_MEMORY="none",
        JOB_PIDS="512",
        COMMANDS_PER_MINUTE=" 600 ",
        STREAMS_PER_CREDENTIAL="1",
        LOG="info,door=warning",
    )
    assert settings.listen == Address("::1", 0)
    assert str(settings.endpoint) == "https://peer.example"
    assert settings.data == Path("/home/someone/elsewhere")
    assert (settings.models, settings.llama_server) == (tmp_path, program)
    assert (settings.runtime, settings.engine_host) == ("process", "engines.example")
    assert (settings.pull, settings.ollama_image) == ("missing", "mirror.example:5000/ollama/ollama:0.40.6")
    assert settings.vllm_image == f"mirror.example/vllm@{DIGEST}"
    assert (settings.engine_pids, settings.job_memory, settings.job_pids) == (None, None, 512)
    assert (settings.ready_seconds, settings.load_seconds, settings.engine_memory) == (900, 7200, 8 * GIB)
    assert (settings.commands_per_minute, settings.streams_per_credential) == (600, 1)
    assert (settings.gpu, settings.driver_wait, settings.busy) == ("none", 120, False)
    assert (settings.busy_memory, settings.busy_utilisation) == (512 << 20, 0.55)
    assert (settings.busy_after, settings.free_after, settings.busy_every) == (0, 3600, 60)
    assert settings.log == LogSpec("info", (("door", "warning"),))
    # An https endpoint is served encrypted, whatever else was said.
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LISTEN", "7777", "host:port"),
        ("ENDPOINT", "peer.example", "http:// or https://"),
        ("ENDPOINT", "https://peer.example?x", "no query"),
        ("CLEARTEXT", "yes", "expected vpn"),
        ("GPU", "rocm", "expected nvml or none"),
        ("DRIVER_WAIT", "soon", "30m"),
        ("BUSY", "no", "expected on or off"),
        ("BUSY_MEMORY", "0", "1"),
        ("BUSY_UTILISATION", "0", "expected a whole number from 1"),
        ("BUSY_UTILISATION", "101", "expected a percentage from 1 to 100"),
        ("BUSY_UTILISATION", "0.3", "expected a whole number from 1"),
        ("BUSY_AFTER", "-1", ""),
        ("FREE_AFTER", "5 minutes or so", ""),
        ("BUSY_EVERY", "0", "at least 1s"),
        ("BUSY_EVERY", "61", "1m"),
        ("RUNTIME", "podman", "expected docker, native, process or fake"),
        ("PULL", "never", "expected always or missing"),
        ("OLLAMA_IMAGE", "Ollama", "has capital letters in its name"),
        ("OLLAMA_IMAGE", "ollama ollama", "no reference to an image"),
        ("VLLM_IMAGE", "https://hub.example/vllm", "https: is no registry's host"),
        ("VLLM_IMAGE", "vllm@sha256:12", "64 lower-case hex digits"),
        ("MODEL_STORE", "a\0b", "expected a path"),
        ("DATA", "a\0b", "expected a path"),
        ("DATA", "x" * 5000, "at most 4096 characters"),
        ("ENGINE_HOST", "a b", "an IP address or a host name"),
        ("READY_SECONDS", "soon", "8h, 30m, 2d"),
        ("READY_SECONDS", "0", "at least 1s"),
        ("LOAD_SECONDS", "-1", "8h, 30m, 2d"),
        ("ENGINE_MEMORY", "5M", "at least 6M, or none"),
        ("ENGINE_PIDS", "1", "from 2 to 1000000, or none"),
        ("JOB_MEMORY", "6291455", "at least 6M, or none"),
        ("JOB_MEMORY", "a lot", "40G"),
        ("JOB_PIDS", "2000000", "from 2 to 1000000, or none"),
        ("COMMANDS_PER_MINUTE", "0", "from 1"),
        ("COMMANDS_PER_MINUTE", "1_000", "from 1"),
        ("STREAMS_PER_CREDENTIAL", "four", "from 1"),
        ("LOG", "loud", "a level (debug, info, warning, error)"),
    ],
)
def test_a_bad_value_is_one_line_with_variable_value_and_fix(name: str, value: str, expected: str) -> None:
    text = line(**{name: value})
    assert text.startswith(f"BEST_PEER_{name}=")
    assert expected in text
    assert "; correct it, or unset it (" in text
    assert len(text) < 420
    if value.isprintable() and " " not in value and "=" not in value:
        assert value[:120] in text


@pytest.mark.parametrize("setting", settings_table(), ids=lambda setting: setting.name)
def test_an_empty_value_is_refused_for_every_setting(setting: Setting) -> None:
    with pytest.raises(SettingsError, match=f'{setting.name}="" is refused: it is empty'):
        Settings.read(NOWHERE | {setting.name: ""})


def test_all_that_is_wrong_is_told_at_once_and_nothing_that_follows_from_it() -> None:
    problems = refused(LISTEN="nonsense", ENDPOINT="http://peer.example", LOG="loud", READY_SECONDS="0")
    assert [problem.variable for problem in problems] == [
        "BEST_PEER_LISTEN",
        "BEST_PEER_READY_SECONDS",
        "BEST_PEER_LOG",
    ]


def test_a_value_with_line_breaks_or_a_password_in_it_makes_no_line_and_tells_none() -> None:
    assert "\n" not in line(LOG="info\nBEST_PEER_LOG=fine")
    text = line(ENDPOINT="https://me:hunter2@peer.example")
    assert "hunter2" not in text
    assert "https://...@peer.example" in text
    assert shown("hunter2", secret=True) == "(not shown)"


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_retired_setting_refuses_the_start_and_says_what_replaced_it(name: str) -> None:
    instead = {
        "BEST_PEER_DEPLOYMENTS_PER_HOLDER": "approve CODE --deployments",
        "BEST_PEER_JOBS_PER_HOLDER": "approve CODE --jobs",
        "BEST_PEER_MEMBERS": "clouds of several peers come with it",
    }
    for value in ("2", ""):
        with pytest.raises(SettingsError) as caught:
            Settings.read(NOWHERE | {name: value})
        assert str(caught.value).startswith(f"{name}=")
        assert instead[name] in str(caught.value)


def test_an_unknown_setting_is_named_and_starts_all_the_same() -> None:
    settings = read(LISTN="x", SOMETHING_ELSE="y", TRUST="ca.pem", VERSION="0.0.12", INSTALL_DIR="/opt")
    assert settings.unknown == settings.warnings
    assert settings.unknown == (
        "BEST_PEER_LISTN is no setting and has no effect: did you mean BEST_PEER_LISTEN?",
        "BEST_PEER_SOMETHING_ELSE is no setting and has no effect: best-peer --help lists the settings",
        "BEST_PEER_TRUST has no effect yet: its feature comes with a later release",
    )
    (far,) = read(TEST_BED="/tmp").unknown
    assert "did you mean" not in far
    assert len(read(**{f"NONSENSE_{number}": "x" for number in range(500)}).unknown) == 32


@pytest.mark.parametrize("listen", ["0.0.0.0:7777", "[::]:7777", "[fe80::1%eth0]:7777"])
def test_listening_where_no_address_follows_needs_an_endpoint(listen: str) -> None:
    for cleartext in ({}, {"CLEARTEXT": "vpn"}):
        text = line(LISTEN=listen, **cleartext)
        assert text.startswith("BEST_PEER_ENDPOINT is not set: BEST_PEER_LISTEN=")
        assert "set BEST_PEER_ENDPOINT=https://<address they reach>:7777" in text
    assert read(LISTEN=listen, ENDPOINT="https://peer.example:7777").warnings == ()


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("127.0.0.1:7777", "http://localhost:7777"),
        ("127.1.2.3:7777", "http://127.0.0.1:7777"),
        ("[::1]:7777", "http://[::1]:7777"),
        ("localhost:7777", "http://[::1]:80/peer"),
    ],
)
def test_http_is_served_where_listening_and_being_reached_are_loopback(listen: str, endpoint: str) -> None:
    assert str(read(LISTEN=listen, ENDPOINT=endpoint).endpoint) == endpoint.removesuffix("/").replace(
        ":80/", "/"
    )


@pytest.mark.parametrize(
    ("variables", "off"),
    [
        ({"LISTEN": "192.168.1.5:7777"}, ["LISTEN=192.168.1.5:7777 is not loopback"]),
        (
            {"LISTEN": "0.0.0.0:7777", "ENDPOINT": "http://127.0.0.1:7777"},
            ["LISTEN=0.0.0.0:7777 is not loopback", "ENDPOINT=https://<address they reach>:7777"],
        ),
        (
            {"ENDPOINT": "http://peer.example:7777"},
            ["ENDPOINT=http://peer.example:7777 is not loopback", "ENDPOINT=https://peer.example:7777, or"],
        ),
        (
            {"LISTEN": "10.0.0.1:7777", "ENDPOINT": "http://10.0.0.1:7777"},
            ["LISTEN=10.0.0.1:7777 and BEST_PEER_ENDPOINT=http://10.0.0.1:7777 are not loopback"],
        ),
    ],
)
def test_http_off_loopback_is_refused_naming_which_is_off(variables: dict[str, str], off: list[str]) -> None:
    text = line(**variables)
    assert all(each in text for each in off)
    assert "BEST_PEER_CLEARTEXT=vpn" in text
    # Easily missed 11 has its other half where members are named.
    [warning] = read(**variables, CLEARTEXT="vpn").warnings
    assert "served in the clear" in warning


def test_a_port_left_to_the_system_is_filled_in_once_it_is_bound() -> None:
    settings = read(LISTEN="127.0.0.1:0")
    assert str(settings.endpoint.at_port(40123)) == "http://127.0.0.1:40123"


def test_a_certificate_of_the_operators_own_is_taken_when_it_loads(tmp_path: Path) -> None:
    own = ensure_certificate(tmp_path, "peer.example", (), datetime.now(UTC))
    pair = {"TLS_CERT": str(own.cert_path), "TLS_KEY": str(own.key_path)}
    settings = read(ENDPOINT="https://peer.example:7777", **pair)
    assert (settings.tls_cert, settings.tls_key) == (own.cert_path, own.key_path)
    assert "BEST_PEER_ENDPOINT is http://127.0.0.1:7777" in line(**pair)
    for missing, other in (("TLS_KEY", "TLS_CERT"), ("TLS_CERT", "TLS_KEY")):
        text = line(ENDPOINT="https://peer.example", **{other: pair[other]})
        assert text.startswith(f"BEST_PEER_{missing} is not set: BEST_PEER_{other} is set")


def test_certificate_files_that_are_not_there_are_each_named(tmp_path: Path) -> None:
    problems = refused(
        ENDPOINT="https://peer.example", TLS_CERT=str(tmp_path), TLS_KEY=str(tmp_path / "none")
    )
    assert [problem.variable for problem in problems] == ["BEST_PEER_TLS_CERT", "BEST_PEER_TLS_KEY"]
    assert all("a file that the peer can read" in problem.expected for problem in problems)


def test_a_certificate_file_that_nobody_writes_keeps_no_start_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    problems = refused(
        ENDPOINT="https://peer.example", TLS_CERT=str(tmp_path / "pipe"), TLS_KEY=str(tmp_path / "pipe")
    )
    assert [problem.variable for problem in problems] == ["BEST_PEER_TLS_CERT", "BEST_PEER_TLS_KEY"]


def test_a_pair_that_does_not_load_is_refused_without_asking_for_a_password(tmp_path: Path) -> None:
    own = ensure_certificate(tmp_path / "a", "peer.example", (), datetime.now(UTC))
    other = ensure_certificate(tmp_path / "b", "peer.example", (), datetime.now(UTC))
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(own.key_path.read_bytes(), password=None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter2"),
        )
    )
    for path in (other.key_path, locked, own.cert_path):
        text = line(ENDPOINT="https://peer.example", TLS_CERT=str(own.cert_path), TLS_KEY=str(path))
        assert f"it does not load with BEST_PEER_TLS_KEY={path}" in text
        assert "not encrypted" in text


def test_a_model_folder_or_program_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert "expected a folder that is there" in line(MODELS=str(tmp_path / "none"))
    (tmp_path / "text").write_text("no program")
    for path in (tmp_path, tmp_path / "text", tmp_path / "none"):
        assert f"BEST_PEER_LLAMA_SERVER={path} is refused" in line(LLAMA_SERVER=str(path))


def library(folder: Path) -> Path:
    """Where a library of Ollama would lie."""
    for part in ("blobs", "manifests"):
        (folder / part).mkdir(parents=True)
    return folder


def test_a_model_store_is_read_where_engines_run_in_containers(tmp_path: Path) -> None:
    store = library(tmp_path / "models")
    assert read(MODEL_STORE=str(store)).model_store == store


@pytest.mark.parametrize("runtime", ["native", "process", "fake"])
def test_a_model_store_is_for_containers_alone(tmp_path: Path, runtime: str) -> None:
    """Easily missed 14."""
    text = line(MODEL_STORE=str(library(tmp_path)), RUNTIME=runtime)
    assert text.startswith("BEST_PEER_MODEL_STORE=")
    assert f"BEST_PEER_RUNTIME is {runtime}" in text
    assert "unset it, or set BEST_PEER_RUNTIME=docker" in text


def test_a_model_store_that_cannot_be_read_refuses_the_start(tmp_path: Path) -> None:
    """Easily missed 14. Its parent is named by mistake most often: ~/.ollama and not ~/.ollama/models."""
    library(tmp_path / "ollama" / "models")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file", tmp_path / "ollama"):
        text = line(MODEL_STORE=str(path))
        assert f"BEST_PEER_MODEL_STORE={path} is refused: expected a library of Ollama" in text
        assert "blobs/ and manifests/" in text


def test_llama_server_is_looked_up_on_path(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert Settings.read(NOWHERE | {"PATH": f"/nowhere:{tmp_path}"}).llama_server == program


def test_paths_are_absolute_and_a_missing_home_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(DATA="data/../x").data == tmp_path / "x"
    assert read(DATA="~").data == Path("/home/someone")

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(SettingsError, match=r"BEST_PEER_DATA is not set: .*HOME is not set"):
        Settings.read({"PATH": ""})
    assert Settings.read({"BEST_PEER_DATA": "/data", "PATH": ""}).data == Path("/data")


def test_dockers_own_variables_are_kept_as_they_are() -> None:
    own = {"DOCKER_HOST": "tcp://engine.example:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}
    assert Settings.read(NOWHERE | own | {"DOCKER_CONTEXT": "other"}).docker == own | {
        "HOME": NOWHERE["HOME"]
    }


def test_every_field_but_the_warnings_has_one_entry_in_the_table() -> None:
    table = settings_table()
    names = [setting.name for setting in table]
    fields = [field.name for field in attrs.fields(Settings) if field.name not in {"docker", "unknown"}]
    assert sorted(names) == sorted(f"BEST_PEER_{field.upper()}" for field in fields)
    assert not set(names) & (LATER | RETIRED.keys())
    for setting in table:
        assert setting.default_words
        assert setting.help.endswith(".")
        assert "\n" not in setting.help + setting.takes + setting.default_words


def test_the_help_names_every_setting_with_its_default() -> None:
    text = settings_help(80)
    joined = " ".join(text.split())
    assert all(f"{each.name} (default: {each.default_words})" in joined for each in settings_table())
    assert max(map(len, text.splitlines())) <= 80


def test_the_settings_page_is_up_to_date() -> None:
    assert (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8") == settings_markdown()
    script = [sys.executable, str(REPOSITORY / "scripts/make-settings-docs"), "--check"]
    assert subprocess.run(script, timeout=60, check=False, env=dict(os.environ)).returncode == 0
