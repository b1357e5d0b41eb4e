import http.server
import json
import socket
import ssl
import threading
from contextlib import closing, contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from support.builders import a_node, a_snapshot
from support.certificates import a_ca, a_leaf

from linkwise.admission.dry_run.dryrun import dry_run as judged
from linkwise.admission.dry_run.dryrun import encode_dry_run as answered
from linkwise.admission.dry_run.dryrun import read_manifest
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.manifest.value import InputError
from linkwise.planning.whatif.fit import would_fit
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    resources:
      limits: {LIMITS}
"""
BAD = POD.replace("LIMITS", "aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: 22")
WHOLE = POD.replace("LIMITS", "aliyun.com/gpu: 2").replace("train", "whole")
PROFILES = '[{"name": "all", "effect": {"labels": {"example.com/tier": "gold"}}}]'
NODE = a_node("gpu-0")
CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: gpu-0, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}
"""
TOKEN = "header.body.signature"  # noqa: S105


class Served(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        status, body = self.server.answer(self)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def judge(request, fits=None):
    """Answer as a webhook does whose only profile selects every pod, on a cluster of one node."""
    if request.headers["Authorization"] != f"Bearer {TOKEN}":
        return 401, b"bring a token made for the audience linkwise\n"
    (namespace,) = parse_qs(urlsplit(request.path).query)["namespace"]
    try:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        manifest = read_manifest(body, namespace)
    except InputError as error:
        return 400, f"{error}\n".encode()
    policy = PolicySnapshot(profiles=parse_profiles(PROFILES))
    namespaces = {name: {} for name in manifest.namespaces}
    capacity = capacity_of([NODE])
    report = judged(manifest, namespaces=namespaces, policy=policy, capacity=capacity)
    return 200, answered(report, fits or would_fit(a_snapshot(NODE), report.fit_request, {}))


@contextmanager
def serving(folder, answer):
    """Serve for 127.0.0.1 with a certificate of the CA in `ca.crt`."""
    ca = a_ca()
    (folder / "ca.crt").write_bytes(ca.cert_pem)
    server = http.server.HTTPServer(("127.0.0.1", 0), Served)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*a_leaf(ca).write(folder))
    # Handshakes in the thread: one that fails raises nowhere else.
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def ask(linkwise, write, tmp_path):
    """Checks a.yaml and b.yaml on a server."""
    write("token", f"{TOKEN}\n")
    write("a.yaml", BAD)
    write("b.yaml", WHOLE)
    write("profile.json", PROFILES)

    def check(*arguments, answer=judge, files=("a.yaml", "b.yaml"), stdin=""):
        with serving(tmp_path, answer) as url:
            trusting = ("--server", url, "--certificate-authority", "ca.crt")
            token = ("--token-file", "token")
            ran = linkwise("check", *files, *trusting, *token, *arguments, stdin=stdin)
        return ran._replace(err=ran.err.replace(url, "URL"))

    return check


def answering(status, body=b"no\n"):
    def answer(request):
        request.rfile.read(int(request.headers["Content-Length"]))
        return status, body

    return answer


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize("files", [("a.yaml", "b.yaml"), ("b.yaml",)], ids=["denied", "allowed"])
def test_report_of_a_server_equals_the_local_report(ask, linkwise, write, files, output):
    write("cluster.yaml", CLUSTER)
    remote = ask("-o", output, files=files)

    here = ("--profile", "profile.json", "--cluster", "cluster.yaml")
    local = linkwise("check", *files, *here, "-o", output)
    assert (remote.code, remote.err) == (local.code, local.err)
    if output == "json":
        shown = [
            {key: entry[key] for key in entry if key != "diff"}
            for entry in json.loads(remote.out)["items"]
        ]
        assert shown == json.loads(local.out)["items"]
        assert shown[0]["profiles"][0]["matched"]
        assert shown[-1]["placement"]["pods"] == [
            {"name": "whole", "node": "gpu-0", "gpus": [0, 3], "count": None}
        ]
    if output == "table":
        assert remote.out == local.out
        assert f"{files[0]}:1" in remote.out
        assert "  fits now on gpu-0\n    40.0 GB/s modelled all-reduce bandwidth" in remote.out


def test_unknown_placement_of_a_server_is_one_note(ask):
    def judged_alone(request):
        return judge(request, fits="no scorer leads now")

    ran = ask(answer=judged_alone)

    assert (ran.code, ran.err) == (1, "linkwise: placement is not known: no scorer leads now.\n")
    assert "fits now" not in ran.out
    # Whether a scorer leads at the moment says nothing of the manifest.
    assert ask("--strict", answer=judged_alone, files=("b.yaml",)).code == 0


def test_response_without_notes_is_accepted(ask):
    def of_before(request):
        status, body = judge(request)
        answer = json.loads(body)
        del answer["notes"]
        return status, json.dumps(answer).encode()

    assert ask(answer=of_before, files=("b.yaml",)).code == 0


def test_a_finding_has_the_line_of_the_file(ask):
    (entry, _) = json.loads(ask("-o", "json").out)["items"]

    assert entry["findings"][0]["source"] == "a.yaml:8"


def test_standard_input_uses_the_given_namespace(ask):
    ran = ask("-n", "team", files=("-",), stdin=BAD)

    assert ran.code == 1
    assert "denied Pod team/train <stdin>:1\n" in ran.out


