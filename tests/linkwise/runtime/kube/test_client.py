import asyncio
import json

import msgspec
import pytest
from aiohttp import web
from support.certificates import a_ca, a_leaf
from support.servers.fake_api import after, status, text
from support.waiting import PATIENCE

from linkwise.runtime.http.server import serve
from linkwise.runtime.http.tls import ServingCertificate
from linkwise.runtime.http.types import HttpResponse, Route
from linkwise.runtime.kube.client import ApiError, Kube, Unreachable, Unreadable
from linkwise.runtime.process.settings import ProcessSettings

TOKEN = "of a test"  # noqa: S105
PATH = "/api/v1/namespaces/ns/configmaps"


class Meta(msgspec.Struct, frozen=True):
    name: str


class Thing(msgspec.Struct, frozen=True):
    metadata: Meta


STORED = Thing(Meta("stored"))


async def test_object_is_decoded_as_the_given_type(api):
    api.faults["list"].append(text(200, '{"metadata":{"name":"a","uid":"1"},"data":{}}'))

    async with Kube(api.url) as kube:
        assert await kube.get(f"{PATH}/a", Thing, params={"pretty": "no"}) == Thing(Meta("a"))

    assert api.queries == [{"pretty": "no"}]


async def test_find_returns_none_only_for_an_object_that_does_not_exist(api):
    api.faults["list"] += [text(404, "{}"), text(403, "{}")]

    async with Kube(api.url) as kube:
        assert await kube.find(f"{PATH}/a", Thing) is None
        with pytest.raises(ApiError):
            await kube.find(f"{PATH}/a", Thing)


async def test_time_of_the_server_is_that_of_its_last_response(api):
    async with Kube(api.url) as kube:
        assert kube.server_time is None
        for date, expected in (
            ("Fri, 15 Jan 2027 08:00:00 GMT", 1_800_000_000),
            ("yesterday", None),
            ("Fri, 15 Jan 99999999999 08:00:00 GMT", None),
            ("Fri, 15 Jan 2027 08:00:01 GMT", 1_800_000_001),
        ):
            api.faults["list"].append(dated(date))
            with pytest.raises(ApiError):
                await kube.get(PATH, Thing)
            assert kube.server_time == expected


def dated(date):
    async def answer(_request):
        return web.Response(status=503, headers={"Date": date})

    return answer


