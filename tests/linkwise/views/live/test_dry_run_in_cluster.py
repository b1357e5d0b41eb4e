import json

import pytest
from support.servers.person_api import TOKEN, served

from linkwise.admission.dry_run.dryrun import PATH, dry_run, encode_dry_run, read_manifest
from linkwise.cluster.dry_run_proxy import NAMESPACE_AUDIENCE, PROXY, TOKEN_HEADER
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.policy.snapshot import PolicySnapshot

TOKENS = "/api/v1/namespaces/team/serviceaccounts/default/token"
ASKED = f"{PROXY}{PATH}"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    resources:
      limits: {aliyun.com/gpu: 2}
"""


def status(code, message):
    return lambda *_: (code, {"kind": "Status", "message": message})


def judged(query, body):
    manifest = read_manifest(body, query["namespace"])
    namespaces = dict.fromkeys(manifest.namespaces)
    policy, capacity = PolicySnapshot(), Capacity()
    report = dry_run(manifest, namespaces=namespaces, policy=policy, capacity=capacity)
    return 200, encode_dry_run(report, "no scorer leads")


@pytest.fixture
def cluster(tmp_path, monkeypatch, write):
    """An API server whose user may make tokens in namespace `team`."""
    write("pod.yaml", POD)
    with served(tmp_path, monkeypatch) as made:
        made.posts[TOKENS] = lambda *_: (201, {"status": {"token": "of-team"}})
        made.posts[ASKED] = judged
        yield made


def check(linkwise, *arguments):
    return linkwise("check", "pod.yaml", "--server", "cluster", *arguments)


def test_the_token_of_the_namespace_is_sent_beside_the_credentials(cluster, linkwise):
    asked = []
    cluster.posts[TOKENS] = lambda _, body: (
        asked.append(json.loads(body)["spec"]) or (201, {"status": {"token": "of-team"}})
    )

    ran = check(linkwise)

    assert ran.code == 0
    assert "allowed Pod team/train pod.yaml:1" in ran.out
    assert asked == [{"audiences": [NAMESPACE_AUDIENCE], "expirationSeconds": 600}]
    made, sent = cluster.server.requests
    assert [path for path, _, _ in (made, sent)] == [TOKENS, ASKED]
    assert made[2][TOKEN_HEADER] is None
    assert sent[2]["Authorization"] == f"Bearer {TOKEN}"
    assert sent[2][TOKEN_HEADER] == "Bearer of-team"


def test_the_namespace_is_that_of_the_option(cluster, linkwise):
    cluster.posts[TOKENS.replace("team", "mine")] = cluster.posts.pop(TOKENS)

    assert "allowed Pod mine/train" in check(linkwise, "-n", "mine").out


@pytest.mark.parametrize(
    ("path", "answer", "complaint"),
    [
        (TOKENS, status(403, "serviceaccounts: no"),
         "serviceaccounts: no. Ask for the role edit in namespace team, or name another."),
        (TOKENS, status(404, "no"), "there is no namespace team. Name another one with -n."),
        (TOKENS, status(401, "no"), "it rejects your credentials (status 401). Log in again"),
        (ASKED, status(403, "services: no"), "services: no. Ask for a role that may, or name"),
        (ASKED, status(401, "no"), "the dry-run API rejects a token of your namespace."),
        (ASKED, status(503, "no endpoints"), "no endpoints. Try again in a moment."),
        (ASKED, status(404, "no"), "it answers with status 404, not as this version's dry-run API "
         "does. See whether linkwise-webhook is installed"),
    ],
    ids=["no role", "no namespace", "credentials", "no way", "version", "no replica", "absent"],
)  # fmt: skip
def test_a_refusal_is_one_line_with_advice(cluster, linkwise, path, answer, complaint):
    cluster.posts[path] = answer

    ran = check(linkwise, "-o", "json")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {cluster.url}: {complaint}")
    assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("cluster")
def test_a_name_that_no_namespace_can_have_is_refused(linkwise):
    ran = check(linkwise, "-n", "a/b")

    assert (ran.code, ran.err) == (
        2,
        "linkwise: --namespace a/b: no namespace can have this name.\n",
    )


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--server", "cluster", "--token-file", "t"), "--server cluster uses the kubeconfig"),
        (("--server", "https://x", "--context", "work"), "--kubeconfig and --context go with"),
        (("--kubeconfig", "config"), "--kubeconfig and --context go with --server cluster."),
    ],
    ids=["token", "context", "no server"],
)
def test_options_of_another_way_are_refused(linkwise, arguments, complaint):
    ran = linkwise("check", "pod.yaml", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
