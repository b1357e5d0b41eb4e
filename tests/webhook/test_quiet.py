"""Admission makes no calls, and logs no content of pods."""

from support.builders import a_container, a_pod

from linkwise.cluster import keys

SECRET = "correct horse battery staple"  # noqa: S105


def a_review(pod):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"kind": kind, "operation": "CREATE", "namespace": "default"}
    request |= {"uid": "42", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_pod_is_admitted_without_calls_while_the_api_server_is_unavailable(cluster, webhook):
    await cluster.watched()
    before = list(cluster.calls)
    await cluster.stop()

    for pod in (a_pod({keys.GPU_WHOLE: 1}), a_pod({keys.GPU_CORE: 20})):
        assert "uid" in await webhook.review(a_review(pod))

    assert cluster.calls == before
    await cluster.start()


async def test_log_has_no_content_of_pods(webhook):
    container = a_container({keys.GPU_WHOLE: 1}, env=[{"name": "PASSWORD", "value": SECRET}])
    bad = a_container({keys.GPU_CORE: 20}, command=["run", SECRET])
    for each in (container, bad):
        await webhook.review(a_review(a_pod(containers=[each], annotations={"note": SECRET})))
    broken = a_pod(containers=[{**container, "resources": SECRET}])
    answer = await webhook.review(a_review(broken))

    assert (answer["allowed"], len(webhook.answered())) == (False, 3)
    assert SECRET not in str(webhook.lines)
