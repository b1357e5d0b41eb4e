from pathlib import Path

import yaml

from certs.settings import DASHBOARD_SERVER
from dashboard.settings import Settings
from linkwise.cluster.keys import DASHBOARD, POLICY_NAMESPACE

MANIFESTS = Path(__file__).parents[2] / "manifests"


def objects(name):
    """Return the objects of a file, by kind and name."""
    documents = yaml.safe_load_all((MANIFESTS / "dashboard" / name).read_text())
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def test_the_page_is_served_on_the_ports_of_its_settings():
    page = objects("dashboard.yaml")
    (container,) = page["Deployment", DASHBOARD]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert ports == {"page": Settings().port, "probe": Settings().probe_port}
    assert [port["targetPort"] for port in page["Service", DASHBOARD]["spec"]["ports"]] == ["page"]
    rules = page["NetworkPolicy", DASHBOARD]["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == ["page", "probe"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_certificate_is_the_one_that_certs_issues():
    pod = objects("dashboard.yaml")["Deployment", DASHBOARD]["spec"]["template"]["spec"]
    _, secret, service = DASHBOARD_SERVER

    assert [volume["secret"]["secretName"] for volume in pod["volumes"]] == [secret]
    (certificate,) = objects("certificate.yaml").values()
    assert certificate["spec"]["secretName"] == secret
    assert certificate["spec"]["dnsNames"] == [f"{service}.{POLICY_NAMESPACE}.svc"]
    assert f"{service}.{POLICY_NAMESPACE}.svc" in Settings().names
    overlay = (MANIFESTS / "dashboard/kustomization.yaml").read_text()
    assert f"value: {secret}\n" in overlay
    assert 'value: {name: LINKWISE_DASHBOARD, value: "on"}' in overlay


def test_the_page_reads_and_reviews_callers_and_writes_nothing():
    access = objects("access.yaml")
    rules = [
        (rule["resources"], rule["verbs"])
        for (kind, _), one in access.items()
        if kind == "ClusterRole"
        for rule in one["rules"]
    ]

    assert rules == [
        (["tokenreviews"], ["create"]),
        (["subjectaccessreviews"], ["create"]),
        (["nodes"], ["list"]),
    ]
    documents = yaml.safe_load_all((MANIFESTS / "dashboard/access.yaml").read_text())
    bound = [one["roleRef"]["name"] for one in documents if one["kind"].endswith("RoleBinding")]
    assert bound == [DASHBOARD, "linkwise-view", "linkwise-view", "linkwise-view"]
