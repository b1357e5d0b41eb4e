"""The chart where platforms refuse pods: critical classes without a quota, fixed ids of users."""

import json
from contextlib import ExitStack

import pytest
from controlplane.api import ApiError
from controlplane.chart import CHART, RELEASE
from controlplane.credentials import ADMISSION
from controlplane.gangs import make_gang, wait_for_phase
from controlplane.installation import certs_process, new_folder, run_components
from controlplane.manifests import DEFINITIONS, MUTATING, NAMESPACE, VALIDATING
from controlplane.nodes import NODES, add_nodes, read_nodes, remove_nodes
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.scorer import run_scorer
from controlplane.uninstall_hook import HookKubelet
from controlplane.webhook import PATIENT

from linkwise.cluster import keys

PATIENCE = 120
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
CRITICAL = ["system-node-critical", "system-cluster-critical"]
LINES = (
    {"name": "system", "cpu": 16},
    {"name": "gpu", "machine": "dgx1-v100", "mode": "topology"},
)
ADMISSIONS = "/apis/admissionregistration.k8s.io/v1"
CONSTRAINTS = "securitycontextconstraints"
OPENSHIFT = "security.openshift.io"
IN_RANGE = "1000700000 <= id && id < 1000710000"
RESTRICTED_V2 = [
    # Ids outside the range of the namespace are refused, missing ones are set.
    "variables.ids.all(id, " + IN_RANGE + ")",
    "variables.all.all(c, !c.?securityContext.privileged.orValue(false) && "
    "!c.?securityContext.allowPrivilegeEscalation.orValue(false) && "
    "c.?securityContext.capabilities.add.orValue([]).all(one, one == 'NET_BIND_SERVICE') && "
    "c.?ports.orValue([]).all(port, !has(port.hostPort)))",
    "!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && "
    "!object.spec.?hostIPC.orValue(false)",
    "object.spec.?securityContext.seccompProfile.type.orValue('RuntimeDefault') "
    "== 'RuntimeDefault'",
    "object.spec.?volumes.orValue([]).all(v, has(v.configMap) || has(v.secret) || "
    "has(v.projected) || has(v.emptyDir) || has(v.downwardAPI) || has(v.csi))",
]
"""What OpenShift's constraints of this name refuse, as validations of a pod."""


@pytest.fixture(scope="module")
def plane_of_gke(plane_of_its_own):
    """Its API server limits critical classes as GKE's: a quota of a namespace has to name them."""
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": CRITICAL}
    limited = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
    }
    folder = plane_of_its_own.site.folder
    given = json.loads((folder / ADMISSION).read_text())
    given["plugins"].append({"name": "ResourceQuota", "configuration": limited})
    path = folder / "gke.json"
    path.write_text(json.dumps(given))
    plane_of_its_own.restart_api_server(f"--admission-control-config-file={path}")
    return plane_of_its_own


@pytest.fixture
def nodes(plane):
    """A node for components, and one with GPUs and a mode."""
    made = read_nodes(LINES)
    add_nodes(plane.api, made)
    yield [node.name for node in made]
    remove_nodes(plane.api, made)


def succeed(ran):
    assert ran.returncode == 0, ran.stderr


def running(api, namespace, component=""):
    chosen = {"labelSelector": f"app.kubernetes.io/component={component}"} if component else {}
    found = api.get(f"/api/v1/namespaces/{namespace}/pods", **chosen)["items"]
    return [one for one in found if one["status"].get("phase") == "Running"]


def failures(api):
    """Return why Deployments have no pods."""
    return [
        condition["message"]
        for one in api.get(DEPLOYMENTS)["items"]
        for condition in one["status"].get("conditions", ())
        if condition["type"] == "ReplicaFailure"
    ]


def test_gke_admits_critical_pods_by_the_quota_places_a_gang_and_lets_linkwise_go(
    plane_of_gke, plane, nodes, helm, namespace_of
):
    api = plane.api
    assert plane is plane_of_gke
    succeed(
        helm("install", RELEASE, str(CHART), "--create-namespace", "--set=criticalPodsQuota=false")
    )
    wait_until(lambda: len(failures(api)) == 4, "no pod is admitted", PATIENCE)
    assert all("insufficient quota to match these scopes" in one for one in failures(api))
    assert not running(api, NAMESPACE)

    succeed(helm("upgrade", RELEASE, str(CHART), "--set=criticalPodsQuota=true"))

    wait_until(lambda: len(running(api, NAMESPACE)) == 7, "all components run", PATIENCE)
    wait_until(lambda: len(running(api, keys.AGENT)) == 1, "the agent runs", PATIENCE)
    certs = certs_process(plane, new_folder(plane))
    pods = Pods(api, namespace_of(api).split("/")[-2])
    with ExitStack() as stack:
        components = stack.enter_context(run_components(plane, certs, seconds=PATIENT))
        home = components.cluster.home("scorer")
        tls = {"LINKWISE_CERTIFICATE": home / "tls.crt", "LINKWISE_KEY": home / "tls.key"}
        served = {name: str(path) for name, path in tls.items()}
        stack.enter_context(run_scorer(plane, certs.log.parent, **served))
        make_gang(pods, "train", 2, 4)
        wait_for_phase(pods, "train", "Placed", members="2/2")
        # Their addresses are those of this machine, which are not Helm's to change.
        for path in (MUTATING, VALIDATING):
            api.delete(path)
        succeed(helm("upgrade", RELEASE, str(CHART), "--set=scorer.replicas=3"))
        wait_until(lambda: len(running(api, NAMESPACE, "scorer")) == 3, "one more", PATIENCE)
        wait_for_phase(pods, "train", "Placed", members="2/2")
    pods.clear()

    # Else kwok would let the pod of the hook succeed without running it.
    for node in nodes:
        api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
    with HookKubelet(plane) as kubelet:
        ran = helm("uninstall", RELEASE)

    assert (ran.returncode, len(kubelet.logs)) == (0, 1), (ran.stderr, kubelet.logs)
    assert api.get(DEPLOYMENTS)["items"] == []
    assert api.get(QUOTAS)["items"] == []


