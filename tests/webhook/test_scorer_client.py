import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from support.certificates import a_ca, a_leaf
from support.servers.fake_cluster import FakeCluster
from support.waiting import PATIENCE, until_true

from linkwise.cluster import keys
from linkwise.cluster.objects.metadata import Metadata
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.scorer_lease import LEASE
from linkwise.cluster.whatif_api import (
    MAX_PODS,
    PATH,
    FitRequest,
    FitResponse,
    FitResult,
    FitTemplate,
    PodFit,
)
from linkwise.runtime.http import types
from linkwise.runtime.http.server import serve
from linkwise.runtime.http.types import Route, error_response
from linkwise.runtime.kube.client import Kube
from webhook.__main__ import _scorer_client
from webhook.scorer_client import NoPlacementError, ScorerClient
from webhook.settings import Settings

QUESTION = FitRequest([FitTemplate(Pod(metadata=Metadata(name="train")), ["train"])])
FIT = FitResult(True, None, [PodFit("train", "gpu-0", [3])], [], None, None, None, [], None)


@pytest_asyncio.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def files(tmp_path):
    """A folder as it is mounted for the webhook, and for the scorer."""
    ca = a_ca()
    a_leaf(ca).write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ca.cert_pem)
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


@asynccontextmanager
async def a_scorer(cluster, files, answer):
    """A leader whose answers are given, and that is where the Lease says."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files / "tls.crt", files / "tls.key")
    routes = [Route("POST", PATH, answer, frozenset({types.JSON}))]
    async with serve(routes, host="127.0.0.1", port=0, context=context) as server:
        lead(cluster, f"127.0.0.1:{server.port}")
        yield server


def lead(cluster, address=None, holder="scorer-0_1"):
    annotations = {keys.SCORER_ADDRESS: address} if address else {}
    metadata = {"name": keys.SCORER, "annotations": annotations}
    cluster.put(LEASE, {"metadata": metadata, "spec": {"holderIdentity": holder}})


def settings_of(files):
    return Settings(scorer_token_file=str(files / "token"), scorer_ca_file=str(files / "ca.crt"))


async def ask(cluster, files, question=QUESTION, patience=PATIENCE):
    settings = settings_of(files)
    async with Kube(cluster.url) as kube:
        client = ScorerClient(kube, lambda address: _scorer_client(settings, address), patience)
        return await client.fits(question)


async def reason_of(cluster, files, question=QUESTION, patience=PATIENCE):
    with pytest.raises(NoPlacementError) as caught:
        await ask(cluster, files, question, patience)
    return str(caught.value)


async def test_leader_is_queried_with_our_token(cluster, files):
    queries = []

    def answer(call):
        queries.append(
            (call.headers["Authorization"], msgspec.json.decode(call.body, type=FitRequest))
        )
        return types.HttpResponse(msgspec.json.encode(FitResponse([FIT])))

    async with a_scorer(cluster, files, answer):
        assert await ask(cluster, files) == [FIT]

    assert queries == [("Bearer secret", QUESTION)]


async def test_concurrent_queries_are_serialized(cluster, files):
    beside, two = 0, asyncio.Event()

    async def answer(_call):
        nonlocal beside
        beside += 1
        if beside > 1:
            two.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(two.wait(), 0.1)
        beside -= 1
        return types.HttpResponse(msgspec.json.encode(FitResponse([FIT])))

    async with a_scorer(cluster, files, answer), Kube(cluster.url) as kube:
        settings = settings_of(files)
        scorer = ScorerClient(kube, lambda address: _scorer_client(settings, address), PATIENCE)
        assert await asyncio.gather(*(scorer.fits(QUESTION) for _ in range(3))) == [[FIT]] * 3

    assert not two.is_set()


async def test_replaced_token_and_ca_are_used(cluster, files):
    tokens = []

    def answer(call):
        tokens.append(call.headers["Authorization"])
        return types.HttpResponse(msgspec.json.encode(FitResponse([FIT])))

    async with a_scorer(cluster, files, answer):
        await ask(cluster, files)
        (files / "token").write_text("another")
        await ask(cluster, files)
        (files / "ca.crt").write_bytes(a_ca("other").cert_pem)
        assert await reason_of(cluster, files) == "the scorer cannot be asked"

    assert tokens == ["Bearer secret", "Bearer another"]


async def test_missing_leader_is_the_reason(cluster, files):
    assert await reason_of(cluster, files) == "no scorer has led so far"
    lead(cluster, "127.0.0.1:1", holder="")
    assert await reason_of(cluster, files) == "no scorer leads now"
    lead(cluster)
    assert await reason_of(cluster, files) == "the scorer that leads does not say where it is"


async def test_unreachable_or_silent_leader_times_out(cluster, files):
    lead(cluster, "127.0.0.1:1")
    assert await reason_of(cluster, files) == "the scorer cannot be asked"

    asked_why = asyncio.Event()

    async def answer(_call):
        await asked_why.wait()
        return types.HttpResponse()

    async with a_scorer(cluster, files, answer) as server:
        address = f"127.0.0.1:{server.port}"
        with capture_logs() as logs:

            async def is_silent():
                # A machine that stands still may break the connection instead.
                reason = await reason_of(cluster, files, patience=0.5)
                logged = logs[-1]["address"], logs[-1]["err"]
                return (reason, *logged) == (
                    "the scorer did not answer within 0.5 s",
                    address,
                    "no answer within 0.5 s",
                )

            await until_true(is_silent)
        asked_why.set()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(
            error_response(503, "another replica leads"),
            "the scorer answers: another replica leads",
            id="refused",
        ),
        pytest.param(
            error_response(401, "bring a token"), "the scorer cannot be asked", id="not known"
        ),
        pytest.param(
            error_response(403, "ask others"), "the scorer cannot be asked", id="not allowed"
        ),
        pytest.param(types.HttpResponse(b"[]"), "the scorer cannot be asked", id="unreadable"),
        pytest.param(
            types.HttpResponse(b'{"fits":[]}'), "the scorer is of another version", id="too few"
        ),
    ],
)
async def test_invalid_answer_is_the_reason(cluster, files, answer, reason):
    async with a_scorer(cluster, files, lambda _call: answer) as server:
        address = f"127.0.0.1:{server.port}"
        with capture_logs() as logs:
            assert await reason_of(cluster, files) == reason

    if "another version" not in reason:
        (line,) = logs
        assert (line["event"], line["address"]) == ("Could not query scorer", address)


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
async def test_missing_token_file_is_not_an_error_of_the_user(cluster, files, missing):
    (files / missing).unlink()
    lead(cluster, "127.0.0.1:1")

    assert await reason_of(cluster, files) == "the scorer cannot be asked"


async def test_too_many_pods_are_refused_without_a_query(cluster, files):
    many = FitRequest([FitTemplate(Pod(), ["a"] * (MAX_PODS + 1))])

    assert (
        await reason_of(cluster, files, many)
        == f"more than {MAX_PODS} pods, the most that one request can have"
    )


async def test_query_is_sent_only_to_our_servers(cluster, files):
    called = []
    ca = a_ca()
    # Another holder of a certificate of the same authority is another server.
    a_leaf(ca, names=("elsewhere.example",)).write(files)
    (files / "ca.crt").write_bytes(ca.cert_pem)

    async with a_scorer(cluster, files, called.append):
        assert await reason_of(cluster, files) == "the scorer cannot be asked"

    assert called == []
