"""What stands in the body of a container's creation, property by property."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from adapters.runtime.docker.confine import (
    SHM_BYTES,
    ImageConfig,
    bind_address,
    creation,
    is_about_devices,
)
from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.docker.labels import labels_of
from adapters.runtime.port import Container, Mount, StartFailed, WorkloadSpec

ENGINE = EngineInfo("28.3.2", cores=8, isolation="container")
IMAGE = "registry.test/tool@sha256:1"


def body(
    *,
    engine: EngineInfo = ENGINE,
    image: ImageConfig | None = None,
    spec: dict[str, Any] | None = None,
    **program: Any,
) -> dict[str, Any]:
    container = Container(IMAGE, **program)
    workload = WorkloadSpec("job-1", "h-1", container, **(spec or {}))
    return creation(
        workload,
        container,
        image or ImageConfig(),
        engine,
        labels=labels_of(workload, "p-1"),
        network="bp-p-1",
        publish_on="127.0.0.1",
    )


def host(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = body(**more)["HostConfig"]
    return made


def variables(**more: Any) -> dict[str, str | None]:
    """What is set, and as None what is unset."""
    pairs = [line.partition("=") for line in body(**more)["Env"]]
    assert len({name for name, _, _ in pairs}) == len(pairs), "a variable stands twice"
    return {name: value if equals else None for name, equals, value in pairs}


@pytest.mark.parametrize("is_boxed", [True, False])
def test_every_container_is_confined(is_boxed: bool) -> None:
    """Its log is bounded (docker/for-linux#985), and nobody but the peer starts it (docker/for-linux#15)."""
    made = host(is_boxed=is_boxed, tasks=77)

    assert made["CapDrop"] == ["ALL"]
    assert made["CapAdd"] == []
    assert made["Privileged"] is False
    assert made["SecurityOpt"] == ["no-new-privileges"]
    assert made["PidsLimit"] == 77
    assert made["Init"] is True
    assert {"Name": "core", "Soft": 0, "Hard": 0} in made["Ulimits"]
    assert made["IpcMode"] == "private"
    assert made["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}}
    assert made["RestartPolicy"] == {"Name": "no"}
    assert made["AutoRemove"] is False
    assert not made.keys() & {"Devices", "DeviceCgroupRules", "PidMode", "UTSMode", "UsernsMode", "Binds"}


def test_a_ceiling_on_tasks_may_be_none() -> None:
    assert host(tasks=None)["PidsLimit"] is None


def test_no_image_decides_on_its_health_check() -> None:
    assert body()["Healthcheck"] == {"Test": ["NONE"]}


def test_profiles_are_named_as_the_engine_has_them() -> None:
    engine = attrs.evolve(ENGINE, seccomp="builtin", has_apparmor=True)

    assert host(engine=engine)["SecurityOpt"] == [
        "no-new-privileges",
        "seccomp=builtin",
        "apparmor=docker-default",
    ]


def test_a_box_has_nothing_to_write_but_a_private_tmp() -> None:
    made = host(is_boxed=True)

    assert made["ReadonlyRootfs"] is True
    assert made["Tmpfs"] == {"/tmp": "rw,exec,nosuid,nodev,size=1073741824,mode=1777,uid=65534,gid=65534"}
    assert made["ShmSize"] == SHM_BYTES


def test_a_box_has_no_network_and_nobodys_user() -> None:
    made = body(is_boxed=True)

    assert made["HostConfig"]["NetworkMode"] == "none"
    assert made["User"] == "65534:65534"


@pytest.mark.parametrize(("cores", "nano"), [(1, 500_000_000), (3, 1_500_000_000), (64, 32_000_000_000)])
def test_a_box_has_half_the_cores(cores: int, nano: int) -> None:
    assert host(engine=attrs.evolve(ENGINE, cores=cores), is_boxed=True)["NanoCpus"] == nano


def test_a_box_has_the_files_that_the_engine_can_give() -> None:
    given = {"Name": "nofile", "Soft": 65536, "Hard": 65536}

    assert given in host(is_boxed=True)["Ulimits"]
    lower = host(engine=attrs.evolve(ENGINE, open_files=None), is_boxed=True)
    assert [limit["Name"] for limit in lower["Ulimits"]] == ["core"]


def test_what_is_not_boxed_is_on_the_peers_network_and_keeps_its_files_and_its_user() -> None:
    made = body()

    assert made["HostConfig"]["NetworkMode"] == "bp-p-1"
    assert not made["HostConfig"].keys() & {"ReadonlyRootfs", "Tmpfs", "NanoCpus", "Memory"}
    assert "User" not in made


def test_a_ceiling_on_memory_counts_swap() -> None:
    made = host(spec={"memory_bytes": 1 << 30})

    assert made["Memory"] == made["MemorySwap"] == 1 << 30
    assert "MemorySwappiness" not in made


def test_where_swap_is_not_counted_nothing_is_swapped() -> None:
    engine = attrs.evolve(ENGINE, counts_swap=False)

    assert host(engine=engine, spec={"memory_bytes": 1 << 30})["MemorySwappiness"] == 0
    assert "MemorySwappiness" not in host(engine=engine)


def test_volumes_of_an_image_are_private_in_a_box() -> None:
    image = ImageConfig(volumes=("/data/", "/var//lib/x", "/tmp", "/in/../out"))

    assert host(image=image, is_boxed=True)["Tmpfs"].keys() == {"/tmp", "/data", "/var/lib/x", "/out"}
    assert "Tmpfs" not in host(image=image)


def test_a_volume_where_a_disk_is_mounted_is_that_disk() -> None:
    image = ImageConfig(volumes=("/out",))

    assert host(image=image, is_boxed=True, mounts=(Mount(Path("/d"), "/out/"),))["Tmpfs"].keys() == {"/tmp"}


@pytest.mark.parametrize(
    "volume", ["data", "../data", "/", "//", "/.", "/proc", "/sys/fs/cgroup", "/dev/shm/x", ""]
)
def test_volumes_that_cannot_be_private_are_refused_in_a_box(volume: str) -> None:
    with pytest.raises(StartFailed, match="volume") as failed:
        body(image=ImageConfig(volumes=(volume,)), is_boxed=True)

    assert "VOLUME" in failed.value.fix


def test_more_volumes_than_any_image_needs_are_refused_in_a_box() -> None:
    with pytest.raises(StartFailed, match="65 volumes"):
        body(image=ImageConfig(volumes=tuple(f"/v{n}" for n in range(65))), is_boxed=True)


def test_cards_are_handed_over_by_uuid_and_for_computing_alone() -> None:
    made = host(spec={"device_uuids": ("GPU-1", "MIG-2")})

    assert made["DeviceRequests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-1", "MIG-2"], "Capabilities": [["gpu", "compute", "utility"]]}
    ]


