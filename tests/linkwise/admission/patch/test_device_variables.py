import jsonpatch
import msgspec
import pytest

from linkwise.admission.patch.device_variables import hide_devices, set_visible_devices
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.policy.document import Policy


def ref(annotation):
    return {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}


def container(name="main", env=None, **limits):
    result = {"name": name, "resources": {"limits": limits}}
    return result if env is None else {**result, "env": env}


def variables_set(spec, rules=None, replicas=0):
    pod = msgspec.convert({"spec": spec}, Pod)
    request, errors = read_request(pod)
    assert not errors
    changes = set_visible_devices(pod, request, rules or Policy(), replicas)
    return patched(spec, changes), changes.findings


def patched(spec, changes):
    return jsonpatch.apply_patch({"spec": spec}, [step.wire() for step in changes.operations])[
        "spec"
    ]


def env_of(container):
    return {entry["name"]: entry.get("valueFrom", entry.get("value")) for entry in container["env"]}


def test_container_reads_its_devices_from_the_record():
    spec, findings = variables_set({"containers": [container(**{keys.GPU_WHOLE: 2})]})

    assert env_of(spec["containers"][0]) == {
        container_variables.ENV_VISIBLE_DEVICES: ref(keys.VISIBLE_DEVICES)
    }
    assert findings == []


def test_each_of_several_gpu_containers_reads_its_own_key():
    whole = {keys.GPU_WHOLE: 1}

    spec, _ = variables_set({"containers": [container("a", **whole), container("b", **whole)]})

    assert [
        env_of(each)[container_variables.ENV_VISIBLE_DEVICES] for each in spec["containers"]
    ] == [
        ref(keys.VISIBLE_DEVICES_OF + "a"),
        ref(keys.VISIBLE_DEVICES_OF + "b"),
    ]


def test_containers_without_a_gpu_request_see_no_gpu():
    spec, _ = variables_set(
        {
            "containers": [container(**{keys.GPU_WHOLE: 1}), container("side")],
            "initContainers": [
                container("setup"),
                {**container("proxy"), "restartPolicy": "Always"},
            ],
        }
    )

    others = [spec["containers"][1], *spec["initContainers"]]
    assert [env_of(each) for each in others] == [
        {container_variables.ENV_VISIBLE_DEVICES: "void"}
    ] * 3


def test_init_container_with_gpus_gets_its_variable():
    whole = {keys.GPU_WHOLE: 1}

    spec, _ = variables_set(
        {"containers": [container(**whole)], "initContainers": [container("warm", **whole)]}
    )

    variables = env_of(spec["initContainers"][0])
    assert variables == {
        container_variables.ENV_VISIBLE_DEVICES: ref(keys.VISIBLE_DEVICES_OF + "warm")
    }


def test_share_gets_the_variables_of_gpushare():
    spec, _ = variables_set({"containers": [container(**{keys.GPU_MEM: 5})]})

    assert env_of(spec["containers"][0]) == {
        container_variables.ENV_VISIBLE_DEVICES: ref(keys.VISIBLE_DEVICES),
        keys.MEM_IDX: ref(keys.MEM_IDX),
        keys.MEM_POD: ref(keys.MEM_POD),
        keys.MEM_DEV: ref(keys.MEM_DEV),
        keys.MEM_CONTAINER: "5",
    }


@pytest.mark.parametrize("name", [keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV, keys.MEM_CONTAINER])
@pytest.mark.parametrize("given", [{"value": "9"}, {"valueFrom": {"fieldRef": {"fieldPath": "a"}}}])
def test_variables_by_which_cgpu_limits_a_share_are_replaced(name, given):
    env = [{"name": name, **given}, {"name": "A", "value": "b"}, {"name": name, "value": "8"}]
    limits = {keys.GPU_MEM: 5}

    spec, findings = variables_set({"containers": [container(env=env, **limits)]})
    as_ours, _ = variables_set({"containers": [container(**limits)]})

    expected = env_of(as_ours["containers"][0])
    assert env_of(spec["containers"][0]) == {**expected, "A": "b"}
    assert [one["name"] for one in spec["containers"][0]["env"][:3]] == [name, "A", name]
    assert [found.field for found in findings] == [
        f"spec.containers[0].env[{index}]" for index in (0, 2)
    ]


def test_cgpu_variable_equal_to_the_request_is_kept():
    env = [{"name": keys.MEM_CONTAINER, "value": "5"}]

    spec, findings = variables_set({"containers": [container(env=env, **{keys.GPU_MEM: 5})]})

    assert spec["containers"][0]["env"][:1] == env
    assert findings == []


