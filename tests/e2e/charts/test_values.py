"""Each value that operators of charts expect reaches every object that it concerns."""

import json
import re
import subprocess

import pytest
import yaml
from controlplane.chart import CHART, OF_THE_POD, OTHER_VALUES, SETTINGS, RenderError
from controlplane.chart_objects import documents
from controlplane.manifests import NAMESPACE, ROOT

from linkwise.cluster import keys

SCHEDULER = "--set=scheduler.enabled=true,scheduler.image.repository=kube-scheduler"
DASHBOARD = "--set=dashboard.enabled=true"
VALUES_THAT_SET = {
    "LINKWISE_CLIENT_CA": ("--set=webhook.clientCAConfigMap=mine", "/etc/linkwise/clients/ca.crt"),
    "LINKWISE_CERTIFICATES": ("--set=certs.mode=provided", "provided"),
    "LINKWISE_DASHBOARD": (DASHBOARD, "on"),
    "LINKWISE_HOSTS": ("--set=dashboard.hosts={a.example,b.example}", "a.example,b.example"),
}
SYSTEM = ["kube-system", "kube-node-lease", NAMESPACE]


def described():
    """Yield the component and the variable of each documented setting."""
    text = (ROOT / "docs/operations/run.md").read_text()
    for name, of in re.findall(r"^\| `(LINKWISE_\w+)` \| [^|]* \| ([^|]*) \|", text, re.MULTILINE):
        for component in SETTINGS if of.strip() == "all" else of.strip().split(", "):
            yield component, name


def text_of(declaration):
    """Return another value than the default, as values have it and as the process reads it."""
    if not isinstance(declaration.default, str):
        number = declaration.default + 1 if declaration.default < declaration.most else 1
        whole = int(number) if number == int(number) else number
        return whole, str(whole)
    text = next((one for one in declaration.choices if one != declaration.default), "/other")
    return text, text


@pytest.fixture(scope="module")
def rendered_pods(programs):
    def render(*options):
        """Return the specs of all pods by component, with those of the hook and of tests."""
        return {
            one["metadata"]["labels"].get("linkwise.dev/webhook")
            or one["metadata"]["labels"]["app.kubernetes.io/component"]: one
            for one in pods_of(documents(programs["helm"], SCHEDULER, DASHBOARD, *options))
        }

    return render


def pods_of(objects):
    for one in objects:
        if one["kind"] == "Pod":
            yield one
        elif one["kind"] in {"Deployment", "DaemonSet", "Job"}:
            yield one["spec"]["template"]


def environment(container):
    return {one["name"]: one.get("value") for one in container.get("env", ())}


@pytest.mark.parametrize("component", SETTINGS)
def test_every_documented_setting_can_be_set(rendered_pods, tmp_path, component):
    names = {name for of, name in described() if of == component} - OF_THE_POD
    declared = dict(SETTINGS[component].declarations())
    given = {name: text_of(declared[name]) for name in names - OTHER_VALUES.keys()}
    settings = {name: value for name, (value, _) in given.items()}
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps({component: {"settings": settings}}))
    others = {name: VALUES_THAT_SET[name] for name in names & OTHER_VALUES.keys()}

    found = rendered_pods(f"--values={file}", *(option for option, _ in others.values()))

    expected = {name: text for name, (_, text) in {**given, **others}.items()}
    assert len(expected) >= 8
    for each in ("first", "standby") if component == "webhook" else (component,):
        shown = environment(found[each]["spec"]["containers"][0])
        assert {name: shown.get(name) for name in expected} == expected


def test_without_an_image_there_is_an_error_and_no_release(programs):
    argv = (programs["helm"], "template", str(CHART), f"--namespace={NAMESPACE}")
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert ran.returncode != 0
    assert "image.repository: name the image of Linkwise that your nodes can pull" in ran.stderr


