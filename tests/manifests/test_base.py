import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml

from certs.ca_bundle import API
from certs.settings import SECRET, SERVICES, WEBHOOK_CONFIGURATIONS
from certs.settings import read_settings as certs_settings
from cluster import keys
from cluster.gang import Link
from cluster.mode import Mode
from policy.document import parse_policy
from scorer.gang.crd import (
    GANGS,
    GangCondition,
    GangPlan,
    GangSpec,
    GangStatus,
    Phase,
    PlannedPod,
)
from scorer.gang.owners import _PLURALS
from scorer.settings import read_settings as scorer_settings
from topology.machine import MAX_GPUS
from webhook.device_variables import NO_GPU
from webhook.settings import Settings

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = MANIFESTS / "base"
COMPONENTS = ("webhook", "certs", "scorer")
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
SYSTEM = ["kube-system", "kube-node-lease", keys.POLICY_NAMESPACE]
OWNERS = ("mpijobs", "pytorchjobs", "jobsets", "leaderworkersets", "podgroups")
ALLOCATION = {keys.ALLOCATION, keys.VISIBLE_DEVICES, keys.TERM, keys.ISOLATION}


@cache
def documents():
    return [
        document
        for path in sorted(BASE.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def one(kind, name, namespace=None):
    found = [
        document
        for document in documents()
        if document["kind"] == kind
        and document["metadata"]["name"] == name
        and (namespace is None or document["metadata"].get("namespace") == namespace)
    ]
    assert len(found) == 1
    return found[0]


def hook(kind):
    return one(kind, "linkwise")["webhooks"][0]


def again():
    """Return the webhook that is called when the first call failed."""
    _, found = one("MutatingWebhookConfiguration", "linkwise")["webhooks"]
    return found


def pod_of(component):
    return one("Deployment", f"linkwise-{component}")["spec"]["template"]["spec"]


def container_of(component):
    (container,) = pod_of(component)["containers"]
    return container


def quoted(expression):
    return set(re.findall(r"'([^']*)'", expression))


def test_the_base_names_every_file_of_its_folder():
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert (set(listed), len(listed)) == (present, len(present))


def test_what_makes_the_api_server_call_or_refuse_comes_last():
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert listed[-1] == "registrations.yaml"


def test_no_object_is_there_twice():
    names = [
        (one_["kind"], one_["metadata"].get("namespace"), one_["metadata"]["name"])
        for one_ in documents()
    ]
    assert len(set(names)) == len(names)


def test_the_default_policy_is_the_default():
    policy = one("ConfigMap", keys.POLICY_NAME, keys.POLICY_NAMESPACE)
    assert parse_policy(policy["data"][keys.POLICY_KEY]) == parse_policy("")


def test_the_overlay_for_all_pods_decides_so_in_policy_and_registration():
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


def test_the_registration_is_narrow_and_cannot_block_anybody():
    found = hook("MutatingWebhookConfiguration")
    chosen = ("timeoutSeconds", "failurePolicy", "reinvocationPolicy", "sideEffects")
    assert [found[key] for key in chosen] == [3, "Ignore", "Never", "None"]
    assert found["admissionReviewVersions"] == ["v1"]
    (rule,) = found["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])


def test_the_second_try_is_as_the_first_but_asks_others_and_only_for_what_would_be_refused():
    differ = ("name", "clientConfig", "matchConditions")
    first, second = (
        {key: value for key, value in found.items() if key not in differ}
        for found in (hook("MutatingWebhookConfiguration"), again())
    )
    assert second == first
    (called,) = again()["matchConditions"]
    (refused,) = one("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]["matchConditions"]
    assert called["expression"].split() == refused["expression"].split()


@pytest.mark.parametrize("policy", ["registration", "placed"])
def test_namespaces_of_the_system_are_left_alone(policy):
    selector = (
        hook("MutatingWebhookConfiguration")["namespaceSelector"]
        if policy == "registration"
        else one("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]["matchConstraints"][
            "namespaceSelector"
        ]
    )
    assert selector == {
        "matchExpressions": [{"key": keys.NAMESPACE_NAME, "operator": "NotIn", "values": SYSTEM}]
    }


def test_the_conditions_name_what_admission_reads():
    (condition,) = hook("MutatingWebhookConfiguration")["matchConditions"]
    beginnings = (keys.GPU_WHOLE, keys.NVIDIA_GPU)
    assert all(resource.startswith(beginnings) for resource in keys.RESOURCES)
    assert quoted(condition["expression"]) == {
        *beginnings,
        keys.ACS_PREFIX,
        keys.POD_GROUP,
        keys.POD_GROUP_NAME,
        keys.KOORDINATOR_GANG_NAME,
        keys.GANG,
        keys.ENV_VISIBLE_DEVICES,
    }


def test_the_config_maps_that_are_validated_are_ours():
    found = hook("ValidatingWebhookConfiguration")
    (condition,) = found["matchConditions"]
    assert quoted(condition["expression"]) == {
        keys.PROFILE_NAMESPACE,
        keys.PROFILE_NAME,
        keys.POLICY_NAMESPACE,
        keys.POLICY_NAME,
    }
    assert (found["failurePolicy"], found["sideEffects"]) == ("Ignore", "None")


def covered(policy):
    return {
        (resource, operation)
        for rule in policy["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def test_the_guard_covers_every_way_to_write_an_allocation():
    spec = one("ValidatingAdmissionPolicy", "linkwise-guard")["spec"]
    assert covered(spec) == {
        ("pods", "CREATE"),
        ("pods", "UPDATE"),
        ("pods/status", "UPDATE"),
        ("pods/ephemeralcontainers", "UPDATE"),
        ("pods/binding", "CREATE"),
        ("bindings", "CREATE"),
    }
    assert spec["failurePolicy"] == "Fail"


def test_the_guard_names_the_keys_of_the_record_that_are_ours():
    spec = one("ValidatingAdmissionPolicy", "linkwise-guard")["spec"]
    assert {key for key in keys.RECORD if key.startswith(keys.PREFIX)} == ALLOCATION
    devices = {keys.VISIBLE_DEVICES_OF, keys.ENV_VISIBLE_DEVICES, NO_GPU, ""}
    _, rule = spec["matchConditions"]
    asked = {"ephemeralcontainers", "aliyun.com/", keys.NVIDIA_GPU_SHARED}
    assert quoted(rule["expression"]) == {*ALLOCATION, *devices, *asked, keys.GANG}
    # One of them is not met whenever the rule applies, whichever it is: no pod slips by.
    gate, debug, record = (one["expression"] for one in spec["validations"])
    assert (gate, debug) == ("!variables.ungated", "!variables.debugged")
    assert record == "variables.ungated || variables.debugged"
    whole = " ".join(rule["expression"].split())
    assert all(" ".join(one["expression"].split()) in whole for one in spec["variables"])


def test_the_fence_holds_the_scorer_to_what_the_guard_keeps_from_others():
    guard, fence = (
        one("ValidatingAdmissionPolicy", f"linkwise-{name}")["spec"] for name in ("guard", "fence")
    )
    # What the scorer's account may not do anyway is not looked at.
    uncovered = covered(guard) - covered(fence)
    verbs = {"CREATE": ("create",), "UPDATE": ("update", "patch")}
    assert covered(fence) < covered(guard)
    assert not granted("scorer") & {
        ("*", resource, verb) for resource, operation in uncovered for verb in verbs[operation]
    }
    others, scorer = guard["matchConditions"][0], fence["matchConditions"][0]
    assert others["expression"] == scorer["expression"].replace("==", "!=")
    kept, held = (
        " ".join(one["matchConditions"][1]["expression"].split()) for one in (guard, fence)
    )
    # A change of the record, or the gate taken off: in the same words.
    changes, *_ = kept.partition(" || (has(request.subResource)")
    assert held.startswith(f"({changes}) && ")
    assert quoted(held) == {*ALLOCATION, keys.VISIBLE_DEVICES_OF, keys.GANG, "none"}
    (told,) = fence["validations"]
    assert told["expression"] == "false"
    assert keys.TERM in quoted(told["messageExpression"])


def test_the_fence_goes_by_the_lease_that_the_scorer_may_write_and_blocks_nobody_without_one():
    policy = one("ValidatingAdmissionPolicy", "linkwise-fence")["spec"]
    binding = one("ValidatingAdmissionPolicyBinding", "linkwise-fence")["spec"]
    assert policy["paramKind"] == {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    found = binding["paramRef"]
    assert found["parameterNotFoundAction"] == "Allow"
    assert {
        (found["namespace"], "leases", verb, found["name"])
        for verb in ("get", "list", "watch", "patch")
    } <= granted("scorer")


def test_what_must_be_placed_is_known_by_our_gate_and_our_scheduler_and_names_no_node():
    spec = one("ValidatingAdmissionPolicy", "linkwise-placed")["spec"]
    (rule,) = spec["matchConditions"]
    nodes = {keys.NODE_USER_PREFIX, keys.NODES_GROUP}
    asked = {"aliyun.com/", keys.NVIDIA_GPU_SHARED, "0"}
    excludes = {keys.NODE_MODE, Mode.TIMESLICE.value, "In", "NotIn", "DoesNotExist"}
    named = {*asked, *nodes, keys.GANG, keys.SCHEDULER, *excludes}
    assert quoted(rule["expression"]) - {""} == named
    # One of them is not met whenever the rule applies: no pod slips by.
    many, named, unnamed = (one["expression"] for one in spec["validations"])
    assert many == "!variables.many"
    assert (named, unnamed) == (unnamed.replace("!=", "=="), named.replace("==", "!="))
    assert all(each.startswith("variables.many || ") for each in (named, unnamed))
    (counted,) = spec["variables"]
    whole = " ".join(rule["expression"].split())
    assert whole.startswith(" ".join(counted["expression"].split()) + " || (")
    assert spec["failurePolicy"] == "Fail"


def test_the_certificate_is_for_the_service_that_is_called_and_in_the_secret_that_is_mounted():
    assert certs_settings(POD).namespace == keys.POLICY_NAMESPACE
    called = [hook(kind) for _, kind, _ in WEBHOOK_CONFIGURATIONS]
    services = [one_["clientConfig"]["service"] for one_ in (*called, again())]
    assert [call["name"] for call in services] == [SERVICES[0], SERVICES[0], SERVICES[1]]
    assert {call["namespace"] for call in services} == {keys.POLICY_NAMESPACE}
    for component in ("webhook", "scorer"):
        volume = pod_of(component)["volumes"][0]
        assert volume["secret"]["secretName"] == SECRET
        # Not the CA's key.
        assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]
    assert f"{SERVICES[0]}.{keys.POLICY_NAMESPACE}.svc" == keys.SERVER_NAME


def test_the_scorer_starts_before_there_is_a_certificate():
    assert pod_of("scorer")["volumes"][0]["secret"]["optional"] is True


def test_the_webhook_asks_the_scorer_as_itself_and_knows_who_signs_for_it():
    settings = Settings()
    token, signed = pod_of("webhook")["volumes"][1]["projected"]["sources"]
    (item,) = signed["secret"]["items"]
    mount = container_of("webhook")["volumeMounts"][1]["mountPath"]
    account = pod_of("webhook")["serviceAccountName"]

    assert token["serviceAccountToken"]["audience"] == keys.FIT_AUDIENCE
    assert f"{mount}/{token['serviceAccountToken']['path']}" == settings.scorer_token_file
    assert f"{mount}/{item['path']}" == settings.scorer_ca_file
    # A Secret of one's own may lack it, and the webhook must start all the same.
    assert (signed["secret"]["name"], signed["secret"]["optional"]) == (SECRET, True)
    assert f"system:serviceaccount:{keys.POLICY_NAMESPACE}:{account}" == keys.WEBHOOK_USER


def test_the_webhook_and_nobody_else_reaches_what_the_scorer_answers_it():
    (rule,) = (
        rule
        for rule in one("NetworkPolicy", "linkwise-scorer")["spec"]["ingress"]
        if {"protocol": "TCP", "port": "fit"} in rule["ports"]
    )
    (way,) = (
        rule for rule in one("NetworkPolicy", "linkwise-webhook")["spec"]["egress"] if "to" in rule
    )

    (caller,), (called,) = rule["from"], way["to"]
    assert caller["podSelector"]["matchLabels"] == marks_of("webhook")
    assert called["podSelector"]["matchLabels"] == marks_of("scorer")
    assert [port["port"] for port in way["ports"]] == [scorer_settings(POD).fit_port]


def test_every_registration_is_one_that_certs_writes_to():
    registered = {
        (document["kind"], document["metadata"]["name"])
        for document in documents()
        if document["kind"].endswith("WebhookConfiguration")
    }
    assert registered == {(kind, name) for _, kind, name in WEBHOOK_CONFIGURATIONS}
    assert {one(kind, name)["apiVersion"] for _, kind, name in WEBHOOK_CONFIGURATIONS} == {API}


def test_ports_and_files_are_those_of_the_settings():
    settings = Settings()
    ports = {port["name"]: port["containerPort"] for port in container_of("webhook")["ports"]}
    assert ports == {
        "admission": settings.port,
        "dry-run": settings.dry_run_port,
        "probe": settings.probe_port,
    }
    scorer = scorer_settings(POD)
    for component, told in (("webhook", settings), ("scorer", scorer)):
        mount = container_of(component)["volumeMounts"][0]
        assert {told.certificate, told.key} == {
            f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key")
        }
    ports = {port["name"]: port["containerPort"] for port in container_of("scorer")["ports"]}
    assert ports == {"probe": scorer.probe_port, "fit": scorer.fit_port}
    (address,) = container_of("scorer")["env"]
    assert address["name"] == "LINKWISE_ADDRESS"
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    (probe,) = container_of("certs")["ports"]
    assert probe["containerPort"] == certs_settings(POD).probe_port


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_leads_to_ports_that_its_pods_have_and_to_no_others(name):
    spec = one("Service", name)["spec"]
    have = {port["name"] for port in container_of("webhook")["ports"]}
    assert {port["targetPort"] for port in spec["ports"]} <= have
    # Deployments are named as the Services of their pods.
    for other in SERVICES:
        labels = one("Deployment", other)["spec"]["template"]["metadata"]["labels"]
        assert (spec["selector"].items() <= labels.items()) == (other == name)
    called = {
        hook(kind)["clientConfig"]["service"]["port"] for _, kind, _ in WEBHOOK_CONFIGURATIONS
    }
    assert called | {again()["clientConfig"]["service"]["port"]} <= {
        port["port"] for port in spec["ports"]
    }


def test_the_standby_is_one_more_pod_of_the_same_kind():
    first, standby = (one("Deployment", name)["spec"] for name in SERVICES)
    assert standby["replicas"] == 1
    for spec, role in ((first, "first"), (standby, "standby")):
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert labels.items() > marks_of("webhook").items()
        assert set(labels.values()) - set(marks_of("webhook").values()) == {role}
    assert standby["template"]["spec"] == first["template"]["spec"]
    assert standby["strategy"] == first["strategy"]


@cache
def gangs():
    """Return the one version of the Gang."""
    (version,) = one("CustomResourceDefinition", "gangs.linkwise.dev")["spec"]["versions"]
    return version


def schema_of(*path):
    found = gangs()["schema"]["openAPIV3Schema"]
    for key in path:
        found = found["items"] if key == "items" else found["properties"][key]
    return found


def test_gangs_are_where_the_scorer_writes_them():
    spec = one("CustomResourceDefinition", "gangs.linkwise.dev")["spec"]
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
def test_the_schema_has_the_fields_that_the_scorer_writes_and_requires_those_it_always_does(
    path, written
):
    schema = schema_of(*path)
    fields = msgspec.structs.fields(written)
    assert set(schema["properties"]) == {field.encode_name for field in fields}
    required = {field.encode_name for field in fields if field.required}
    assert set(schema.get("required", ())) == required


def test_the_schema_takes_the_words_and_gpus_that_there_are():
    gpu = schema_of("spec", "plan", "members", "items", "gpus", "items")
    assert schema_of("spec", "link")["enum"] == [*Link]
    assert schema_of("status", "phase")["enum"] == [*Phase]
    assert (gpu["minimum"], gpu["maximum"]) == (0, MAX_GPUS - 1)


def test_kubectl_shows_of_a_gang_what_people_ask_for():
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


def marks_of(component):
    """Return the labels that all pods of a component have."""
    labels = one("Deployment", f"linkwise-{component}")["metadata"]["labels"]
    pods = one("Deployment", f"linkwise-{component}")["spec"]["template"]["metadata"]["labels"]
    assert labels.items() <= pods.items()
    return labels


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_is_replaced_one_by_one_and_runs_as_nobody(component):
    deployment = one("Deployment", f"linkwise-{component}")["spec"]
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
def test_what_selects_a_components_pods_selects_them(kind, component):
    spec = one(kind, f"linkwise-{component}")["spec"]
    selector = spec["selector"] if kind == "PodDisruptionBudget" else spec["podSelector"]
    assert selector["matchLabels"] == marks_of(component)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_outlives_a_node_and_stays_while_one_is_drained(component):
    pod = pod_of(component)
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["topologyKey"] == keys.HOSTNAME
    assert spread["labelSelector"]["matchLabels"] == marks_of(component)
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert one("PodDisruptionBudget", f"linkwise-{component}")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_only_ports_that_are_served_are_open_and_only_the_api_server_is_called(component):
    spec = one("NetworkPolicy", f"linkwise-{component}")["spec"]
    opened = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
    assert opened == {port["name"] for port in container_of(component)["ports"]}
    # To whoever: the API server.
    anybody = [rule for rule in spec["egress"] if "to" not in rule]
    called = {port["port"] for rule in anybody for port in rule["ports"]}
    assert (called, spec["policyTypes"]) == ({443, 6443}, ["Ingress", "Egress"])


def test_a_pod_that_is_told_to_end_has_time_to_drain():
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
        for rule in one(kind, name, namespace)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_webhook_may_read_what_it_watches_and_ask_who_calls():
    look = ("get", "list", "watch")
    assert granted("webhook") == {
        *(("*", resource, verb) for resource in ("namespaces", "nodes") for verb in look),
        ("*", "tokenreviews", "create"),
        ("*", "subjectaccessreviews", "create"),
        *((keys.POLICY_NAMESPACE, "configmaps", verb, keys.POLICY_NAME) for verb in look),
        *((keys.PROFILE_NAMESPACE, "configmaps", verb, keys.PROFILE_NAME) for verb in look),
        (keys.POLICY_NAMESPACE, "events", "create"),
        (keys.PROFILE_NAMESPACE, "events", "create"),
        (keys.POLICY_NAMESPACE, "leases", "get", keys.SCORER),
    }


def test_the_scorer_may_place_pods_write_gangs_and_read_what_tells_of_them():
    look = ("list", "watch")
    system = keys.POLICY_NAMESPACE
    assert granted("scorer") == {
        *(("*", "nodes", verb) for verb in look),
        *(("*", "pods", verb) for verb in (*look, "get", "patch")),
        ("*", "pods/eviction", "create"),
        ("*", "events", "create"),
        *(("*", "gangs", verb) for verb in (*look, "get", "create", "patch")),
        ("*", "gangs/status", "patch"),
        *(("*", kind, verb) for kind in ("jobs", "statefulsets") for verb in (*look, "get")),
        ("*", "tokenreviews", "create"),
        *(("*", resource, "get") for resource in OWNERS),
        *((system, "configmaps", verb, keys.POLICY_NAME) for verb in look),
        *((system, "leases", verb, "linkwise-scorer") for verb in (*look, "get", "patch")),
        (system, "leases", "create"),
        *((keys.TOPOLOGY_NAMESPACE, "configmaps", verb) for verb in look),
    }


def test_the_scorer_may_read_every_kind_of_owner_that_it_asks():
    assert set(_PLURALS.values()) <= {
        resource for _, resource, verb, *_ in granted("scorer") if verb == "get"
    }


def test_certs_may_write_one_secret_and_its_registrations():
    verbs = ("get", "list", "watch", "patch")
    assert granted("certs") == {
        *((keys.POLICY_NAMESPACE, "secrets", verb, SECRET) for verb in verbs),
        (keys.POLICY_NAMESPACE, "secrets", "create"),
        *(
            ("*", resource, verb, name)
            for resource, _, name in WEBHOOK_CONFIGURATIONS
            for verb in verbs
        ),
    }
