"""Variables by which a container would take GPUs that its pod does not ask for."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.admission import ARENA, a_snapshot, admitted, codes, outcome_of, patched
from support.builders import a_container, a_pod

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity

DEVICES, CGPU = container_variables.ENV_VISIBLE_DEVICES, container_variables.ENV_CGPU_OFF
ELSEWHERE = {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
PRIVILEGED = {"securityContext": {"privileged": True}}


def variable(value, name=DEVICES):
    return {"name": name, **(value if isinstance(value, dict) else {"value": value})}


def env_after(env, limits=None, policy="", **options):
    """Return the variables of the only container, after an admission that lets it pass."""
    pod = a_pod(containers=[a_container(limits, env=env, **options)])
    return admitted(pod, a_snapshot(policy))["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("value", ["all", "0", "GPU-1", "$(OTHER)", "void ", ELSEWHERE], ids=str)
@pytest.mark.parametrize(
    "limits",
    [pytest.param(None, id="no resources"), pytest.param({keys.GPU_WHOLE: 0}, id="0 GPUs")],
)
def test_container_of_a_pod_without_gpus_sees_none(value, limits):
    env = [variable("1", "A"), variable(value), variable("2", "B")]

    assert env_after(env, limits) == [env[0], variable("void"), env[2]]


@pytest.mark.parametrize("value", ["", "void", "none"])
def test_variable_without_gpus_is_kept(value):
    pod = a_pod(containers=[a_container(env=[variable(value)])])

    outcome = outcome_of(pod)

    assert (outcome.patch, outcome.findings) == ((), ())


def test_all_variables_of_one_name_are_replaced():
    assert env_after([variable("void"), variable("all"), variable("0")]) == [variable("void")] * 3


def test_init_containers_and_launchers_are_covered():
    init = [a_container(env=[variable("all")])]
    pod = a_pod(labels=ARENA, initContainers=init, containers=[a_container(env=[variable("all")])])

    after = admitted(pod)["spec"]

    assert [each["env"] for each in (*after["containers"], *after["initContainers"])] == [
        [variable("void")]
    ] * 2


def test_value_of_nvidias_plugin_has_precedence_and_other_containers_see_none():
    asks = a_container(
        {keys.NVIDIA_GPU: 1}, env=[variable("all"), variable("1", "A"), variable("0")]
    )
    beside = a_container(env=[variable("all")])

    each, other = admitted(a_pod(containers=[asks, beside]))["spec"]["containers"]

    assert (each["env"], other["env"]) == ([variable("1", "A")], [variable("void")])


def test_privileged_container_keeps_its_variable():
    assert env_after([variable("all")], **PRIVILEGED) == [variable("all")]


@pytest.mark.parametrize("value", ["true", "1", ELSEWHERE], ids=str)
def test_share_cannot_disable_cgpu_limits(value):
    env = env_after([variable(value, CGPU)], {keys.GPU_MEM: 4})

    assert env[0] == variable("false", CGPU)


def test_policy_can_allow_variables():
    allow = "environment: allow"

    assert env_after([variable("true", CGPU)], {keys.GPU_MEM: 4}, allow)[0]["value"] == "true"
    pod = a_pod(containers=[a_container(env=[variable("all")])])
    assert outcome_of(pod, a_snapshot(allow)).verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("policy", "severity", "verdict"),
    [
        ("", Severity.WARNING, Verdict.ALLOWED),
        ("environment: refuse", Severity.ERROR, Verdict.DENIED),
    ],
    ids=["replace", "refuse"],
)
def test_finding_has_the_field_of_the_variable(policy, severity, verdict):
    env = [variable("1", "A"), variable("all")]
    pod = a_pod(containers=[a_container(), a_container(env=env)])

    outcome = outcome_of(pod, a_snapshot(policy))

    (finding,) = outcome.findings
    assert (finding.code, finding.severity) == (Code.ENVIRONMENT, severity)
    assert (finding.field, finding.value) == ("spec.containers[1].env[1]", "all")
    assert outcome.verdict is verdict


OTHERS = [
    container_variables.ENV_IMEX_CHANNELS,
    container_variables.ENV_MIG_CONFIG,
    container_variables.ENV_MIG_MONITOR,
]
MOUNT = {"name": "devices", "mountPath": f"{container_variables.DEVICE_MOUNTS}/all"}
LIMITS = [
    pytest.param(None, id="no GPUs"),
    pytest.param({keys.GPU_WHOLE: 1}, id="chosen by Linkwise"),
    pytest.param({keys.GPU_MEM: 4}, id="share"),
    pytest.param({keys.NVIDIA_GPU: 1}, id="chosen by the plugin"),
]


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        pytest.param(name, limits.values[0], id=f"{name} {limits.id}")
        for name in OTHERS
        for limits in LIMITS
        # Device plugins that are not privileged have the other one.
        if limits.values[0] or name != container_variables.ENV_MIG_MONITOR
    ],
)
def test_variables_of_imex_channels_and_mig_are_removed(name, limits):
    env = env_after([variable("0", name), variable("1", "A"), variable(ELSEWHERE, name)], limits)

    assert env[0] == variable("1", "A")
    assert name not in {each["name"] for each in env}


def test_device_plugin_keeps_its_variable_of_mig():
    env = [variable("all", container_variables.ENV_MIG_MONITOR), variable("all")]
    assert env_after(env) == [env[0], variable("void")]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(
    "path",
    [
        "/var/run/nvidia-container-devices/all",
        "var/run/nvidia-container-devices/all",
        "//var//run/./x/../nvidia-container-devices/cdi/nvidia.com/gpu/all",
        "/var/run/nvidia-container-devices/imex/0",
        "/var/run/nvidia-container-devicesall",
    ],
)
def test_mount_that_names_a_device_is_removed(path, limits):
    data = {"name": "data", "mountPath": "/var/run/nvidia"}
    mounts = [{"name": "devices", "mountPath": path}, data, MOUNT]
    asking = a_container(limits, volumeMounts=mounts)
    pod = a_pod(containers=[asking], initContainers=[a_container(volumeMounts=[MOUNT])])

    after = admitted(pod)["spec"]

    assert after["containers"][0]["volumeMounts"] == [data]
    assert after["initContainers"][0]["volumeMounts"] == []


def test_privileged_container_keeps_its_mounts_and_variables():
    env = [variable("0", name) for name in OTHERS]
    one = a_container(env=env, volumeMounts=[MOUNT], **PRIVILEGED)

    assert outcome_of(a_pod(containers=[one])).patch == ()


@pytest.mark.parametrize("limits", LIMITS)
def test_mount_that_names_a_device_is_refused_or_allowed_by_the_policy(limits):
    pod = a_pod(containers=[a_container(limits, volumeMounts=[MOUNT])])

    outcome = outcome_of(pod, a_snapshot("environment: refuse"))

    (finding,) = (one for one in outcome.findings if one.code is Code.ENVIRONMENT)
    assert (finding.severity, outcome.verdict) == (Severity.ERROR, Verdict.DENIED)
    assert finding.field == "spec.containers[0].volumeMounts[0].mountPath"
    assert finding.value == MOUNT["mountPath"]
    allowed = outcome_of(pod, a_snapshot("environment: allow"))
    assert Code.ENVIRONMENT not in codes(allowed)


def test_visible_devices_policy_applies_where_linkwise_chooses():
    pod = a_pod(containers=[a_container({keys.GPU_WHOLE: 1}, env=[variable("all")])])

    assert codes(outcome_of(pod, a_snapshot("environment: refuse"))) == [Code.VISIBLE_DEVICES]


values = st.sampled_from(["", "void", "none", "all", "0", "true", "false", ELSEWHERE])
variables = st.lists(st.builds(variable, values, st.sampled_from([DEVICES, CGPU, "A"])), max_size=5)
requested = st.sampled_from(
    [None, {keys.NVIDIA_GPU: 1}, {keys.GPU_MEM: 4}, {keys.GPU_WHOLE: 1}, {keys.GPU_WHOLE: 0}]
)


@given(containers=st.lists(st.tuples(variables, requested), min_size=1, max_size=3))
def test_no_container_keeps_gpus_that_it_does_not_request(containers):
    pod = a_pod(containers=[a_container(limits, env=env) for env, limits in containers])
    outcome = outcome_of(pod)
    assume(outcome.verdict is not Verdict.DENIED)  # Two kinds of GPUs in one pod.

    for each in patched(pod, outcome)["spec"]["containers"]:
        chosen = [env for env in each["env"] if env["name"] == DEVICES]
        if keys.NVIDIA_GPU in each.get("resources", {}).get("limits", {}):
            assert {env.get("value") for env in chosen} <= {"", "void", "none"}
        else:
            assert all(is_ours(env) for env in chosen)


def is_ours(env):
    source = env.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return keys.PREFIX in source or env.get("value") in {"", "void", "none"}