@pytest.fixture
def openshift(plane):
    """The API of constraints, and a policy that refuses the pods that restricted-v2 refuses.

    As on OpenShift, an account may use other constraints if a role says so; only those of the chart
    are known here.
    """
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "metadata": {"name": f"{CONSTRAINTS}.{OPENSHIFT}"},
        "spec": {
            "group": OPENSHIFT,
            "scope": "Cluster",
            "names": {"plural": CONSTRAINTS, "kind": "SecurityContextConstraints"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    used = (
        "authorizer.serviceAccount(object.metadata.namespace, object.spec.serviceAccountName)"
        f".group('{OPENSHIFT}').resource('{CONSTRAINTS}')"
        ".namespace(object.metadata.namespace).name('linkwise-agent').check('use').allowed()"
    )
    contexts = "[object.spec.?securityContext] + variables.all.map(c, c.?securityContext)"
    ids = ", ".join(f"s.?{name}" for name in ("runAsUser", "fsGroup"))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    names = {"key": keys.NAMESPACE_NAME, "operator": "In", "values": [NAMESPACE, keys.AGENT]}
    policy = {
        "metadata": {"name": "restricted-v2"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [{**rule, "operations": ["CREATE"]}],
                "namespaceSelector": {"matchExpressions": [names]},
            },
            "matchConditions": [{"name": "has-no-other", "expression": f"!{used}"}],
            "variables": [
                {
                    "name": "all",
                    "expression": "object.spec.containers + "
                    "object.spec.?initContainers.orValue([])",
                },
                {
                    "name": "ids",
                    "expression": f"({contexts}).map(s, [{ids}].filter(id, id.hasValue())"
                    ".map(id, id.value())).flatten()",
                },
            ],
            "validations": [{"expression": one} for one in RESTRICTED_V2],
        },
    }
    binding = {"policyName": "restricted-v2", "validationActions": ["Deny"]}
    policies = f"{ADMISSIONS}/validatingadmissionpolicies"
    bindings = f"{ADMISSIONS}/validatingadmissionpolicybindings"
    plane.api.create(DEFINITIONS, definition)
    plane.api.create(policies, policy)
    plane.api.create(bindings, {"metadata": {"name": "restricted-v2"}, "spec": binding})
    constraints = f"/apis/{OPENSHIFT}/v1/{CONSTRAINTS}"
    wait_until(lambda: is_served(plane.api, constraints), "the API is served")
    yield constraints
    plane.api.delete(f"{bindings}/restricted-v2")
    plane.api.delete(f"{policies}/restricted-v2")
    plane.api.delete(f"{DEFINITIONS}/{CONSTRAINTS}.{OPENSHIFT}")


def is_served(api, path):
    try:
        api.get(path)
    except ApiError:
        return False
    return True


@pytest.mark.usefixtures("nodes")
def test_openshift_assigns_the_ids_and_admits_the_agent_by_its_own_constraints(
    plane, openshift, helm
):
    api = plane.api
    fixed = ("--create-namespace", "--set=openshift.assignedIds=never")
    succeed(helm("install", RELEASE, str(CHART), *fixed))
    wait_until(lambda: len(failures(api)) == 4, "fixed ids are refused", PATIENCE)
    assert all("restricted-v2" in one for one in failures(api))
    assert api.get(openshift)["items"] == []
    assert not running(api, keys.AGENT)

    succeed(helm("upgrade", RELEASE, str(CHART), f"--values={CHART / 'profiles/openshift.yaml'}"))

    wait_until(lambda: len(running(api, NAMESPACE)) == 7, "all components run", PATIENCE)
    wait_until(lambda: len(running(api, keys.AGENT)) == 1, "the agent runs", PATIENCE)
    for pod in running(api, NAMESPACE):
        assert pod["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
