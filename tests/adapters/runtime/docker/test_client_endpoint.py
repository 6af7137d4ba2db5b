"""Which engine Docker's own variables name."""

import ssl
from pathlib import Path

import pytest
import trustme

from adapters.runtime.docker.endpoint import EndpointRefused, endpoint_from

HOME = Path("/home/somebody")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("client.example")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for place, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(folder / "cert.pem", append=place > 0)
    return folder


@pytest.mark.parametrize(
    ("environment", "socket"),
    [
        ({}, "/var/run/docker.sock"),
        ({"DOCKER_HOST": ""}, "/var/run/docker.sock"),
        ({"DOCKER_HOST": " unix:///run/user/1000/docker.sock "}, "/run/user/1000/docker.sock"),
        ({"DOCKER_HOST": "unix:///x", "DOCKER_TLS_VERIFY": "1"}, "/x"),
    ],
)
def test_a_socket_is_reached_by_its_path(environment: dict[str, str], socket: str) -> None:
    endpoint = endpoint_from(environment, home=HOME)
    assert endpoint.socket == Path(socket)
    assert endpoint.tls is None
    assert str(endpoint) == f"unix://{socket}"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("tcp://127.0.0.1:1234", "http://127.0.0.1:1234"),
        ("tcp://127.0.0.1", "http://127.0.0.1:2375"),
        ("tcp://localhost:1234/", "http://localhost:1234"),
        ("tcp://[::1]:1234", "http://[::1]:1234"),
    ],
)
def test_tcp_on_loopback_needs_no_protection(host: str, url: str) -> None:
    endpoint = endpoint_from({"DOCKER_HOST": host}, home=HOME)
    assert (endpoint.base_url, endpoint.socket, endpoint.tls) == (url, None, None)


def test_tcp_over_a_network_is_protected(certificates: Path) -> None:
    variables = {
        "DOCKER_HOST": "tcp://engine.example",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(certificates),
    }
    endpoint = endpoint_from(variables, home=HOME)
    assert endpoint.base_url == "https://engine.example:2376"
    assert endpoint.tls is not None
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    assert endpoint.tls.check_hostname


def test_certificates_lie_in_the_home_folder_when_no_path_says_otherwise(
    certificates: Path, tmp_path: Path
) -> None:
    (tmp_path / ".docker").symlink_to(certificates)
    variables = {"DOCKER_HOST": "tcp://10.0.0.7:2376", "DOCKER_TLS_VERIFY": "1"}
    assert endpoint_from(variables, home=tmp_path).base_url == "https://10.0.0.7:2376"


@pytest.mark.parametrize(
    ("environment", "reason", "fix"),
    [
        ({"DOCKER_HOST": "tcp://10.0.0.7:2375"}, "in the clear", "DOCKER_TLS_VERIFY=1"),
        (
            {"DOCKER_HOST": "tcp://10.0.0.7:2376", "DOCKER_CERT_PATH": "/x"},
            "in the clear",
            "DOCKER_TLS_VERIFY=1",
        ),
        (
            {"DOCKER_HOST": "tcp://engine.example", "DOCKER_TLS_VERIFY": "1"},
            "/home/somebody/.docker",
            "ca.pem",
        ),
        ({"DOCKER_HOST": "ssh://root@host"}, "ssh://host", "forward its socket"),
        ({"DOCKER_HOST": "http://127.0.0.1:2375"}, "http://127.0.0.1:2375", "unix:///"),
        ({"DOCKER_HOST": "npipe:////./pipe/docker_engine"}, "npipe:", "unix:///"),
        ({"DOCKER_HOST": "/var/run/docker.sock"}, "/var/run/docker.sock", "unix:///"),
        ({"DOCKER_HOST": "unix://docker.sock"}, "no absolute path", "unix:///"),
        ({"DOCKER_HOST": "tcp://"}, "no host and port", "tcp://host:2376"),
        ({"DOCKER_HOST": "tcp://host:port"}, "no host and port", "tcp://host:2376"),
        ({"DOCKER_HOST": "tcp://host:99999"}, "no host and port", "tcp://host:2376"),
        ({"DOCKER_HOST": "tcp://[::1"}, "no host and port", "tcp://host:2376"),
        ({"DOCKER_HOST": "tcp://host/path"}, "no host and port", "tcp://host:2376"),
        ({"DOCKER_HOST": "tcp://somebody:hidden@host"}, "tcp://host", "tcp://host:2376"),
    ],
)
def test_another_address_is_refused_with_what_is_supported(
    environment: dict[str, str], reason: str, fix: str
) -> None:
    with pytest.raises(EndpointRefused) as caught:
        endpoint_from(environment, home=HOME)
    assert reason in caught.value.reason
    assert fix in caught.value.fix
    assert "hidden" not in caught.value.reason


def test_certificates_that_cannot_be_used_are_refused(certificates: Path, tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    (tmp_path / "key.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    variables = {"DOCKER_HOST": "tcp://h", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    with pytest.raises(EndpointRefused, match="cannot be used") as caught:
        endpoint_from(variables, home=HOME)
    assert "without a password" in caught.value.fix
