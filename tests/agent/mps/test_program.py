import tempfile

from agent.mps.program import run_program


async def test_a_program_runs_where_no_temporary_file_can_be_made(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")  # The container's root is read-only.

    result = await run_program(["cat"], {"PATH": "/usr/bin:/bin"}, "an answer", 10)

    assert (result.output, result.problem) == ("an answer", None)


async def test_a_program_that_leaves_its_output_open_has_ended():
    script = "echo started; sleep 30 &"

    result = await run_program(["sh", "-c", script], {"PATH": "/usr/bin:/bin"}, "", 10)

    assert (result.output, result.problem) == ("started\n", None)


async def test_a_program_that_does_not_end_is_killed():
    result = await run_program(["sleep", "30"], {"PATH": "/usr/bin:/bin"}, "", 0.05)

    assert result.problem == "sleep did not end within 0.05 s"
