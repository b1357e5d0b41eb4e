import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml

from certs.ca_bundle import API
from certs.settings import SERVERS, WEBHOOK_CONFIGURATIONS
from certs.settings import Settings as CertsSettings
from certs.store import CA_SECRET
from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys
from linkwise.cluster.dry_run_proxy import SERVICE
from linkwise.cluster.gang import Link
from linkwise.cluster.mode import NodeMode
from linkwise.planning.gang.crd import GANGS, GangCondition, GangSpec, GangStatus, Phase
from linkwise.planning.gang.crd_plan import GangPlan, PlannedPod
from linkwise.policy.document import parse_policy
from linkwise.topology.machine import MAX_GPUS
from linkwise.workloads.registry import KINDS
from scorer.settings import Settings as ScorerSettings
from webhook.settings import Settings

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = MANIFESTS / "base"
COMPONENTS = ("webhook", "certs", "scorer")
SERVICES = ("linkwise-webhook", "linkwise-webhook-standby")
SECRETS = {service: secret for _, secret, service in SERVERS}
"""Secret of the certificate of each Deployment."""
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
SYSTEM = ["kube-system", "kube-node-lease", keys.POLICY_NAMESPACE]
OWNERS = {kind.plural for kind in KINDS if kind.plural} - {"jobs", "statefulsets"} | {"podgroups"}
"""Resources that say how many members a gang has, without those that are watched."""
ALLOCATION = {keys.ALLOCATION, keys.VISIBLE_DEVICES, keys.TERM, keys.ISOLATION}
CDI_ANNOTATIONS = {
    keys.CDI_ANNOTATION_PREFIX,
    keys.NVIDIA_CDI_DOMAIN,
    keys.NVIDIA_CDI_CONTAINER,
}
DEVICE_FOLDER = container_variables.DEVICE_MOUNTS.rpartition("/")[2]
IS_SCORER = "request.userInfo.username == 'system:serviceaccount:linkwise-system:linkwise-scorer'"
REQUESTED = {"aliyun.com/", keys.NVIDIA_GPU_SHARED, keys.NVIDIA_GPU, keys.SCHEDULER}
"""Resources of pods whose GPUs Linkwise chooses; of `nvidia.com/gpu` these are only some."""