@pytest.mark.parametrize(
    "written",
    [
        {"value": "all"},
        {"value": ""},
        {},
        {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
    ],
)
def test_devices_of_the_user_are_replaced_with_a_warning(written):
    env = [
        {"name": "A", "value": "1"},
        {"name": container_variables.ENV_VISIBLE_DEVICES, **written},
    ]

    spec, (finding,) = variables_set({"containers": [container(env=env, **{keys.GPU_WHOLE: 1})]})

    name = container_variables.ENV_VISIBLE_DEVICES
    assert spec["containers"][0]["env"] == [
        env[0],
        {"name": name, "valueFrom": ref(keys.VISIBLE_DEVICES)},
    ]
    assert (finding.code, finding.severity) == (Code.VISIBLE_DEVICES, Severity.WARNING)
    assert finding.field == "spec.containers[0].env[1]"


def test_policy_can_refuse_devices_of_the_user():
    env = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]

    _, (finding,) = variables_set(
        {"containers": [container(env=env, **{keys.GPU_WHOLE: 1})]},
        Policy(visible_devices="deny"),
    )

    assert (finding.code, finding.severity, finding.value) == (
        Code.VISIBLE_DEVICES,
        Severity.ERROR,
        "all",
    )


@pytest.mark.parametrize("rules", [Policy(), Policy(visible_devices="deny")])
def test_correct_variables_are_unchanged(rules):
    spec = {"containers": [container(**{keys.GPU_MEM: 5}), container("side")]}
    once, _ = variables_set(spec, rules)

    twice, findings = variables_set(once, rules)

    assert twice == once
    assert findings == []


SHARE = {keys.GPU_MEM: 4, keys.GPU_CORE: 20}
MPS = Policy(sharing={"computeByMps": True})


def test_mps_limits_are_set_if_the_policy_shares_compute_by_mps():
    spec, _ = variables_set({"containers": [container(**SHARE)]}, MPS)

    variables = env_of(spec["containers"][0])
    assert variables[container_variables.ENV_MPS_THREADS] == "20"
    assert variables[container_variables.ENV_MPS_MEMORY] == "0=4096M"


def test_mps_limits_are_set_for_memory_only():
    spec, _ = variables_set({"containers": [container(**{keys.GPU_MEM: 4})]}, MPS)

    variables = env_of(spec["containers"][0])
    assert variables[container_variables.ENV_MPS_MEMORY] == "0=4096M"
    assert container_variables.ENV_MPS_THREADS not in variables


@pytest.mark.parametrize(
    ("limits", "rules"),
    [(SHARE, Policy()), ({keys.GPU_WHOLE: 1}, MPS)],
    ids=["policy", "whole-gpus"],
)
def test_mps_limits_are_not_set_otherwise(limits, rules):
    spec, _ = variables_set({"containers": [container(**limits)]}, rules)

    assert not any(
        name.startswith(container_variables.ENV_MPS_PREFIX)
        for name in env_of(spec["containers"][0])
    )


@pytest.mark.parametrize(
    ("written", "after", "warned"),
    [
        pytest.param({"value": "10"}, "10", False, id="tighter-is-kept"),
        pytest.param({"value": "20"}, "20", False, id="equal-is-kept"),
        pytest.param({"value": "90"}, "20", True, id="looser-is-replaced"),
        pytest.param({"valueFrom": {"fieldRef": {}}}, "20", True, id="unreadable-is-replaced"),
    ],
)
def test_mps_limit_of_the_user_may_only_be_tighter(written, after, warned):
    env = [{"name": container_variables.ENV_MPS_THREADS, **written}]

    spec, findings = variables_set({"containers": [container(env=env, **SHARE)]}, MPS)

    assert env_of(spec["containers"][0])[container_variables.ENV_MPS_THREADS] == after
    assert [finding.code for finding in findings] == [Code.MPS_LIMIT] * warned


def test_looser_mps_limit_is_replaced_even_if_devices_are_refused():
    env = [{"name": container_variables.ENV_MPS_THREADS, "value": "90"}]
    rules = Policy(sharing={"computeByMps": True}, visible_devices="deny")

    _, (finding,) = variables_set({"containers": [container(env=env, **SHARE)]}, rules)

    assert (finding.code, finding.severity) == (Code.MPS_LIMIT, Severity.WARNING)


def test_time_sliced_container_gets_the_number_of_replicas():
    spec, _ = variables_set({"containers": [container(**{keys.NVIDIA_GPU_SHARED: 1})]}, replicas=4)

    variables = env_of(spec["containers"][0])
    assert variables[container_variables.ENV_REPLICAS] == "4"
    assert variables[container_variables.ENV_MEMORY_FRACTION] == "0.225"


def test_launcher_sees_no_gpus_unless_it_names_them():
    spec = {
        "containers": [
            container("a"),
            container("b", env=[{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]),
        ],
        "initContainers": [container("i")],
    }

    changes = hide_devices(msgspec.convert({"spec": spec}, Pod))

    after = patched(spec, changes)
    values = [
        env_of(each)[container_variables.ENV_VISIBLE_DEVICES]
        for each in (*after["containers"], *after["initContainers"])
    ]
    assert values == ["void", "all", "void"]
    assert changes.findings == []