def test_unjudged_objects_are_named_with_their_file(ask, write):
    write("ray.yaml", "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: r}\n")

    warning = "linkwise: ray.yaml:1: Trainer (example.org/v1) was not looked at.\n"
    assert ask(files=("b.yaml", "ray.yaml")).err == warning
    alone = ask(files=("ray.yaml",))
    assert (alone.code, alone.out) == (3, "0 pod templates: nothing to judge; 1 not judged\n")
    assert alone.err == (
        f"{warning}linkwise: no pods are described in these files; name Pods or workloads.\n"
    )


def test_file_refused_by_server_is_an_error_with_line(ask, write):
    write("a.yaml", "apiVersion: v1\nkind: [\n")

    code, out, err = ask("-o", "json")

    assert (code, out) == (2, "")
    assert err.startswith("linkwise: a.yaml:3: ")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (answering(400), "URL: it cannot read a.yaml: no. Correct the file."),
        (
            answering(401),
            "URL: it rejects the token in token. Make a new one: kubectl create token "
            "<serviceaccount> --audience linkwise.",
        ),
        (
            answering(403, b"you may not create pods in namespace x\n"),
            "URL: you may not create pods in namespace x. Ask for a role that may, or name "
            "another namespace.",
        ),
        (
            answering(413, b"the body is larger than 9 bytes\n"),
            "URL: a.yaml is too much for one question: the body is larger than 9 bytes. Split it.",
        ),
        (answering(503, b"busy\n"), "URL: busy. Try again in a moment."),
        (answering(404), "URL: it answers with status 404, not as this version's dry-run API"),
        (answering(200, b"<html>"), "URL: it answers with something else, not as this version's"),
        (answering(200, b'{"x":' + b"[" * 9999), "URL: it answers with something else, not as"),
        (answering(200, b"\xff"), "URL: it answers with something else, not as this version's"),
        (answering(200, b'{"pods": [{}], "warnings": []}'), "URL: it answers with something else"),
    ],
    ids=[
        "400", "401", "403", "413", "503", "404", "no JSON", "nested", "no text", "another shape",
    ],
)  # fmt: skip
def test_invalid_response_is_one_line_with_advice(ask, answer, complaint):
    code, out, err = ask("-o", "json", answer=answer)

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--server", "http://x:1"], "--server http://x:1: write an address such as https://"),
        (["--server", "https://x:y"], "--server https://x:y: write an address such as"),
        (["--server", "https://x/path"], "--server https://x/path: write an address such as"),
        (["--server", "https://x"], "--server needs a token: make one with `kubectl cre"),
        (["--server", "https://x", "--token-file", "none"], "none: no such file"),
        (["--server", "https://x", "--token-file", "empty"], "empty: there is no token in it."),
        (
            ["--server", "https://x", "--token-file", "t", "--certificate-authority", "t"],
            "t: there is no certificate in it. Write one: kubectl get mutatingwebhookconfig",
        ),
        (["--server", "https://x", "--policy", "t"], "--policy cannot be given with --server"),
        (["--server", "https://x", "-n", "A"], "--namespace A: no namespace can have this name."),
        (
            ["--server", "https://127.0.0.1:PORT", "--token-file", "t"],
            "https://127.0.0.1:PORT: connection refused. See whether it can be reached from",
        ),
        (
            ["--server", "https://no.invalid", "--token-file", "t"],
            "https://no.invalid: there is no host no.invalid. Name one",
        ),
    ],
    ids=[
        "no TLS", "no port", "path", "no token", "no such file", "empty token", "no certificate",
        "a policy too", "namespace", "refused", "no host",
    ],
)  # fmt: skip
def test_unreachable_server_is_one_line(linkwise, write, arguments, complaint):
    write("a.yaml", WHOLE)
    write("empty", "\n")
    write("t", TOKEN)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
    words = [word.replace("PORT", port) for word in arguments]

    code, out, err = linkwise("check", "a.yaml", *words, "-o", "json")

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint.replace('PORT', port)}")
    assert err.count("\n") == 1


def test_certificate_must_match_ca_and_server_name(ask, write):
    write("other.crt", a_ca("other").cert_pem.decode())

    unknown = ask("--certificate-authority", "other.crt")
    assert unknown.code == 2
    assert unknown.err.startswith("linkwise: URL: its certificate is not trusted (")
    assert "--certificate-authority: kubectl get" in unknown.err
    wrong = ask("--tls-server-name", "linkwise.example")
    assert (wrong.code, wrong.err) == (
        2,
        "linkwise: URL: its certificate is not for linkwise.example. Name its server, such as "
        "--tls-server-name linkwise-webhook.linkwise-system.svc.\n",
    )
    assert ask("--tls-server-name", "localhost").code == 1


def test_port_without_tls_or_http_is_an_error(linkwise, write):
    write("a.yaml", WHOLE)
    write("t", TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"220 mail.example\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        code, _, err = linkwise("check", "a.yaml", "--server", url, "--token-file", "t")
        thread.join()

    assert code == 2
    assert err.startswith(f"linkwise: {url}: this is no TLS port (")


def test_the_rest_is_judged_after_a_file_that_the_server_cannot_read(ask, write):
    write("values.yaml", "replicas: 2\n")

    code, out, err = ask(files=("values.yaml", "missing.yaml", "b.yaml"))

    assert code == 2
    assert out.endswith("1 pod template: 1 allowed; 2 not read\n")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["values.yaml:1", "missing.yaml"]