async def test_an_object_is_created_and_updated(api):
    async with Kube(api.url) as kube:
        assert await kube.create(PATH, {"kind": "X"}, Thing, params={"dryRun": "All"}) == STORED
        assert await kube.update(f"{PATH}/a", STORED, Thing) == STORED

    (post, put) = api.calls
    assert post == ("POST", f"{PATH}?dryRun=All", "application/json", b'{"kind":"X"}')
    assert put == ("PUT", f"{PATH}/a", "application/json", b'{"metadata":{"name":"stored"}}')


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("json", "application/json-patch+json"),
        ("merge", "application/merge-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
async def test_each_kind_of_patch_has_its_content_type(api, kind, content_type):
    async with Kube(api.url) as kube:
        assert await kube.patch(f"{PATH}/a", [1], Thing, kind=kind) == STORED

    assert api.calls == [("PATCH", f"{PATH}/a", content_type, b"[1]")]


async def test_object_is_deleted_with_preconditions(api):
    async with Kube(api.url) as kube:
        await kube.delete(f"{PATH}/a", body={"preconditions": {"uid": "1"}})
        await kube.delete(f"{PATH}/b")

    assert [json.loads(body or b"null") for *_, body in api.calls] == [
        {"preconditions": {"uid": "1"}},
        None,
    ]


async def test_a_refusal_has_status_reason_and_message(api):
    api.faults["call"].append(status(409, "Conflict", "the object has been modified"))

    async with Kube(api.url) as kube:
        with pytest.raises(
            ApiError, match=r"the object has been modified \(status 409\)"
        ) as raised:
            await kube.update(f"{PATH}/a", {}, Thing)

    assert (raised.value.status, raised.value.reason) == (409, "Conflict")


@pytest.mark.parametrize(
    ("details", "causes"),
    [
        ({"causes": [{"message": "a"}, {"field": "f", "message": "b"}, {}]}, ("a", "b", "")),
        ({"causes": None}, ()),
        ({"name": "a"}, ()),
        (None, ()),
    ],
)
async def test_a_refusal_has_the_messages_of_its_causes(api, details, causes):
    body = {"reason": "Forbidden", "message": "no", "details": details}
    api.faults["call"].append(text(403, json.dumps(body)))

    async with Kube(api.url) as kube:
        with pytest.raises(ApiError, match="no") as raised:
            await kube.update(f"{PATH}/a", {}, Thing)

    assert raised.value.causes == causes


async def test_unreadable_token_file_is_unreachable(api, tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"\xff")

    async with Kube(api.url, token_file=token) as kube:
        with pytest.raises(Unreachable, match="decode"):
            await kube.get(PATH, Thing)


@pytest.mark.parametrize(
    ("body", "says"),
    [("upstream is gone", "upstream is gone"), ("", "no explanation"), ("{}", "no explanation")],
    ids=["text", "empty", "no status"],
)
async def test_error_without_a_status_object_quotes_the_body(api, body, says):
    api.faults["list"].append(text(502, body))

    async with Kube(api.url) as kube:
        with pytest.raises(ApiError, match=says):
            await kube.get(PATH, Thing)


DEEP = "[" * 3000 + "]" * 3000


async def test_an_answer_is_read_whatever_else_is_nested_deep_in_it(api):
    api.faults["list"].append(text(200, f'{{"metadata": {{"name": "a"}}, "else": {DEEP}}}'))

    async with Kube(api.url) as kube:
        assert await kube.get(PATH, Thing) == Thing(Meta("a"))


async def test_a_refusal_nested_deeper_than_can_be_read_is_a_refusal(api):
    api.faults["list"].append(text(403, f'{{"details": {DEEP}}}'))

    async with Kube(api.url) as kube:
        with pytest.raises(ApiError, match="status 403"):
            await kube.get(PATH, Thing)


async def test_an_answer_of_another_type_is_unreadable(api):
    api.faults["list"].append(text(200, '{"metadata": 7}'))

    async with Kube(api.url) as kube:
        with pytest.raises(Unreadable, match=r"not a Thing: .*metadata"):
            await kube.get(PATH, Thing)


async def test_a_redirect_is_not_followed_with_the_token(api):
    async def elsewhere(_request):
        return web.Response(status=302, headers={"Location": f"{api.url}/elsewhere"})

    api.faults["list"].append(elsewhere)

    async with Kube(api.url, token=TOKEN) as kube:
        with pytest.raises(ApiError, match="302"):
            await kube.get(PATH, Thing)

    assert len(api.queries) == 1


async def test_closed_port_is_unreachable(api):
    await api.stop()

    async with Kube(api.url) as kube:
        with pytest.raises(Unreachable, match=f"GET {PATH}: "):
            await kube.get(PATH, Thing)


async def test_an_answer_that_takes_too_long_is_unreachable(api):
    never = asyncio.Event()
    api.faults["list"].append(after(never))

    async with Kube(api.url, timeout=0.05) as kube, asyncio.timeout(PATIENCE):
        with pytest.raises(Unreachable, match="GET"):
            await kube.get(PATH, Thing)
    never.set()


async def test_a_token_file_is_read_for_every_call(api, tmp_path):
    file = tmp_path / "token"

    async with Kube(api.url, token_file=file) as kube:
        for token in ("one\n", "two"):
            file.write_text(token)
            await kube.create(PATH, {}, Thing)
        file.unlink()
        with pytest.raises(Unreachable, match="token"):
            await kube.create(PATH, {}, Thing)

    assert api.authorizations == ["Bearer one", "Bearer two"]


async def test_without_a_token_none_is_sent(api):
    async with Kube(api.url) as kube:
        await kube.create(PATH, {}, Thing)
    async with Kube(api.url, token=TOKEN) as kube:
        await kube.create(PATH, {}, Thing)

    assert api.authorizations == [None, f"Bearer {TOKEN}"]


async def test_client_outside_its_context_raises(api):
    with pytest.raises(RuntimeError, match="async with"):
        await Kube(api.url).get(PATH, Thing)


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
def test_client_without_a_server_in_its_settings_is_that_of_the_pod(tmp_path, host, server):
    (tmp_path / "ca.crt").write_bytes(a_ca().cert_pem)
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}

    settings = ProcessSettings()
    assert Kube.from_settings(settings, environment, mount=tmp_path).server == server


async def test_a_server_is_trusted_by_its_ca_and_by_the_one_that_replaces_it(tmp_path):
    old, new = a_ca("old"), a_ca("new")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(old.cert_pem)
    certificate = ServingCertificate(*a_leaf(new).write(tmp_path))
    routes = [Route("GET", "/x", lambda _call: HttpResponse(b'{"metadata":{"name":"stored"}}'))]

    async with (
        serve(routes, host="127.0.0.1", port=0, context=certificate.context) as server,
        Kube(f"https://127.0.0.1:{server.port}", ca_file=ca_file) as kube,
    ):
        with pytest.raises(Unreachable, match="certificate"):
            await kube.get("/x", Thing)
        ca_file.write_bytes(old.cert_pem + new.cert_pem)
        with pytest.raises(Unreachable, match="certificate"):
            await kube.get("/x", Thing)
        assert await kube.get("/x", Thing) == STORED
