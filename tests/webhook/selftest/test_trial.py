import json

import pytest
from aiohttp import web
from support.servers.fake_api import FakeAPI, status

from linkwise.runtime.kube.client import Kube
from webhook.selftest.trial import CODE, complaints

REFUSED = status(400, "", f'admission webhook "pods.linkwise.dev" denied the request: [{CODE}]')
OTHER = status(403, "Forbidden", "exceeded quota")


async def changed(request):
    pod = await request.json()
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    return web.json_response(pod)


async def unchanged(request):
    return web.json_response(await request.json())


async def asked(*answers):
    async with FakeAPI() as api, Kube(api.url) as kube:
        api.faults["call"].extend(answers)
        return await complaints(kube, "team"), api.calls


async def test_nothing_is_said_if_a_pod_is_refused_and_a_gang_is_changed():
    found, calls = await asked(REFUSED, changed, changed)

    assert found == []
    assert [path for _, path, *_ in calls] == ["/api/v1/namespaces/team/pods?dryRun=All"] * 3
    assert [json.loads(content)["metadata"]["name"] for *_, content in calls] == [
        "linkwise-test",
        "linkwise-test-0",
        "linkwise-test-1",
    ]


@pytest.mark.parametrize(
    ("answers", "problems"),
    [
        pytest.param(
            (unchanged, unchanged, unchanged),
            ["to be refused with LW101", "-0 of a gang", "-1 of a gang"],
            id="not called",
        ),
        pytest.param((OTHER, changed, changed), ["exceeded quota"], id="refused by others"),
        pytest.param((REFUSED, changed, OTHER), ["-1 of a gang without"], id="member refused"),
    ],
)
async def test_each_dry_run_with_another_answer_is_a_line(answers, problems):
    found, _ = await asked(*answers)

    assert len(found) == len(problems)
    assert all(problem in line for problem, line in zip(problems, found, strict=True))
