import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_container, a_node, a_pod
from support.strategies import pods

from linkwise.cluster import container_variables, keys
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.mode import NodeMode
from linkwise.cluster.nodes.isolation import isolation_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request

PIPES = [{"name": "mps", "mountPath": "/tmp/nvidia-mps/"}]  # noqa: S108
THREADS = {"name": container_variables.ENV_MPS_THREADS, "value": "20"}
MEMORY = {"name": container_variables.ENV_MPS_MEMORY, "value": "0=4096M"}
UNKNOWN = {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}


def variable(name, value):
    return {"name": name, "value": value}


def elsewhere(directory):
    return variable(container_variables.ENV_MPS_PIPES, directory)


def client(*env, mounts=PIPES, name="main", **limits):
    """Return a container of 4 GiB and 20 %, which says and mounts these."""
    asked = limits or {keys.GPU_MEM: 4, keys.GPU_CORE: 20}
    return {**a_container(asked, name=name), "env": list(env), "volumeMounts": mounts}


def isolation(mode, *containers, init=(), labels=None):
    volumes = [{"name": "mps", "hostPath": {"path": "/run/mps"}}, {"name": "a", "emptyDir": {}}]
    spec = {"containers": list(containers), "initContainers": list(init), "volumes": volumes}
    pod = msgspec.convert(a_pod({}, labels=labels, **spec), Pod)
    node = a_node(mode=mode) if isinstance(mode, str) else mode
    return isolation_of(pod, read_request(pod)[0], node)


MEMORY_ONLY = client(MEMORY, **{keys.GPU_MEM: 4})
FULL = client(THREADS, MEMORY)


@pytest.mark.parametrize(
    ("mode", "container", "kept"),
    [
        ("share", MEMORY_ONLY, "none"),
        ("cgpu", MEMORY_ONLY, "cgpu"),
        ("core_mem", FULL, "none"),
        ("mps", FULL, "mps"),
        ("mps", MEMORY_ONLY, "mps"),
        ("topology", client(**{keys.GPU_WHOLE: 1}), "none"),
        ("timeslice", client(**{keys.NVIDIA_GPU_SHARED: 1}), "none"),
    ],
)
def test_what_keeps_a_share_within_its_limits_is_its_nodes_business(mode, container, kept):
    assert isolation(mode, container) == kept


@pytest.mark.parametrize(
    ("container", "kept"),
    [
        pytest.param(client(MEMORY), "none", id="compute-is-not-limited"),
        pytest.param(client(THREADS), "none", id="memory-is-not-limited"),
        pytest.param(client(THREADS, MEMORY, mounts=None), "none", id="no-pipes"),
        pytest.param(
            client(THREADS, MEMORY, mounts=[{"name": "a", "mountPath": "/tmp"}]),  # noqa: S108
            "none",
            id="what-is-mounted-is-not-the-pipes",
        ),
        pytest.param(
            client(THREADS, MEMORY, mounts=[{"name": "a", "mountPath": "/tmp/nvidia-mps"}]),  # noqa: S108
            "none",
            id="an-empty-folder-at-the-pipes-place",
        ),
        pytest.param(
            {**client(THREADS, MEMORY), "envFrom": [{"configMapRef": {"name": "a"}}]},
            "none",
            id="pipes-perhaps-in-another-object",
        ),
        pytest.param(
            {
                **client(THREADS, MEMORY, elsewhere("/tmp/nvidia-mps")),  # noqa: S108
                "envFrom": [{"configMapRef": {"name": "a"}}],
            },
            "mps",
            id="what-stands-here-counts-more-than-another-object",
        ),
        pytest.param(client(THREADS, MEMORY, elsewhere("/run/mps")), "none", id="other-pipes"),
        pytest.param(
            client(
                THREADS,
                MEMORY,
                elsewhere("/run/mps"),
                mounts=[*PIPES, {"name": "mps", "mountPath": "/run/mps"}],
            ),
            "mps",
            id="pipes-of-ones-own",
        ),
        pytest.param(
            client(THREADS, MEMORY, elsewhere(""), mounts=[{"name": "a", "mountPath": "/"}]),
            "none",
            id="pipes-nowhere",
        ),
        pytest.param(
            client(THREADS, MEMORY, {"name": container_variables.ENV_MPS_PIPES, **UNKNOWN}),
            "none",
            id="pipes-unknown",
        ),
        pytest.param(
            client(variable(container_variables.ENV_MPS_THREADS, "10"), MEMORY), "mps", id="tighter"
        ),
        pytest.param(
            client(variable(container_variables.ENV_MPS_THREADS, "30"), MEMORY), "none", id="looser"
        ),
        pytest.param(
            client({"name": container_variables.ENV_MPS_THREADS, **UNKNOWN}, MEMORY),
            "none",
            id="limit-unknown",
        ),
        pytest.param(
            client(THREADS, MEMORY, variable(container_variables.ENV_MPS_THREADS, "100")),
            "none",
            id="the-last-of-a-name-counts",
        ),
    ],
)
def test_mps_keeps_a_container_that_has_its_limits_and_reaches_the_daemon(container, kept):
    assert isolation("mps", container) == kept


