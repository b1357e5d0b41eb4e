import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from agent.control.desired_state import UNUSED
from agent.mps.daemon import DaemonSettings
from agent.publish.node_labels import FIELD_MANAGER, LABELS
from agent.settings import Settings
from linkwise.cluster import keys
from linkwise.cluster.mode import NodeMode

FOLDER = Path(__file__).parents[2] / "manifests/agent"
NAME = "linkwise-agent"
NODE_MODE = "linkwise-node-mode"


@cache
def documents():
    return [
        document
        for path in sorted(FOLDER.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def of_kind(kind, name=NAME):
    (found,) = (
        document
        for document in documents()
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return found


def pod():
    return of_kind("DaemonSet")["spec"]["template"]["spec"]


def container():
    (found,) = pod()["containers"]
    return found


def settings():
    values = {item["name"]: item.get("value", "gpu-0") for item in container()["env"]}
    return Settings.read({"KUBERNETES_SERVICE_HOST": "192.0.2.1", **values})


def mounted(path):
    """Return the folder of the host that a path lies in, and whether it is writable."""
    mount = max(
        (item for item in container()["volumeMounts"] if path.is_relative_to(item["mountPath"])),
        key=lambda item: len(item["mountPath"]),
    )
    (volume,) = (item for item in pod()["volumes"] if item["name"] == mount["name"])
    inside = path.relative_to(mount["mountPath"])
    return str(Path(volume["hostPath"]["path"], inside)), not mount.get("readOnly", False)


def quoted(expression):
    return set(re.findall(r"'([^']*)'", expression))


def test_folder_lists_every_file():
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert (set(listed), len(listed)) == (present, len(present))


def test_objects_have_one_name_and_the_namespace_permits_privileged_pods():
    assert {item["metadata"]["name"] for item in documents()} == {NAME, NODE_MODE}
    namespaces = {item["metadata"].get("namespace") for item in documents()}
    assert namespaces == {None, NAME, keys.TOPOLOGY_NAMESPACE}
    labels = of_kind("Namespace")["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}


def test_agent_runs_on_every_node_with_a_mode_of_ours_whatever_its_taints():
    rules = pod()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = [rule for term in rules["nodeSelectorTerms"] for rule in term["matchExpressions"]]
    assert len(rules["nodeSelectorTerms"]) == len(keys.MODE_LABELS)
    assert [(rule["key"], rule["operator"]) for rule in found] == [
        (key, "In") for key in keys.MODE_LABELS
    ]
    for rule in found:
        assert set(rule["values"]) == {mode.value for mode in NodeMode if mode.is_ours}
    assert pod()["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("name", "host", "is_writable"),
    [
        ("device_plugins", "/var/lib/kubelet/device-plugins", True),
        ("pod_resources", "/var/lib/kubelet/pod-resources/kubelet.sock", False),
        ("cdi", "/var/run/cdi", True),
        ("host_root", "/", False),
    ],
)
def test_paths_of_the_settings_are_mounted(name, host, is_writable):
    assert mounted(getattr(settings().paths, name)) == (host, is_writable)


def test_nvidias_cdi_specifications_are_read_below_the_root_of_the_host():
    folders = [mounted(path)[0] for path in settings().paths.nvidia_cdi]
    assert folders == ["/etc/cdi", "/var/run/cdi"]


def test_the_agent_may_write_its_own_folder_on_the_host():
    assert mounted(settings().paths.host_root / "run/linkwise") == ("/run/linkwise", True)


def test_the_file_system_of_mps_is_mounted_on_the_host():
    [run] = (item for item in container()["volumeMounts"] if item["name"] == "run")
    assert run["mountPropagation"] == "Bidirectional"
    assert DaemonSettings().directory.startswith("/run/linkwise/")


def test_agent_has_the_processes_and_devices_of_its_node():
    assert pod()["hostPID"] is True
    assert container()["securityContext"]["privileged"] is True
    assert mounted(Path("/dev/nvidia0")) == ("/dev/nvidia0", True)


def test_process_ports_and_memory():
    assert container()["command"] == ["python", "-m", "agent"]
    (port,) = container()["ports"]
    assert port == {"name": "probe", "containerPort": settings().probe_port}
    resources = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}}
    assert container()["resources"] == resources
    env = {item["name"]: item for item in container()["env"]}
    assert env["LINKWISE_NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert env["LINKWISE_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_two_agents_never_run_on_one_node():
    update = of_kind("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]
    assert update["maxSurge"] == 0


def test_rights_of_the_agent():
    granted = {
        (item["metadata"].get("namespace"), resource, verb)
        for item in documents()
        if item["kind"] in {"ClusterRole", "Role"}
        for rule in item["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    verbs = ("get", "create", "update", "delete")
    assert granted == {
        (None, "pods", "get"),
        *((None, "nodes", verb) for verb in ("get", "list", "watch", "patch")),
        (None, "events", "create"),
        *((keys.TOPOLOGY_NAMESPACE, "configmaps", verb) for verb in verbs),
    }
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = of_kind(kind)["subjects"]
        assert (subject["name"], subject["namespace"]) == (NAME, NAME)


def test_policy_covers_every_right_to_write():
    spec = of_kind("ValidatingAdmissionPolicy")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert set(rule["resources"]) == {"nodes", "nodes/*", "configmaps", "events"}
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE"}
    assert (spec["failurePolicy"], rule["scope"]) == ("Fail", "*")
    (condition,) = spec["matchConditions"]
    assert quoted(condition["expression"]) == {f"system:serviceaccount:{NAME}:{NAME}"}


def test_policy_names_what_the_agent_writes():
    spec = of_kind("ValidatingAdmissionPolicy")["spec"]
    variables = {item["name"]: item["expression"] for item in spec["variables"]}
    assert quoted(variables["labels"]) == set(LABELS)
    words = quoted(" ".join(item["expression"] for item in spec["validations"]))
    assert {
        keys.TOPOLOGY_NAME_PREFIX,
        keys.TOPOLOGY_NODE,
        keys.MODE_IN_USE,
        FIELD_MANAGER,
    } <= words


def test_policy_of_modes_names_what_the_agent_writes_and_blocks_no_node_by_an_error():
    spec = of_kind("ValidatingAdmissionPolicy", NODE_MODE)["spec"]
    (condition,), (variable,) = spec["matchConditions"], spec["variables"]
    (validation,) = spec["validations"]
    assert quoted(condition["expression"]) == set(keys.MODE_LABELS)
    assert quoted(variable["expression"]) == {keys.MODE_IN_USE, UNUSED}
    assert quoted(validation["expression"]) == {*keys.MODE_LABELS, UNUSED, ""}
    assert spec["failurePolicy"] == "Ignore"


def test_emergency_stop_leaves_the_policies_that_affect_no_pods():
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        for name in (NAME, NODE_MODE):
            assert "app.kubernetes.io/name" not in of_kind(kind, name)["metadata"]["labels"]


def test_only_monitoring_reaches_the_probe_port():
    policy = of_kind("NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    (caller,) = rule["from"]

    (expression,) = caller["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["monitoring"]
    assert [port["port"] for port in rule["ports"]] == ["probe"]
