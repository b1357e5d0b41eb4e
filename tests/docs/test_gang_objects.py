"""Gang objects as docs/live.md describes them, and its health check for Argo CD, interpreted."""

import re
from pathlib import Path

import msgspec
import pytest
from lupa.lua54 import LuaRuntime
from msgspec import structs

from linkwise.planning.gang.crd import (
    GPUS_AS_PLANNED,
    GPUS_HEALTHY,
    PREPARED,
    GangStatus,
    Phase,
)
from linkwise.planning.gang.crd_status import status_of, with_problem

PAGE = (Path(__file__).parents[2] / "docs/live.md").read_text(encoding="utf-8")
NOW = "2026-01-02T03:04:05Z"
PLACED = status_of(Phase.PLACED, members=(2, 2), now=NOW)
HEALTH = {
    Phase.ASSEMBLING: "Progressing",
    Phase.WAITING: "Progressing",
    Phase.COMMITTING: "Progressing",
    Phase.PLACED: "Healthy",
    Phase.FINISHED: "Healthy",
    Phase.SUSPENDED: "Suspended",
    Phase.GONE: "Progressing",
}


def health(status, generation=1):
    """Return what Argo CD says of a Gang."""
    (script,) = re.findall(r"```lua\n(.*?)```", PAGE, re.DOTALL)
    gang = {"metadata": {"generation": generation}}
    if status is not None:
        gang["status"] = msgspec.json.decode(msgspec.json.encode(status))
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    check = lua.eval(f"function(obj) {script} end")
    answer = check(lua.table_from(gang, recursive=True))
    return answer.status, answer.message


def of(status):
    return structs.replace(status, observed_generation=1)


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_has_a_health(phase):
    status = of(status_of(phase, members=(2, 2), reason="too big", now=NOW))
    assert health(status) == (HEALTH[phase], f"{phase.value}: too big")


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="none"),
        pytest.param(GangStatus(), id="empty"),
        pytest.param(PLACED, id="of an earlier plan"),
    ],
)
def test_a_gang_that_was_not_reported_yet_is_progressing(status):
    assert health(status) == ("Progressing", "the scorer has not reported it yet")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(GPUS_HEALTHY, ("Degraded", "GPU 3"), id="unhealthy"),
        pytest.param(PREPARED, ("Degraded", "GPU 3"), id="not prepared"),
        pytest.param(GPUS_AS_PLANNED, ("Healthy", "Placed"), id="other GPUs"),
    ],
)
def test_a_gang_with_a_fault_is_degraded_until_it_is_gone(kind, expected):
    wrong = with_problem(PLACED, kind, "GPU 3", before=PLACED, now=NOW)
    assert health(of(wrong)) == expected
    right = with_problem(PLACED, kind, "", before=wrong, now=NOW)
    assert health(of(right)) == ("Healthy", "Placed")


def test_the_table_has_the_reasons_of_all_conditions():
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE))
    status = PLACED
    for kind in (GPUS_HEALTHY, GPUS_AS_PLANNED, PREPARED):
        wrong = with_problem(PLACED, kind, "x", before=PLACED, now=NOW)
        status = with_problem(status, kind, "", before=wrong, now=NOW)
    assert rows == {one.type: one.reason for one in status.conditions}