WANTING = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "NVIDIA_MIG_CONFIG_DEVICES": "all",
    "NVIDIA_GDS": "enabled",
    "NVIDIA_MOFED": "enabled",
    "NVIDIA_IMEX_CHANNELS": "0",
    "DOCKER_RESOURCE_GPU": "all",
    "ROCR_VISIBLE_DEVICES": "0",
    "ASCEND_VISIBLE_DEVICES": "0-7",
}


def test_neither_image_nor_job_says_which_cards_are_seen() -> None:
    """bottlerocket-os/bottlerocket#3718: an image that asked for all cards in its environment saw all."""
    image = ImageConfig(variables=(*WANTING, "PATH"))
    granted = variables(image=image, environment=WANTING, spec={"device_uuids": ("GPU-1", "GPU-2")})
    nothing = variables(image=image, environment=WANTING)

    rest = dict.fromkeys(WANTING.keys() - {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"})
    assert granted == {
        **rest,
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    assert nothing == {**rest, "NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": None}
    assert "DeviceRequests" not in host(environment=WANTING)


@pytest.mark.parametrize(
    "name", ["NVIDIA_REQUIRE_CUDA", "NVIDIA_TF32_OVERRIDE", "NVIDIA_PYTORCH_VERSION", "CUDA_VERSION", "PATH"]
)
def test_what_only_says_which_software_it_is_stays(name: str) -> None:
    assert not is_about_devices(name)
    assert name in variables(environment={name: "1"})


@pytest.mark.parametrize(
    "pair",
    [("A=B", "x"), ("LD_PRELOAD=/x", ""), ("", "x"), ("A\0B", "x"), ("A", "x\0NVIDIA_VISIBLE_DEVICES=all")],
)
def test_a_variable_that_would_set_another_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(StartFailed, match="variable"):
        body(environment=dict([pair]))


def test_a_name_with_a_value_in_it_does_not_hand_over_cards() -> None:
    assert variables(environment={"NVIDIA_VISIBLE_DEVICES=all,": "x"}) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_home_in_a_box_is_tmp_unless_the_job_sets_another() -> None:
    image = ImageConfig(variables=("HOME",))

    assert variables(image=image, is_boxed=True)["HOME"] == "/tmp"
    assert variables(is_boxed=True, environment={"HOME": "/out"})["HOME"] == "/out"
    assert "HOME" not in variables(image=image)


def test_the_secret_is_a_variable_and_nothing_else() -> None:
    made = body(secret=("API_KEY", "sk-1"), port=80)

    assert "API_KEY=sk-1" in made.pop("Env")
    assert "sk-1" not in repr(made)


def test_a_port_is_published_where_the_peer_reaches_it_and_nowhere_else() -> None:
    made = body(port=8000)

    assert made["ExposedPorts"] == {"8000/tcp": {}}
    assert made["HostConfig"]["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "0"}]}
    assert made["HostConfig"]["PublishAllPorts"] is False
    assert "PortBindings" not in host()


@pytest.mark.parametrize(
    ("engine_host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("::1", "::1"),
        ("10.0.0.7", "10.0.0.7"),
        ("box.lan", "0.0.0.0"),
    ],
)
def test_ports_are_bound_where_the_peer_reaches_them(engine_host: str, address: str) -> None:
    assert bind_address(engine_host) == address


def test_folders_are_mounted_and_never_made() -> None:
    made = host(mounts=(Mount(Path("/srv/models"), "/models"), Mount(Path("/d"), "/out", is_read_only=False)))

    assert [
        (mount["Type"], mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in made["Mounts"]
    ] == [
        ("bind", "/srv/models", "/models", True),
        ("bind", "/d", "/out", False),
    ]


def test_shared_memory_is_as_large_as_was_asked_outside_a_box() -> None:
    assert "ShmSize" not in host()
    assert host(shared_memory_bytes=8 << 30)["ShmSize"] == 8 << 30
    assert host(shared_memory_bytes=8 << 30, is_boxed=True)["ShmSize"] == SHM_BYTES


@pytest.mark.parametrize(("command", "given"), [(None, None), ((), None), (("a", "b c"), ["a", "b c"])])
def test_a_command_stands_in_for_the_images(command: tuple[str, ...] | None, given: list[str] | None) -> None:
    made = body(command=command)

    assert made.get("Cmd") == given
    assert "Entrypoint" not in made


def test_an_image_is_read_as_the_engine_tells_it() -> None:
    told = {"Config": {"Env": ["A=1=2", "B="], "Volumes": {"/data": {}}}}

    assert ImageConfig.read(told) == ImageConfig(volumes=("/data",), variables=("A", "B"))
    assert ImageConfig.read({"Config": {"Env": None, "Volumes": None}}) == ImageConfig()
    assert ImageConfig.read({}) == ImageConfig()