@cache
def documents():
    return [
        document
        for path in sorted(BASE.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def document(kind, name, namespace=None):
    (match,) = (
        document
        for document in documents()
        if document["kind"] == kind
        and document["metadata"]["name"] == name
        and (namespace is None or document["metadata"].get("namespace") == namespace)
    )
    return match


def hook(kind):
    return document(kind, "linkwise")["webhooks"][0]


def retry_hook():
    """Return the webhook that is called after the first call has failed."""
    _, second, _ = document("MutatingWebhookConfiguration", "linkwise")["webhooks"]
    return second


def pod_of(component):
    return document("Deployment", f"linkwise-{component}")["spec"]["template"]["spec"]


def container_of(component):
    (container,) = pod_of(component)["containers"]
    return container


def quoted(expression):
    return set(re.findall(r"'([^']*)'", expression))


def test_base_lists_every_file_of_its_folder():
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert (set(listed), len(listed)) == (present, len(present))


def test_webhook_configurations_are_applied_last():
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert listed[-1] == "webhook-configurations.yaml"


def test_objects_are_unique():
    names = [
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in documents()
    ]
    assert len(set(names)) == len(names)


def test_shipped_policy_has_only_defaults():
    policy = document("ConfigMap", keys.POLICY_NAME, keys.POLICY_NAMESPACE)
    assert parse_policy(policy["data"][keys.POLICY_KEY]) == parse_policy("")


def test_overlay_for_all_pods_changes_policy_and_webhook_configuration():
    overlay = yaml.safe_load((MANIFESTS / "profiles-all/kustomization.yaml").read_text())
    patches = {
        patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in overlay["patches"]
    }
    assert patches["MutatingWebhookConfiguration"] == [
        {"op": "remove", "path": "/webhooks/0/matchConditions"}
    ]
    (replaced,) = patches["ConfigMap"]
    assert replaced["path"] == f"/data/{keys.POLICY_KEY}"
    assert parse_policy(replaced["value"]).profiles_all is True


def test_pod_webhook_matches_only_creation_and_fails_open():
    found = hook("MutatingWebhookConfiguration")
    chosen = ("timeoutSeconds", "failurePolicy", "reinvocationPolicy", "sideEffects")
    assert [found[key] for key in chosen] == [3, "Ignore", "Never", "None"]
    assert found["admissionReviewVersions"] == ["v1"]
    (rule,) = found["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])


def test_retry_webhook_calls_the_standby_for_pods_that_the_policy_would_refuse():
    differ = ("name", "clientConfig", "matchConditions")
    first, second = (
        {key: value for key, value in found.items() if key not in differ}
        for found in (hook("MutatingWebhookConfiguration"), retry_hook())
    )
    assert second == first
    (called,) = retry_hook()["matchConditions"]
    (refused,) = document("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]["matchConditions"]
    assert called["expression"].split() == refused["expression"].split()


def test_updates_of_pods_are_sent_to_the_webhook_as_their_creation_is():
    differ = ("name", "matchConditions", "rules")
    first, *_, update = document("MutatingWebhookConfiguration", "linkwise")["webhooks"]
    assert update["rules"] == [{**first["rules"][0], "operations": ["UPDATE"]}]
    assert {key: update[key] for key in update if key not in differ} == {
        key: first[key] for key in first if key not in differ
    }


@pytest.mark.parametrize("policy", ["registration", "placed"])
def test_system_namespaces_are_excluded(policy):
    selector = (
        hook("MutatingWebhookConfiguration")["namespaceSelector"]
        if policy == "registration"
        else document("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]["matchConstraints"][
            "namespaceSelector"
        ]
    )
    assert selector == {
        "matchExpressions": [{"key": keys.NAMESPACE_NAME, "operator": "NotIn", "values": SYSTEM}]
    }


FOLDER_START = "nvidia-con"
"""Of the folder whose mounts name devices: a longer text would cost an API server more."""


def test_match_condition_has_all_resources_and_keys_that_admission_reads():
    (condition,) = hook("MutatingWebhookConfiguration")["matchConditions"]
    prefixes = (keys.GPU_WHOLE, keys.NVIDIA_GPU)
    assert all(resource.startswith(prefixes) for resource in keys.RESOURCES)
    assert DEVICE_FOLDER.startswith(FOLDER_START)
    assert quoted(condition["expression"]) == {
        *prefixes,
        keys.ACS_PREFIX,
        keys.POD_GROUP,
        keys.POD_GROUP_NAME,
        keys.KOORDINATOR_GANG_NAME,
        keys.GANG,
        container_variables.ENV_VISIBLE_DEVICES,
        container_variables.ENV_IMEX_CHANNELS,
        container_variables.ENV_MIG_CONFIG,
        FOLDER_START,
    }


def test_config_map_webhook_matches_only_our_config_maps():
    found = hook("ValidatingWebhookConfiguration")
    (condition,) = found["matchConditions"]
    assert quoted(condition["expression"]) == {
        keys.PROFILE_NAMESPACE,
        keys.PROFILE_NAME,
        keys.POLICY_NAMESPACE,
        keys.POLICY_NAME,
    }
    assert (found["failurePolicy"], found["sideEffects"]) == ("Ignore", "None")


def test_owner_webhook_covers_every_kind_that_check_knows():
    _, found = document("ValidatingWebhookConfiguration", "linkwise")["webhooks"]
    resources = {
        (group, resource)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert resources == {
        (kind.group, kind.plural or f"{kind.name.lower()}s")
        for kind in KINDS
        if kind.group and not kind.is_base
    }
    assert {tuple(rule["operations"]) for rule in found["rules"]} == {("CREATE", "UPDATE")}


def test_owner_webhook_fails_open_and_changes_nothing():
    first, found = document("ValidatingWebhookConfiguration", "linkwise")["webhooks"]
    chosen = ("timeoutSeconds", "failurePolicy", "sideEffects", "admissionReviewVersions")
    assert [found[key] for key in chosen] == [first[key] for key in chosen]
    assert found["namespaceSelector"] == hook("MutatingWebhookConfiguration")["namespaceSelector"]
    *_, gpus = found["matchConditions"]
    assert {keys.GPU_WHOLE, keys.NVIDIA_GPU, keys.ACS_PREFIX} <= quoted(gpus["expression"])


def covered(policy):
    return {
        (resource, operation)
        for rule in policy["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def test_guard_covers_every_way_to_write_an_allocation():
    spec = document("ValidatingAdmissionPolicy", "linkwise-guard")["spec"]
    assert covered(spec) == {
        ("pods", "CREATE"),
        ("pods", "UPDATE"),
        ("pods/status", "UPDATE"),
        ("pods/ephemeralcontainers", "UPDATE"),
        ("pods/binding", "CREATE"),
        ("bindings", "CREATE"),
    }
    assert spec["failurePolicy"] == "Fail"


def test_guard_protects_our_keys_of_the_record():
    spec = document("ValidatingAdmissionPolicy", "linkwise-guard")["spec"]
    assert {key for key in keys.RECORD if key.startswith(keys.PREFIX)} == ALLOCATION
    devices = {
        keys.VISIBLE_DEVICES_OF,
        container_variables.ENV_VISIBLE_DEVICES,
        NO_GPU,
        "",
        DEVICE_FOLDER,
    }
    devices |= {
        container_variables.ENV_IMEX_CHANNELS,
        container_variables.ENV_MIG_CONFIG,
        container_variables.ENV_MIG_MONITOR,
    }
    (rule,) = spec["matchConditions"]
    requested = {"ephemeralcontainers", *REQUESTED}
    # gpushare's plugin writes these two.
    cards = {*keys.RECORD} - ALLOCATION - {keys.MEM_ASSIGNED, keys.MEM_ASSUME_TIME}
    named = {*ALLOCATION, *CDI_ANNOTATIONS, *devices, *requested, *cards, keys.GANG}
    named.add(keys.CLAIMED_GPUS)
    _, for_others = by_account(rule)
    assert quoted(for_others) == named
    # Whenever the condition matches, one of the validations fails.
    gate, debug, card, record, scorer = (item["expression"] for item in spec["validations"])
    known = "variables.scorer || "
    assert (gate, debug) == (f"{known}!variables.ungated", f"{known}!variables.debugged")
    known += "variables.ungated || variables.debugged || "
    assert card == f"{known}!variables.reallocated"
    assert record == f"{known}variables.reallocated"
    assert scorer == "!variables.scorer"
    whole = " ".join(rule["expression"].split())
    assert all(" ".join(item["expression"].split()) in whole for item in spec["variables"])


def by_account(rule):
    """Return the parts of the rule of the guard: for the scorer, and for all others."""
    user, _, parts = " ".join(rule["expression"].split()).partition(" ? ")
    assert user == IS_SCORER
    for_scorer, _, for_others = parts.rpartition(" : [optional")
    return for_scorer, f"[optional{for_others}"


def test_guard_allows_the_scorer_the_annotations_of_a_record():
    (rule,) = document("ValidatingAdmissionPolicy", "linkwise-guard")["spec"]["matchConditions"]
    for_scorer, _ = by_account(rule)
    listed = for_scorer.partition("!(k in [")[2].partition("]")[0]
    assert quoted(listed) == keys.RECORD | {keys.LEFT_TO_SCHEDULER, keys.REQUEUED}
    assert {keys.VISIBLE_DEVICES_OF, keys.NVIDIA_CDI_CONTAINER, keys.GANG} <= quoted(for_scorer)


def test_fence_covers_for_the_scorer_what_the_guard_denies_others():
    guard, fence = (
        document("ValidatingAdmissionPolicy", f"linkwise-{name}")["spec"]
        for name in ("guard", "fence")
    )
    # The fence need not cover what the scorer's account may not do.
    uncovered = covered(guard) - covered(fence)
    evictions = {("pods/eviction", "CREATE")}
    verbs = {"CREATE": ("create",), "UPDATE": ("update", "patch")}
    assert covered(fence) - evictions < covered(guard)
    assert evictions < covered(fence)
    assert not granted("scorer") & {
        ("*", resource, verb) for resource, operation in uncovered for verb in verbs[operation]
    }
    (rule,), (held,) = guard["matchConditions"], fence["matchConditions"]
    _, kept = by_account(rule)
    user, _, held = " ".join(held["expression"].split()).partition(" && ")
    assert user == IS_SCORER
    # The expressions for a changed record or a removed gate are equal.
    changes, *_ = kept.partition(" || (has(request.subResource)")
    assert held.startswith(f"({changes}) && ")
    named = {*ALLOCATION, *CDI_ANNOTATIONS, *REQUESTED, keys.VISIBLE_DEVICES_OF}
    assert quoted(held) - {""} == {*named, keys.GANG, keys.CLAIMED_GPUS, "none"}
    (validation,) = fence["validations"]
    assert validation["expression"] == "false"
    assert keys.TERM in quoted(validation["messageExpression"])


def test_fence_reads_the_lease_of_the_scorer_and_allows_all_without_one():
    policy = document("ValidatingAdmissionPolicy", "linkwise-fence")["spec"]
    binding = document("ValidatingAdmissionPolicyBinding", "linkwise-fence")["spec"]
    assert policy["paramKind"] == {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    found = binding["paramRef"]
    assert found["parameterNotFoundAction"] == "Allow"
    assert {
        (found["namespace"], "leases", verb, found["name"])
        for verb in ("get", "list", "watch", "patch")
    } <= granted("scorer")


def test_claims_that_tolerate_our_taint_are_those_of_the_scorer():
    spec = document("ValidatingAdmissionPolicy", "linkwise-claims")["spec"]
    assert covered(spec) == {("resourceclaims", "CREATE"), ("resourceclaimtemplates", "CREATE")}
    # API servers convert requests of older versions.
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert [rule["apiVersions"] for rule in spec["matchConstraints"]["resourceRules"]] == [["v1"]]
    assert spec["failurePolicy"] == "Fail"
    (rule,) = spec["matchConditions"]
    user, _, _ = " ".join(rule["expression"].split()).partition(" && ")
    assert user == IS_SCORER.replace("==", "!=")
    tolerated = {"", keys.PLACED, keys.BUSY, "NoSchedule", "resourceclaims"}
    assert quoted(rule["expression"]) - quoted(IS_SCORER) == tolerated
    assert [item["expression"] for item in spec["validations"]] == ["false"]
    binding = document("ValidatingAdmissionPolicyBinding", "linkwise-claims")["spec"]
    assert binding == {"policyName": "linkwise-claims", "validationActions": ["Deny"]}


def test_placement_policy_requires_our_gate_or_scheduler_and_no_node_name():
    spec = document("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]
    (rule,) = spec["matchConditions"]
    nodes = {keys.NODE_USER_PREFIX, keys.NODES_GROUP}
    requested = {"aliyun.com/", keys.NVIDIA_GPU_SHARED, "0"}
    excludes = {keys.NODE_MODE, NodeMode.TIMESLICE.value, "In", "NotIn", "DoesNotExist"}
    named = {*requested, *nodes, keys.GANG, keys.SCHEDULER, keys.CLAIM_PREFIX, *excludes}
    assert quoted(rule["expression"]) - {""} == named
    # Whenever the condition matches, one of the validations fails.
    many, named, unnamed = (item["expression"] for item in spec["validations"])
    assert many == "!variables.many"
    assert (named, unnamed) == (unnamed.replace("!=", "=="), named.replace("==", "!="))
    assert all(each.startswith("variables.many || ") for each in (named, unnamed))
    (counted,) = spec["variables"]
    whole = " ".join(rule["expression"].split())
    assert whole.startswith(" ".join(counted["expression"].split()) + " || (")
    assert spec["failurePolicy"] == "Fail"


def test_placement_policy_for_nvidia_gpus_depends_on_the_lease_of_the_scorer():
    spec = document("ValidatingAdmissionPolicy", "linkwise-placed-nvidia")["spec"]
    (rule,) = spec["matchConditions"]
    nodes = {keys.NODE_USER_PREFIX, keys.NODES_GROUP}
    excludes = {keys.NODE_MODE, NodeMode.TOPOLOGY.value, "In", "NotIn", "DoesNotExist"}
    asks = {keys.NVIDIA_NODES, "true", keys.NVIDIA_GPU, "0"}
    named = {*asks, *nodes, keys.GANG, keys.SCHEDULER, *excludes}
    assert quoted(rule["expression"]) - {""} == named
    assert [item["expression"] for item in spec["validations"]] == ["false"]
    assert spec["failurePolicy"] == "Fail"
    other = document("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]
    assert spec["matchConstraints"] == other["matchConstraints"]
    binding = document("ValidatingAdmissionPolicyBinding", "linkwise-placed-nvidia")["spec"]
    fence = document("ValidatingAdmissionPolicyBinding", "linkwise-fence")["spec"]
    assert binding["paramRef"] == fence["paramRef"]
    assert binding["paramRef"]["name"] == keys.SCORER


def test_certificate_has_the_names_of_the_services_and_is_in_the_mounted_secret():
    assert CertsSettings.read(POD).namespace == keys.POLICY_NAMESPACE
    called = [hook(kind) for _, kind, _ in WEBHOOK_CONFIGURATIONS]
    services = [item["clientConfig"]["service"] for item in (*called, retry_hook())]
    assert [call["name"] for call in services] == [SERVICES[0], SERVICES[0], SERVICES[1]]
    assert {call["namespace"] for call in services} == {keys.POLICY_NAMESPACE}
    for component in ("webhook", "webhook-standby", "scorer"):
        volume = pod_of(component)["volumes"][0]
        assert volume["secret"]["secretName"] == SECRETS[f"linkwise-{component}"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]
    names = {server.names[0] for server in CertsSettings.read(POD).issuance.servers}
    assert names == {f"{name}.{keys.POLICY_NAMESPACE}.svc" for name in SECRETS}
    assert names > {keys.SERVER_NAME, keys.SCORER_SERVER_NAME}


def test_no_pod_mounts_the_secret_of_the_ca():
    text = yaml.safe_dump_all(item for item in documents() if item["kind"] == "Deployment")
    assert CA_SECRET not in text


def test_scorer_starts_without_a_certificate():
    assert pod_of("scorer")["volumes"][0]["secret"]["optional"] is True


def test_webhook_has_a_token_for_the_scorer_and_the_ca():
    settings = Settings()
    token, signed = pod_of("webhook")["volumes"][1]["projected"]["sources"]
    own = pod_of("webhook")["volumes"][0]["secret"]["secretName"]
    (item,) = signed["secret"]["items"]
    mount = container_of("webhook")["volumeMounts"][1]["mountPath"]
    account = pod_of("webhook")["serviceAccountName"]

    assert token["serviceAccountToken"]["audience"] == keys.FIT_AUDIENCE
    assert f"{mount}/{token['serviceAccountToken']['path']}" == settings.scorer_token_file
    assert f"{mount}/{item['path']}" == settings.scorer_ca_file
    # A Secret of the user's own may lack it; the webhook must start without it.
    assert (signed["secret"]["name"], signed["secret"]["optional"]) == (own, True)
    assert f"system:serviceaccount:{keys.POLICY_NAMESPACE}:{account}" == keys.WEBHOOK_USER


def test_the_way_through_the_api_server_leads_to_the_dry_run_port_alone():
    (rule,) = document("Role", "linkwise-dry-run")["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["services/proxy"],
        "resourceNames": [SERVICE],
        "verbs": ["create"],
    }
    scheme, name, port = SERVICE.split(":")
    assert scheme == "https"
    assert port in [each["name"] for each in document("Service", name)["spec"]["ports"]]


def test_roles_of_a_namespace_can_read_its_gangs_and_write_nothing_of_ours():
    role = document("ClusterRole", "linkwise-user")
    aggregated = {f"rbac.authorization.k8s.io/aggregate-to-{name}" for name in ("view", "edit")}
    assert {label for label, value in role["metadata"]["labels"].items() if value == "true"} == (
        aggregated
    )
    assert role["rules"] == [
        {"apiGroups": ["linkwise.dev"], "resources": ["gangs"], "verbs": ["get", "list", "watch"]}
    ]


def test_only_webhook_and_scorer_reach_the_fit_port_of_the_scorer():
    (rule,) = (
        rule
        for rule in document("NetworkPolicy", "linkwise-scorer")["spec"]["ingress"]
        if {"protocol": "TCP", "port": "fit"} in rule["ports"]
    )
    callers = ("webhook", "scorer")
    labels = [caller["podSelector"]["matchLabels"] for caller in rule["from"]]
    assert labels == [labels_of(caller) for caller in callers]
    for caller in callers:
        (to_scorer,) = (
            rule
            for rule in document("NetworkPolicy", f"linkwise-{caller}")["spec"]["egress"]
            if "to" in rule
        )
        (called,) = to_scorer["to"]
        assert called["podSelector"]["matchLabels"] == labels_of("scorer")
        assert [port["port"] for port in to_scorer["ports"]] == [ScorerSettings.read(POD).fit_port]


def test_certs_injects_into_every_webhook_configuration():
    registered = {
        (document["kind"], document["metadata"]["name"])
        for document in documents()
        if document["kind"].endswith("WebhookConfiguration")
    }
    assert registered == {(kind, name) for _, kind, name in WEBHOOK_CONFIGURATIONS}
    assert {document(kind, name)["apiVersion"] for _, kind, name in WEBHOOK_CONFIGURATIONS} == {API}


def test_ports_and_files_match_the_default_settings():
    settings = Settings()
    ports = {port["name"]: port["containerPort"] for port in container_of("webhook")["ports"]}
    assert ports == {
        "admission": settings.port,
        "dry-run": settings.dry_run_port,
        "probe": settings.probe_port,
    }
    scorer = ScorerSettings.read(POD)
    for component, defaults in (("webhook", settings), ("scorer", scorer)):
        mount = container_of(component)["volumeMounts"][0]
        assert {defaults.certificate, defaults.key} == {
            f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key")
        }
    ports = {port["name"]: port["containerPort"] for port in container_of("scorer")["ports"]}
    assert ports == {"probe": scorer.probe_port, "fit": scorer.fit_port}
    (address,) = container_of("scorer")["env"]
    assert address["name"] == "LINKWISE_ADDRESS"
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    (probe,) = container_of("certs")["ports"]
    assert probe["containerPort"] == CertsSettings.read(POD).probe_port


@pytest.mark.parametrize("name", SERVICES)
def test_service_selects_its_deployment_and_existing_ports(name):
    spec = document("Service", name)["spec"]
    have = {port["name"] for port in container_of("webhook")["ports"]}
    assert {port["targetPort"] for port in spec["ports"]} <= have
    # A Deployment has the name of the Service of its pods.
    for other in SERVICES:
        labels = document("Deployment", other)["spec"]["template"]["metadata"]["labels"]
        assert (spec["selector"].items() <= labels.items()) == (other == name)
    called = {
        hook(kind)["clientConfig"]["service"]["port"] for _, kind, _ in WEBHOOK_CONFIGURATIONS
    }
    assert called | {retry_hook()["clientConfig"]["service"]["port"]} <= {
        port["port"] for port in spec["ports"]
    }


def test_standby_has_the_pod_spec_of_the_webhook():
    first, standby = (document("Deployment", name)["spec"] for name in SERVICES)
    assert standby["replicas"] == 1
    for spec, role in ((first, "first"), (standby, "standby")):
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert labels.items() > labels_of("webhook").items()
        assert set(labels.values()) - set(labels_of("webhook").values()) == {role}
    own, other = (SECRETS[name] for name in SERVICES)
    text = yaml.safe_dump(first["template"]["spec"]).replace(own, other)
    assert yaml.safe_dump(standby["template"]["spec"]) == text
    assert standby["strategy"] == first["strategy"]


@cache
def gangs():
    """Return the one version of the Gang."""
    (version,) = document("CustomResourceDefinition", "gangs.linkwise.dev")["spec"]["versions"]
    return version


def schema_of(*path):
    found = gangs()["schema"]["openAPIV3Schema"]
    for key in path:
        found = found["items"] if key == "items" else found["properties"][key]
    return found


def test_gang_crd_has_the_path_that_the_scorer_writes():
    spec = document("CustomResourceDefinition", "gangs.linkwise.dev")["spec"]
    path = f"/apis/{spec['group']}/{gangs()['name']}/{spec['names']['plural']}"
    assert (path, spec["scope"]) == (GANGS, "Namespaced")
    assert gangs()["subresources"] == {"status": {}}


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (("spec",), GangSpec),
        (("spec", "plan"), GangPlan),
        (("spec", "plan", "members", "items"), PlannedPod),
        (("status",), GangStatus),
        (("status", "conditions", "items"), GangCondition),
    ],
)
def test_gang_schema_has_and_requires_the_fields_that_the_scorer_writes(path, written):
    schema = schema_of(*path)
    fields = msgspec.structs.fields(written)
    assert set(schema["properties"]) == {field.encode_name for field in fields}
    required = {field.encode_name for field in fields if field.required}
    assert set(schema.get("required", ())) == required


def test_gang_schema_allows_all_enum_values_and_gpu_indices():
    gpu = schema_of("spec", "plan", "members", "items", "gpus", "items")
    assert schema_of("spec", "link")["enum"] == [*Link]
    assert schema_of("status", "phase")["enum"] == [*Phase]
    assert (gpu["minimum"], gpu["maximum"]) == (0, MAX_GPUS - 1)


def test_gang_has_printer_columns():
    columns = {c["name"].upper(): c["jsonPath"] for c in gangs()["additionalPrinterColumns"]}
    status = {
        "MEMBERS": ".status.members",
        "PHASE": ".status.phase",
        "NODES": ".status.nodes",
        "GB/S": ".status.bandwidth",
        "GPUS": ".status.gpus",
    }
    age = {"AGE": ".metadata.creationTimestamp", "REASON": ".status.reason"}
    assert list(columns.items()) == list((status | age).items())
    assert not any("priority" in column for column in gangs()["additionalPrinterColumns"])


def labels_of(component):
    """Return the labels that all pods of a component have."""
    labels = document("Deployment", f"linkwise-{component}")["metadata"]["labels"]
    pods = document("Deployment", f"linkwise-{component}")["spec"]["template"]["metadata"]["labels"]
    assert labels.items() <= pods.items()
    return labels


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_has_two_replicas_a_rolling_update_and_no_privileges(component):
    deployment = document("Deployment", f"linkwise-{component}")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert container_of(component)["command"] == ["python", "-m", component]
    assert "cpu" not in container_of(component)["resources"]["limits"]
    assert pod_of(component)["securityContext"]["runAsNonRoot"] is True
    assert container_of(component)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "NetworkPolicy"])
def test_selectors_match_the_pods_of_their_component(kind, component):
    spec = document(kind, f"linkwise-{component}")["spec"]
    selector = spec["selector"] if kind == "PodDisruptionBudget" else spec["podSelector"]
    assert selector["matchLabels"] == labels_of(component)


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_is_spread_over_nodes_and_has_a_disruption_budget(component):
    pod = pod_of(component)
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["topologyKey"] == keys.HOSTNAME
    assert spread["labelSelector"]["matchLabels"] == labels_of(component)
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert document("PodDisruptionBudget", f"linkwise-{component}")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_network_policy_opens_served_ports_and_egress_to_the_api_server(component):
    spec = document("NetworkPolicy", f"linkwise-{component}")["spec"]
    opened = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
    assert opened == {port["name"] for port in container_of(component)["ports"]}
    # Without `to`: the API server.
    unrestricted = [rule for rule in spec["egress"] if "to" not in rule]
    called = {port["port"] for rule in unrestricted for port in rule["ports"]}
    assert (called, spec["policyTypes"]) == ({443, 6443}, ["Ingress", "Egress"])


@pytest.mark.parametrize("component", COMPONENTS)
def test_only_monitoring_reaches_the_probe_ports(component):
    rules = document("NetworkPolicy", f"linkwise-{component}")["spec"]["ingress"]
    probe = {"protocol": "TCP", "port": "probe"}
    (rule,) = (rule for rule in rules if probe in rule["ports"])

    ((expression,),) = (caller["namespaceSelector"]["matchExpressions"] for caller in rule["from"])
    assert expression["key"] == "kubernetes.io/metadata.name"
    assert (expression["operator"], expression["values"]) == ("In", ["monitoring"])
    assert rule["ports"] == [probe]


def test_termination_grace_period_covers_the_drain():
    seconds = pod_of("webhook")["terminationGracePeriodSeconds"]
    assert seconds > 60 + 5


def granted(component):
    """Return what an account may do: (group, resource, verb, names)."""
    bound = {
        (
            document["roleRef"]["kind"],
            document["roleRef"]["name"],
            document["metadata"].get("namespace"),
        )
        for document in documents()
        if document["kind"].endswith("Binding")
        and any(
            subject["name"] == f"linkwise-{component}" for subject in document.get("subjects", ())
        )
    }
    return {
        (namespace or "*", resource, verb, *rule.get("resourceNames", ()))
        for kind, name, namespace in bound
        for rule in document(kind, name, namespace)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_rights_of_the_webhook():
    read = ("get", "list", "watch")
    assert granted("webhook") == {
        *(("*", resource, verb) for resource in ("namespaces", "nodes") for verb in read),
        ("*", "tokenreviews", "create"),
        ("*", "subjectaccessreviews", "create"),
        *((keys.POLICY_NAMESPACE, "configmaps", verb, keys.POLICY_NAME) for verb in read),
        *((keys.PROFILE_NAMESPACE, "configmaps", verb, keys.PROFILE_NAME) for verb in read),
        (keys.POLICY_NAMESPACE, "events", "create"),
        (keys.PROFILE_NAMESPACE, "events", "create"),
        (keys.POLICY_NAMESPACE, "leases", "get", keys.SCORER),
    }


def test_rights_of_the_scorer():
    read = ("list", "watch")
    system = keys.POLICY_NAMESPACE
    assert granted("scorer") == {
        *(("*", "nodes", verb) for verb in read),
        *(("*", "pods", verb) for verb in (*read, "get", "patch")),
        ("*", "pods/eviction", "create"),
        *(("*", "namespaces", verb) for verb in read),
        *(("*", "poddisruptionbudgets", verb) for verb in read),
        *(("*", f"persistentvolume{rest}", verb) for rest in ("claims", "s") for verb in read),
        *(("*", kind, verb) for kind in ("csinodes", "storageclasses") for verb in read),
        *(("*", "events", verb) for verb in ("create", "list")),
        *(("*", "gangs", verb) for verb in (*read, "get", "create", "patch")),
        ("*", "gangs/status", "patch"),
        *(("*", kind, verb) for kind in ("jobs", "statefulsets") for verb in (*read, "get")),
        ("*", "tokenreviews", "create"),
        *(("*", resource, verb) for resource in OWNERS for verb in ("get", *read)),
        *(("*", kind, verb) for kind in ("resourceclaims", "resourceslices") for verb in read),
        *(("*", "deviceclasses", verb) for verb in read),
        *(("*", "resourceclaims", verb) for verb in ("get", "create", "delete")),
        *(("*", "devicetaintrules", verb) for verb in (*read, "create", "update", "delete")),
        *((system, "configmaps", verb, keys.POLICY_NAME) for verb in read),
        *((system, "leases", verb, "linkwise-scorer") for verb in (*read, "get", "patch")),
        (system, "leases", "create"),
        *((keys.TOPOLOGY_NAMESPACE, "configmaps", verb) for verb in read),
    }


def test_only_certs_may_read_a_secret():
    for component in ("webhook", "scorer"):
        assert "secrets" not in {resource for _, resource, *_ in granted(component)}


def test_certs_publishes_into_a_config_map_that_is_shipped():
    shipped = document("ConfigMap", keys.CERTS, keys.POLICY_NAMESPACE)
    # Without data: applying the manifests again keeps what certs has written.
    assert "data" not in shipped


def test_rights_of_certs():
    verbs = ("get", "list", "watch", "patch")
    system = keys.POLICY_NAMESPACE
    assert granted("certs") == {
        *((system, "secrets", verb, CA_SECRET, *SECRETS.values()) for verb in verbs),
        (system, "secrets", "create"),
        *((system, "configmaps", verb, keys.CERTS) for verb in ("get", "patch")),
        (system, "events", "create"),
        *(
            ("*", resource, verb, name)
            for resource, _, name in WEBHOOK_CONFIGURATIONS
            for verb in verbs
        ),
    }
