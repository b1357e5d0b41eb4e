import asyncio
import os
import signal
import subprocess
import sys
import tempfile

import pytest
import uvloop
from support.waiting import PATIENCE, until

from agent.host.program import run_program

PATH = {"PATH": "/usr/bin:/bin"}
# The handlers that a fork runs are those of gRPC, and one that counts here.
MANY = """
import asyncio, ctypes, tempfile
import grpc, uvloop
from agent.host.program import run_program

forks = 0

@ctypes.CFUNCTYPE(None)
def before_fork():
    global forks
    forks += 1

ctypes.CDLL(None).__register_atfork(before_fork, None, None, None)
same = lambda message: message

async def answer(request, context):
    return request

async def call_until(ended, invoke):
    calls = 0
    while not ended.is_set():
        assert await invoke(b"x", timeout=60) == b"x"
        calls += 1
    return calls

async def main(folder):
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer, same, same)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"m": handler}),))
    server.add_insecure_port(f"unix:{folder}/socket")
    await server.start()
    ended = asyncio.Event()
    async with grpc.aio.insecure_channel(f"unix:{folder}/socket") as channel:
        invoke = channel.unary_unary("/s/m", request_serializer=same, response_deserializer=same)
        calling = [asyncio.create_task(call_until(ended, invoke)) for _ in range(8)]
        for _ in range(100):
            results = await asyncio.gather(*(
                run_program(["true"], {"PATH": "/usr/bin:/bin"}, "", 60) for _ in range(4)
            ))
            assert [result.problem for result in results] == [None] * 4
        ended.set()
        assert min(await asyncio.gather(*calling)) > 0
    await server.stop(None)
    assert forks == 0, f"{forks} forks ran handlers"

with tempfile.TemporaryDirectory() as folder:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(folder))
"""


async def test_a_program_runs_where_no_temporary_file_can_be_made(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")  # The container's root is read-only.

    result = await run_program(["cat"], PATH, "an answer", PATIENCE)

    assert (result.output, result.problem) == ("an answer", None)


async def test_a_program_that_leaves_its_output_open_has_ended():
    result = await run_program(["sh", "-c", "sleep 600 & echo $!"], PATH, "", PATIENCE)

    assert result.problem is None
    os.kill(int(result.output), signal.SIGKILL)


async def test_a_program_that_does_not_end_is_killed():
    result = await run_program(["sleep", "30"], PATH, "", 0.05)

    assert result.problem == "sleep did not end within 0.05 s"


def test_a_program_that_ends_without_reading_its_input_is_no_failure_of_the_agent():
    """As where the program of the node is missing. uvloop is the event loop of the agent."""

    async def run():
        long = "get_server_list\n" * 10_000
        return [await run_program(["false"], PATH, long, PATIENCE) for _ in range(9)]

    problems = {result.problem for result in uvloop.run(run())}
    assert problems == {"false ended with status 1: no output"}


def test_programs_are_started_without_the_fork_handlers_of_grpc():
    ended = subprocess.run(
        [sys.executable, "-c", MANY], capture_output=True, text=True, check=False, timeout=300
    )

    # gRPC may log other things, such as connections that its server closes.
    assert "fork" not in ended.stderr
    assert ended.returncode == 0, ended.stderr


async def test_a_program_of_a_cancelled_task_is_killed(tmp_path):
    script = f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid; exec sleep 600"
    running = asyncio.create_task(run_program(["sh", "-c", script], PATH, "", 600))
    await until((tmp_path / "pid").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
