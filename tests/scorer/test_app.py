import json

import pytest
from waiting import until_true

from cluster import keys


@pytest.mark.parametrize(
    ("path", "keys_told"),
    [("/v1/nodes", {"term", "nodes"}), ("/v1/gangs", {"term", "gangs", "waiting"})],
)
async def test_a_leader_answers_as_json_under_its_term(scorer, path, keys_told):
    status, body = await scorer.look(path)

    assert (status, json.loads(body).keys()) == (200, keys_told)
    assert json.loads(body)["term"] == scorer.said("Leading")[0]["term"]


async def test_one_node_can_be_asked_for(scorer, cluster):
    labels = {keys.NODE_MODE: "topology"}
    for name in ("gpu-0", "gpu-1"):
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {keys.GPU_WHOLE: "8"}},
        }
        cluster.put(f"/api/v1/nodes/{name}", body)

    async def names(query):
        _, body = await scorer.look(f"/v1/nodes{query}")
        return [node["name"] for node in json.loads(body)["nodes"]]

    async def both():
        return await names("") == ["gpu-0", "gpu-1"]

    await until_true(both)
    assert await names("?name=gpu-1") == ["gpu-1"]


@pytest.mark.parametrize("path", ["/v1/nodes?namespace=a", "/v1/gangs?name=a", "/v1/gangs?x"])
async def test_a_query_that_nobody_reads_is_refused(scorer, path):
    status, why = await scorer.look(path)
    assert (status, why[:20]) == (400, "of a query, only nam")


async def test_nothing_else_is_answered(scorer):
    assert (await scorer.look("/v1/pods"))[0] == 404
    assert (await scorer.look("/metrics"))[0] == 404