@pytest.mark.parametrize(
    ("options", "image", "scheduler"),
    [
        (
            ("--set=image.registry=one.example/team,image.tag=v2",),
            "one.example/team/linkwise:v2",
            "kube-scheduler",
        ),
        (
            ("--set=image.registry=one.example", "--set=global.imageRegistry=two.example:5000"),
            "two.example:5000/linkwise:0.1.0",
            "two.example:5000/kube-scheduler",
        ),
        (
            ("--set=scheduler.image.registry=one.example",),
            "linkwise:0.1.0",
            "one.example/kube-scheduler",
        ),
    ],
    ids=["registry", "global", "scheduler"],
)
def test_registry_is_that_of_the_parent_chart_or_of_the_image(
    rendered_pods, options, image, scheduler
):
    for pod in rendered_pods(*options).values():
        first, *beside = pod["spec"]["containers"]
        assert first["image"] == image
        assert [one["image"].rpartition(":")[0] for one in beside] in ([], [scheduler])


def test_pull_secrets_of_the_parent_chart_are_added(rendered_pods):
    options = (
        "--set=imagePullSecrets[0].name=mine",
        "--set=global.imagePullSecrets[0].name=all,global.imagePullSecrets[1].name=mine",
    )

    for pod in rendered_pods(*options).values():
        assert pod["spec"]["imagePullSecrets"] == [{"name": "all"}, {"name": "mine"}]


def test_ids_of_users_are_left_out_where_the_platform_assigns_them(rendered_pods):
    ids = {"runAsUser", "runAsGroup", "fsGroup"}
    api = "--api-versions=security.openshift.io/v1"
    for options, fixed in {
        (): True,
        (api,): False,
        (api, "--set=openshift.assignedIds=never"): True,
        ("--set=openshift.assignedIds=always",): False,
    }.items():
        for name, pod in rendered_pods(*options).items():
            if name != "agent":
                context = pod["spec"]["securityContext"]
                assert context["runAsNonRoot"] is True
                assert context.keys() & ids == (ids if fixed else set())


def test_critical_class_of_the_hook_and_the_dashboard_is_never_set(rendered_pods):
    classes = {
        name: pod["spec"].get("priorityClassName")
        for name, pod in rendered_pods("--set=priorityClassName=mine").items()
    }

    mine = dict.fromkeys(("first", "standby", "certs", "scorer"), "mine")
    assert classes == {
        **mine,
        "agent": "system-node-critical",
        "uninstall": None,
        "dashboard": None,
        **({"test": None} if "test" in classes else {}),
    }


@pytest.mark.parametrize(
    ("options", "namespaces"),
    [
        ((), {NAMESPACE: "system-cluster-critical", keys.AGENT: "system-node-critical"}),
        (("--set=priorityClassName=",), {keys.AGENT: "system-node-critical"}),
        (("--set=criticalPodsQuota=false",), {}),
    ],
)
def test_quota_covers_the_critical_classes_in_use(chart, options, namespaces):
    found = {
        namespace: one["spec"]["scopeSelector"]["matchExpressions"][0]["values"][0]
        for (kind, namespace, _), one in chart(*options).items()
        if kind == "ResourceQuota"
    }

    assert found == namespaces


def test_contexts_of_pods_and_containers_are_replaced(rendered_pods):
    options = (
        "--set=podSecurityContext.runAsUser=1000,podSecurityContext.fsGroup=null",
        "--set=containerSecurityContext.seLinuxOptions.level=s0",
    )
    found = rendered_pods(*options)
    found.pop("agent")

    for pod in found.values():
        context = pod["spec"]["securityContext"]
        assert (context["runAsUser"], "fsGroup" in context) == (1000, False)
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["seLinuxOptions"] == {"level": "s0"}
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_webhook_on_the_network_of_nodes_with_other_ports(chart):
    found = chart(
        "--set=webhook.hostNetwork=true,webhook.settings.LINKWISE_PORT=10250",
        "--set=webhook.settings.LINKWISE_PROBE_PORT=18080,scorer.settings.LINKWISE_FIT_PORT=18445",
    )

    for name in ("linkwise-webhook", "linkwise-webhook-standby"):
        spec = found["Deployment", NAMESPACE, name]["spec"]
        pod = spec["template"]["spec"]
        assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        # No two replicas are on one node.
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
        ports = pod["containers"]["webhook"]["ports"]
        assert {port: one["containerPort"] for port, one in ports.items()} == {
            "admission": 10250,
            "dry-run": 8444,
            "probe": 18080,
        }
        # Services, probes and policies name the port.
        service = found["Service", NAMESPACE, name]["spec"]["ports"]["admission"]
        assert (service["port"], service["targetPort"]) == (443, "admission")
    webhook, scorer = (
        found["NetworkPolicy", NAMESPACE, f"linkwise-{name}"]["spec"]
        for name in ("webhook", "scorer")
    )
    # By its name, so that it follows.
    assert {"port": "admission", "protocol": "TCP"} in webhook["ingress"][0]["ports"]
    assert webhook["egress"][-1]["ports"][0]["port"] == 18445
    assert {"ports": [{"port": "fit", "protocol": "TCP"}]} in scorer["ingress"]


