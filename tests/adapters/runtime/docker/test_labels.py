"""Whose a container is."""

import attrs
import pytest

from adapters.runtime.docker.labels import (
    INSTANCE,
    PORT,
    SECRET,
    WORKLOAD,
    container_name,
    detail_of,
    labels_of,
    workload_of,
)
from adapters.runtime.port import Container, WorkloadSpec

SPEC = WorkloadSpec(
    "job-1", "h-1", Container("i", secret=("KEY", "sk-1"), environment={"A": "word"}), detail={"model": "ü"}
)


def test_a_container_is_known_again_by_its_name_and_labels() -> None:
    labels = labels_of(SPEC, "p-1")

    assert workload_of(labels, "/bp-p-1-job-1", "p-1") == "job-1"
    assert workload_of(labels, "bp-p-1-job-1", "p-1") == "job-1"
    assert detail_of(labels) == {"model": "ü"}


@pytest.mark.parametrize("name", ["bp-p-1-job-2", "bp-p-2-job-1", "job-1", "", "/x/bp-p-1-job-1"])
def test_labels_alone_make_no_container_this_peers(name: str) -> None:
    assert workload_of(labels_of(SPEC, "p-1"), name, "p-1") is None


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {INSTANCE: "p-2", WORKLOAD: "job-1"},
        {INSTANCE: "p-1"},
        {INSTANCE: "p-1", WORKLOAD: 7},
        {INSTANCE: "p-1", WORKLOAD: "../job-1"},
    ],
)
def test_a_name_alone_makes_no_container_this_peers(labels: dict[str, str]) -> None:
    assert workload_of(labels, "bp-p-1-job-1", "p-1") is None


def test_labels_carry_no_secret_and_nothing_that_the_program_is_given() -> None:
    labels = repr(labels_of(SPEC, "p-1"))

    assert "sk-1" not in labels
    assert "word" not in labels


def test_every_label_that_is_read_is_written() -> None:
    bare = labels_of(attrs.evolve(SPEC, program=Container("i")), "p-1")

    assert bare.keys() == labels_of(SPEC, "p-1").keys()
    assert bare[PORT] == bare[SECRET] == ""


@pytest.mark.parametrize(
    ("instance", "workload"), [("p 1", "job-1"), ("", "job-1"), ("p-1", "a/b"), ("p-1", "")]
)
def test_a_name_is_made_of_ids_alone(instance: str, workload: str) -> None:
    with pytest.raises(ValueError, match="id"):
        container_name(instance, workload)
