"""Hostile texts for `/validate` and dry runs: all are answered, and pods are admitted meanwhile."""

import asyncio
import json
from time import process_time

import pytest
from support.builders import a_pod

from linkwise.cluster import keys
from linkwise.policy.problem import MAX_BYTES

MAX_ANSWER = 64 << 10
"""No answer to a ConfigMap is longer [bytes]."""
LAG = 3.0
"""Processor time of an answer: an API server waits for so long. Each of these texts held the loop,
or every thread, for many seconds before [s]."""
POLICY = {"name": keys.POLICY_NAME, "namespace": keys.POLICY_NAMESPACE}
PROFILES = {"name": keys.PROFILE_NAME, "namespace": keys.PROFILE_NAMESPACE}

SELECTORS = json.dumps([{"name": "a", "effect": {"labels": {"k": "v"}}}] * 60_000)
ALIASES = "a: &a {text}\nb: [{aliases}]\n".format(
    text="x" * 1000, aliases=",".join(["*a"] * 30_000)
)
MANY_KEYS = "\n".join(f"k{i}: 1" for i in range(26_000))
TEXTS = {
    "aliases": (POLICY, keys.POLICY_KEY, ALIASES),
    "a number and quotes": (PROFILES, keys.PROFILE_KEY, "[" + "9" * 5000 + '"' + '\\"' * 80_000),
    "3.4 MiB of YAML": (POLICY, keys.POLICY_KEY, "a: [" + "1," * 1_700_000 + "]"),
    "60,000 selectors": (PROFILES, keys.PROFILE_KEY, SELECTORS),
    "many unknown keys": (POLICY, keys.POLICY_KEY, MANY_KEYS),
    "nested": (POLICY, keys.POLICY_KEY, "[" * 200_000),
}


def a_review(pod, **request):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"kind": kind, "operation": "CREATE", "namespace": "default", **request}
    request = {"uid": "42", "object": pod, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def of_config_map(source, key, text):
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    return a_review({"data": {key: text, "other": "x"}}, kind=kind, **source)


MANIFESTS = {
    "aliases": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  {ALIASES}".replace(
        "\nb:", "\n  b:"
    ),
    "small documents": '{"kind":"a"}\n' * 20_000,
    "wide": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {a: [" + "1," * 110_000 + "]}",
}


@pytest.mark.parametrize(("source", "key", "text"), TEXTS.values(), ids=TEXTS.keys())
async def test_hostile_config_map_is_denied_with_a_short_response(webhook, source, key, text):
    status, _, body = await webhook.post("/validate", of_config_map(source, key, text))

    response = json.loads(body)["response"]
    assert (status, response["allowed"]) == (200, False)
    assert len(body) < MAX_ANSWER
    if len(text) > MAX_BYTES:
        assert f"at most {MAX_BYTES}" in response["status"]["message"]


async def test_pods_are_admitted_while_hostile_texts_are_checked(cluster, webhook):
    token = cluster.user("eve", "default")
    lags = []

    async def attack():
        for (source, key, text), manifest in zip(
            TEXTS.values(), [*MANIFESTS.values()] * 2, strict=True
        ):
            await asyncio.gather(
                *(webhook.post("/validate", of_config_map(source, key, text)) for _ in range(3)),
                *(webhook.dry_run(manifest, token) for _ in range(3)),
            )

    attackers = asyncio.create_task(attack())
    while not attackers.done():
        began = process_time()
        answer = await webhook.review(a_review(a_pod({keys.GPU_WHOLE: 1})))
        lags.append(process_time() - began)
        assert answer["allowed"]
        await asyncio.sleep(0.01)

    await attackers
    assert max(lags) < LAG


async def test_concurrent_config_map_reviews_are_retried(webhook):
    review = of_config_map(*TEXTS["many unknown keys"])

    answers = await asyncio.gather(*(webhook.post("/validate", review) for _ in range(5)))

    statuses = sorted(status for status, _, _ in answers)
    assert set(statuses) == {200, 503}
    assert all(headers["Retry-After"] == "1" for status, headers, _ in answers if status == 503)