def test_pods_are_scheduled_as_the_values_say(rendered_pods):
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    found = rendered_pods(
        f"--set-json=affinity={json.dumps(affinity)}",
        '--set-json=agent.tolerations=[{"key": "gpu", "operator": "Exists"}]',
        "--set=agent.nodeSelector.pool=gpu,nodeSelector.pool=system",
    )
    agent = found.pop("agent")["spec"]

    assert agent["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert agent["nodeSelector"] == {"pool": "gpu"}
    for pod in found.values():
        assert pod["spec"]["affinity"] == affinity
        assert pod["spec"]["nodeSelector"] == {"pool": "system"}
    assert rendered_pods()["agent"]["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_annotations_labels_and_variables_reach_all_pods(rendered_pods, programs):
    options = (
        "--set=podAnnotations.note=a,podLabels.team=b,serviceAccount.annotations.role=c",
        "--set=extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=proxy.example:3128",
    )
    for pod in rendered_pods(*options).values():
        assert pod["metadata"]["annotations"]["note"] == "a"
        assert pod["metadata"]["labels"]["team"] == "b"
        assert environment(pod["spec"]["containers"][0])["HTTPS_PROXY"] == "proxy.example:3128"
    accounts = [
        one["metadata"]
        for one in documents(programs["helm"], DASHBOARD, *options)
        if one["kind"] == "ServiceAccount" and "helm.sh/hook" not in str(one)
    ]
    assert len(accounts) == 5
    assert {one["annotations"]["role"] for one in accounts} == {"c"}


def test_more_namespaces_are_excluded_by_registrations_and_policies(chart):
    found = chart("--set=excludedNamespaces={openshift-a,gke-b}")
    hooks = found["MutatingWebhookConfiguration", None, "linkwise"]["webhooks"]
    selectors = [one["namespaceSelector"] for one in hooks.values()]
    validating = found["ValidatingWebhookConfiguration", None, "linkwise"]["webhooks"]
    selectors.append(validating["owners.linkwise.dev"]["namespaceSelector"])
    for name in ("linkwise-placed", "linkwise-placed-nvidia"):
        policy = found["ValidatingAdmissionPolicy", None, name]
        selectors.append(policy["spec"]["matchConstraints"]["namespaceSelector"])

    assert len(selectors) == 6
    for selector in selectors:
        (one,) = selector["matchExpressions"]
        assert one["values"] == [*SYSTEM, "openshift-a", "gke-b"]


def test_another_namespace_of_the_chart_test_reaches_its_rights_and_its_pod(programs):
    found = documents(programs["helm"], "--set=excludedNamespaces={default},test.namespace=team")
    named = [one for one in found if one["metadata"]["name"] == "linkwise-test"]
    by_kind = {one["kind"]: one for one in named}
    assert {by_kind[kind]["metadata"]["namespace"] for kind in ("Role", "RoleBinding")} == {"team"}
    (container,) = by_kind["Pod"]["spec"]["containers"]
    assert environment(container)["LINKWISE_TEST_NAMESPACE"] == "team"


@pytest.mark.parametrize("groups", [["system:authenticated"], ["a", "oidc:b"], []], ids=len)
def test_groups_that_may_ask_through_the_api_server_are_bound(chart, groups):
    given = f"--set-json=webhook.dryRunGroups={json.dumps(groups)}"
    found = chart(given) if groups != ["system:authenticated"] else chart()

    binding = found["RoleBinding", NAMESPACE, "linkwise-dry-run"]

    assert list(binding["subjects"] or ()) == groups


def test_mounts_of_the_agent_follow_the_folder_of_the_kubelet(rendered_pods):
    options = "LINKWISE_KUBELET_DIR=/data/kubelet,agent.settings.LINKWISE_CDI_DIR=/run/cdi"
    pod = rendered_pods(f"--set=agent.settings.{options}")["agent"]["spec"]

    on_node = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"]}
    mounted = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    for name, path in {
        "device-plugins": "/data/kubelet/device-plugins",
        "pod-resources": "/data/kubelet/pod-resources",
        "cdi": "/run/cdi",
    }.items():
        assert (on_node[name], mounted[name]) == (path, path)


def test_port_of_the_extender_is_the_same_for_the_scorer_and_the_scheduler(chart):
    found = chart(SCHEDULER, "--set=scorer.settings.LINKWISE_EXTENDER_PORT=9090")
    pod = found["Deployment", NAMESPACE, "linkwise-scorer"]["spec"]["template"]["spec"]

    assert pod["containers"]["scorer"]["env"]["LINKWISE_EXTENDER_PORT"]["value"] == "9090"
    config = found["ConfigMap", NAMESPACE, "linkwise-scheduler"]["data"]["config.yaml"]
    assert "urlPrefix: http://127.0.0.1:9090\n" in config


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("global.imageRegistry=5", "at '/global/imageRegistry': got number, want string"),
        ("global.imagePullSecrets={mine}", "at '/global/imagePullSecrets/0'"),
        ("podLabels.app\\.kubernetes\\.io/name=x", "at '/podLabels/app.kubernetes.io~1name'"),
        ("webhook.settings.LINKWISE_PORTS=1", "additional properties 'LINKWISE_PORTS' not allowed"),
        ("webhook.settings.LINKWISE_PORT=70000", "at '/webhook/settings/LINKWISE_PORT': maximum"),
        ("certs.settings.LINKWISE_LEAF_DAYS=0", "at '/certs/settings/LINKWISE_LEAF_DAYS'"),
        ("certs.settings.LINKWISE_NAMESPACE=x", "'LINKWISE_NAMESPACE' not allowed"),
        ("extraEnv[0].name=LINKWISE_PORT", "at '/extraEnv/0/name'"),
        ("openshift.assignedIds=sometimes", "at '/openshift/assignedIds'"),
        ("test.namespace=a_b", "at '/test/namespace'"),
        ("excludedNamespaces={a_b}", "at '/excludedNamespaces/0'"),
    ],
)
def test_wrong_value_is_refused_with_its_place(chart, option, problem):
    with pytest.raises(RenderError, match=re.escape(problem)):
        chart(f"--set={option}")