def test_each_card_of_a_share_is_limited():
    both = client(
        variable(container_variables.ENV_MPS_MEMORY, "0=2048M,1=2048M"), **{keys.GPU_MEM: 4}
    )

    assert isolation("mps", both, labels={keys.GPU_COUNT: "2"}) == "mps"
    assert isolation("mps", MEMORY_ONLY, labels={keys.GPU_COUNT: "2"}) == "none"


@pytest.mark.parametrize("place", ["app", "init"])
def test_one_container_that_nothing_keeps_is_enough_for_none(place):
    free = client(name="free", mounts=None)
    beside = {"init": [free]} if place == "init" else {}
    apps = [FULL, free] if place == "app" else [FULL]

    assert isolation("mps", *apps, **beside) == "none"
    assert isolation("mps", FULL, a_container({}, name="none")) == "mps"


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        pytest.param(
            {"env": [variable(container_variables.ENV_CGPU_OFF, "true")]}, "none", id="off"
        ),
        pytest.param(
            {"env": [{"name": container_variables.ENV_CGPU_OFF, **UNKNOWN}]}, "none", id="unknown"
        ),
        pytest.param(
            {"env": [variable(container_variables.ENV_CGPU_OFF, "$(X)")]}, "none", id="of-another"
        ),
        pytest.param({"envFrom": [{"configMapRef": {"name": "a"}}]}, "none", id="perhaps"),
        pytest.param(
            {"env": [variable(container_variables.ENV_CGPU_OFF, "false")]}, "cgpu", id="on"
        ),
    ],
)
def test_a_container_may_do_without_cgpus_limits(more, kept):
    memory = {keys.GPU_MEM: 4}

    assert isolation("cgpu", client(**memory), client(name="second", **memory) | more) == kept


def test_a_node_may_do_without_cgpus_limits():
    node = a_node(mode="cgpu", labels={keys.NODE_CGPU_OFF: "true"})

    assert isolation(node, MEMORY_ONLY) == "none"


@given(raw=pods(), mode=st.sampled_from(NodeMode))
def test_isolation_of_a_pod_is_never_more_than_its_node_can_enforce(raw, mode):
    pod = msgspec.convert(raw, Pod)

    kept = isolation_of(pod, read_request(pod)[0], a_node(mode=mode.value))

    assert kept in {Isolation.NONE, *(one for one in Isolation if one.value == mode.value)}


@pytest.mark.parametrize("reported", ["mps", "none"])
@pytest.mark.parametrize("container", [FULL, client(mounts=None)], ids=["by-hand", "bare"])
def test_mps_node_with_an_agent_has_the_isolation_that_the_agent_saw(reported, container):
    node = a_node(mode="mps", isolation=Isolation(reported))

    assert isolation(node, container) == reported


def test_agent_does_not_decide_the_isolation_of_another_mode():
    assert isolation(a_node(mode="share", isolation=Isolation.MPS), MEMORY_ONLY) == "none"
