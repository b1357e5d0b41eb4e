import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from support.waiting import PATIENCE, until

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.cluster.whatif_api import PATH as FIT_PATH
from linkwise.cluster.whatif_api import FitResponse, FitResult
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.types import JSON, HttpRequest, HttpResponse, Route, error_response
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.worker import worker
from webhook.informers import Informers
from webhook.owner_review import OwnerReviews
from webhook.scorer_client import ScorerClient

CONTAINER = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: "1"}}}
LABELS = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "4"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}}
STUCK = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "serve", "namespace": "default"},
    "spec": {"replicas": 4, "template": TEMPLATE},
}
WORKING = {**STUCK, "spec": {**STUCK["spec"], "strategy": {"type": "Recreate"}}}
WARNED = "LW401 Deployment serve can never be rolled out"


def a_review(owner, **request):
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    request = {"uid": "42", "kind": kind, "operation": "CREATE", "object": owner, **request}
    request = {"namespace": "default", **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_an_owner_is_allowed_with_warnings(webhook):
    response = await webhook.review(a_review(STUCK), "/warn")
    (warning,) = response.pop("warnings")
    assert warning.startswith(WARNED)
    assert response == {"uid": "42", "allowed": True}


@pytest.mark.parametrize(
    ("owner", "request_"),
    [
        pytest.param(WORKING, {}, id="no finding"),
        pytest.param(WORKING, {"dryRun": True}, id="dry run for callers without a certificate"),
        pytest.param(STUCK, {"operation": "DELETE"}, id="deleted"),
        pytest.param(STUCK, {"subResource": "scale"}, id="scaled"),
        pytest.param({**STUCK, "junk": "x" * (1 << 20)}, {}, id="very large"),
        pytest.param({"aliyun.com/gpu": [1]}, {}, id="no object"),
        pytest.param(None, {}, id="null"),
    ],
)
async def test_other_owners_are_allowed_without_a_word(webhook, owner, request_):
    response = await webhook.review(a_review(owner, **request_), "/warn")
    assert response == {"uid": "42", "allowed": True}


async def test_what_is_no_review_is_refused(webhook):
    status, _, _ = await webhook.post("/warn", b"{}")
    assert status == 400


def a_fit(reason=None):
    return FitResult(reason is None, None, [], [], None, None, None, [], reason)


class Scorer:
    """A leader whose answer is given."""

    def __init__(self, *fits):
        self.asked, self.go = 0, asyncio.Event()
        self._fits = fits

    async def answer(self, _request):
        self.asked += 1
        await self.go.wait()
        if not self._fits:
            return error_response(503, "busy")
        return HttpResponse(msgspec.json.encode(FitResponse(list(self._fits))))


@asynccontextmanager
async def reviews_of(cluster, scorer):
    """Reviews of callers that have proved to be API servers."""
    routes = [Route("POST", FIT_PATH, scorer.answer, frozenset({JSON}))]
    async with (
        serve(routes, host="127.0.0.1", port=0) as server,
        Kube(cluster.url) as kube,
        worker("linkwise.admission.dry_run.owner_warnings", seconds=PATIENCE) as child,
    ):
        annotations = {keys.SCORER_ADDRESS: f"127.0.0.1:{server.port}"}
        lease = {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "a_1"}}

        async def found(_request):
            return web.json_response(lease)

        cluster.collections[LEASE].faults["list"].extend([found] * 1000)
        client = ScorerClient(kube, lambda address: Kube(f"http://{address}"), PATIENCE)
        informers = Informers(kube, instance="replica-0")
        running = asyncio.create_task(informers.run())
        await until(lambda: not informers.not_ready_reason())
        yield OwnerReviews(informers, child, client)
        running.cancel()


async def warnings_of(owners, review):
    response = await owners.warn(HttpRequest("/warn", "", {}, json.dumps(review).encode()))
    return json.loads(response.body)["response"].get("warnings", [])


@pytest.mark.parametrize(
    ("fits", "warnings"),
    [
        pytest.param([a_fit()], ["Linkwise: all its pods fit now"], id="fits"),
        pytest.param([a_fit("no")], ["Linkwise: it does not fit now: no"], id="waits"),
        pytest.param([], [], id="no placement"),
    ],
)
async def test_a_dry_run_says_whether_it_fits_now(cluster, fits, warnings):
    scorer = Scorer(*fits)
    scorer.go.set()
    async with reviews_of(cluster, scorer) as owners:
        assert await warnings_of(owners, a_review(WORKING)) == []
        assert scorer.asked == 0
        assert await warnings_of(owners, a_review(WORKING, dryRun=True)) == warnings
        assert scorer.asked == 1


async def test_dry_runs_of_one_namespace_ask_the_scorer_one_at_a_time(cluster):
    scorer, review = Scorer(a_fit()), a_review(WORKING, dryRun=True)
    async with reviews_of(cluster, scorer) as owners:
        first = asyncio.create_task(warnings_of(owners, review))
        await until(lambda: scorer.asked)
        assert await warnings_of(owners, review) == []
        scorer.go.set()
        assert await first == ["Linkwise: all its pods fit now"]