def test_every_object_has_the_standard_labels(programs):
    prefix = "app.kubernetes.io/"
    options = (
        "--set=policy.autoscaling.request=podCondition,policy.placement.templates=auto",
        "--set=policy.gangs.preemption.others=lowerPriority,claims.refuseForcedDeletion=true",
        "--set=monitoring.podMonitor=true,monitoring.alerts=true,monitoring.dashboard=true",
        "--set=certs.mode=cert-manager,openshift.agentConstraints=true",
    )
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())
    of_release = {
        f"{prefix}instance": "linkwise",
        f"{prefix}managed-by": "Helm",
        f"{prefix}version": version["appVersion"],
        "helm.sh/chart": f"linkwise-{version['version']}",
    }
    for one in documents(programs["helm"], SCHEDULER, DASHBOARD, *options):
        labels = one["metadata"]["labels"]
        assert labels.items() >= of_release.items(), one
        assert f"{prefix}component" in labels or one["kind"] == "Namespace", one
        # The emergency stop selects policies by the name.
        unnamed = ("Validating", "MutatingAdmission", "Namespace")
        assert f"{prefix}name" in labels or one["kind"].startswith(unnamed), one


def test_values_of_other_charts_of_a_parent_are_allowed(chart):
    assert chart("--set=global.storageClass=fast")
