"""The `linkwise` command: what it is called with, and its exit code.

Each command imports what it runs only when it runs, so that none waits for another's libraries.
"""

import gc
import signal
import sys
from typing import Annotated, Literal

import typer

from cli.output import Format, sentence, warn
from webhook.manifest.value import InputError

EXIT_UNREADABLE = 2
"""Usage, or input that cannot be read."""

app = typer.Typer(
    name="linkwise",
    help="Puts GPU work on the right GPUs: look at machines, check manifests, try out placements.",
    epilog="Example: linkwise check job.yaml --cluster cluster.yaml",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
topology = typer.Typer(
    help="What links a machine's GPUs, and which of them to take.",
    epilog="Example: linkwise topology best dgx1-v100 --count 4",
    invoke_without_command=True,
)
policy = typer.Typer(
    help="What administrators decide: profiles and the policy.",
    epilog="Example: linkwise policy lint acs-profile.yaml",
    invoke_without_command=True,
)
app.add_typer(topology, name="topology")
app.add_typer(policy, name="policy")


@app.callback()
@topology.callback()
@policy.callback()
def show_help(context: typer.Context) -> int:
    """Show what there is to call, where nothing is called."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return 0


def _catalogue(incomplete: str) -> list[str]:
    from topology.catalogue import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


Machine = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        autocompletion=_catalogue,
        help="Text of `nvidia-smi topo -m`, an NCCL topology XML, a catalogue name, or - .",
    ),
]
Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Kubernetes manifests, YAML or JSON, or - .")
]
Output = Annotated[Format, typer.Option("--output-format", "-o", help="How to answer.")]
GPUModel = Annotated[
    str | None, typer.Option(help="Product name of the GPUs, or a part of it: V100, A100, H100.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Read what is whole of a text that is cut.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when there are warnings.")]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", metavar="FILE", help="A Policy, or its ConfigMap.")
]
ProfileFile = Annotated[
    str | None,
    typer.Option("--profile", metavar="FILE", help="Profile selectors, or their ConfigMap."),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Whose cluster and who you are; else $KUBECONFIG."),
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which of its contexts; else its own choice.")
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Where manifests go that do not say it.")
]


@topology.command("show", epilog="Example: nvidia-smi topo -m | linkwise topology show -")
def topology_show(
    file: Machine,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Show the links, the class and the bandwidths of a machine."""
    from cli.machine import find_machine
    from cli.source import shown_name
    from cli.topology import show

    return show(shown_name(file), find_machine(file, model=gpu_model, partial=partial), output)


@topology.command("best", epilog="Example: linkwise topology best dgx1-v100 --count 2 --free 0,2,3")
def topology_best(
    file: Machine,
    count: Annotated[int, typer.Option(min=1, help="How many GPUs to take.")],
    free: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs to choose from, such as 0,2,3.")
    ] = None,
    require: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs that must be among them.")
    ] = None,
    mode: Annotated[
        Literal["fast", "keep", "compat"],
        typer.Option(
            help="Most bandwidth now; or with a view to later jobs; or as NVIDIA's allocator."
        ),
    ] = "keep",
    multi_node: Annotated[
        bool, typer.Option("--multi-node", help="The job spans nodes: near network cards count.")
    ] = False,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Choose the GPUs that talk fastest to each other."""
    from cli.machine import find_machine
    from cli.source import shown_name
    from cli.topology import best, gpus_in
    from topology.choice import Ask, Mode

    machine = find_machine(file, model=gpu_model, partial=partial)
    ask = Ask(
        free=(1 << machine.n) - 1 if free is None else gpus_in(free, machine.n, "--free"),
        k=count,
        required=gpus_in(require or "", machine.n, "--require"),
        mode=Mode(mode),
        multi_node=multi_node,
    )
    return best(shown_name(file), machine, ask, output)


@topology.command("list", epilog="Example: linkwise topology list -o json")
def topology_list(output: Output = Format.TABLE) -> int:
    """List the machines of the catalogue."""
    from cli.topology import list_machines

    return list_machines(output)


@app.command(epilog="Example: linkwise check job.yaml --profile acs-profile.yaml -o json")
def check(
    files: Files,
    policy_file: PolicyFile = None,
    profile_file: ProfileFile = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Nodes, pods and namespaces to check against."),
    ] = None,
    namespace: Namespace = "default",
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask a cluster's webhook, which knows its policy, profiles and nodes.",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Who asks it: kubectl create token NAME --audience linkwise."
        ),
    ] = None,
    authority_file: Annotated[
        str | None,
        typer.Option(
            "--certificate-authority",
            metavar="FILE",
            help="Who signs its certificate; else the system's authorities.",
        ),
    ] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whom its certificate is for; else the URL's host."),
    ] = None,
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> int:
    """Say what admission would do with the pods of these files, and where they would fit now."""
    from cli.check import judged, show_report
    from cli.inputs import Given, read_inputs

    given = Given(files, policy_file, profile_file, cluster, namespace)
    if server is None:
        return show_report(judged(read_inputs(given)), output, strict=strict)
    from cli.remote import Server, asked

    remote = Server(server, token_file, authority_file, tls_server_name)
    return show_report(asked(remote, given), output, strict=strict)


@app.command(epilog="Example: linkwise snapshot --output cluster.json")
def snapshot(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    file: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Where to write it.")
    ] = None,
) -> int:
    """Write what a live cluster has and runs into one file, for check and simulate."""
    from cli.fetch import take_snapshot
    from cli.kubeconfig import Access

    return take_snapshot(Access(kubeconfig, context), file)


@app.command(epilog="Example: linkwise inspect dgx-0 -d")
def inspect(
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Only this node; else all with GPUs.")
    ] = None,
    detail: Annotated[
        bool, typer.Option("--detail", "-d", help="Every GPU, and every pod that has some of it.")
    ] = False,
    style: Annotated[
        Literal["linkwise", "gpushare"],
        typer.Option("--format", help="Whose table; gpushare's shows memory alone."),
    ] = "linkwise",
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE", help="A cluster file, or a snapshot.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Only nodes where its pods have GPUs."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Format.TABLE,
) -> int:
    """Show who has which GPU, and what keeps those who share one apart."""
    from cli.current import current
    from cli.inspect import Style, Wanted, show_inspection
    from cli.kubeconfig import Access

    now = current(Access(kubeconfig, context), cluster)
    return show_inspection(now, Wanted(node, namespace), output, Style(style), detail=detail)


@app.command(epilog="Example: linkwise simulate job.yaml --cluster cluster.yaml -o html")
def simulate(
    files: Files,
    cluster: Annotated[
        str, typer.Option(metavar="FILE", help="Nodes, what runs on them, and namespaces.")
    ],
    policy_file: PolicyFile = None,
    profile_file: ProfileFile = None,
    namespace: Namespace = "default",
    mode: Annotated[
        Literal["fast", "keep"],
        typer.Option(help="Most bandwidth now; or with a view to later jobs."),
    ] = "keep",
    output: Annotated[
        Literal["table", "json", "yaml", "html"],
        typer.Option("--output-format", "-o", help="How to answer; html is a page."),
    ] = "table",
    file: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="Where to write it; not for a table."),
    ] = None,
) -> int:
    """Admit the pods of these files, place them on a cluster, and show what happens."""
    from cli.inputs import Given, read_inputs
    from cli.simulate import View, show_simulation
    from topology.choice import Mode

    given = Given(files, policy_file, profile_file, cluster, namespace)
    return show_simulation(read_inputs(given), View(output), Mode(mode), file)


@app.command(epilog="Example: linkwise explain gang team/mpijob-vgg16")
def explain(
    kind: Annotated[
        Literal["pod", "gang"], typer.Argument(metavar="pod|gang", help="What to explain.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Its name.")],
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE", help="A snapshot instead of the live cluster.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Where it is; else the context's.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Format.TABLE,
) -> int:
    """Say why a pod or a gang is where it is, why on these GPUs, or why nowhere yet."""
    from cli.current import current
    from cli.explain import show_explanation
    from cli.kubeconfig import Access
    from runtime.clock import wall

    now = current(Access(kubeconfig, context, namespace), cluster)
    return show_explanation(now, kind, name, output, clock=wall())


@policy.command("lint", epilog="Example: linkwise policy lint acs-profile.yaml")
def policy_lint(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A Policy, profile selectors, or a ConfigMap.")
    ],
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> int:
    """Say what is wrong or risky in a policy or a profile, and what it decides."""
    from cli.policy import lint_file

    return lint_file(file, output, strict=strict)


def run(arguments: list[str], name: str = "linkwise") -> int:
    """Run one command line; return its exit code. Every failure is one line on standard error."""
    try:
        code = app(arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        warn(str(error))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else name
        warn(f"{sentence(' '.join(error.format_message().split()))} See {command} --help.")
    except OSError as error:
        warn(f"the answer cannot be written: {error.strerror or error}. Name another place.")
    except Exception as error:  # noqa: BLE001 - nobody shall see a traceback for an answer
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        warn(f"internal error: {what}. Please report it, with the command line and its files.")
    else:
        return int(code or 0)
    return EXIT_UNREADABLE


def main() -> None:
    """Run the command line of this process."""
    # A reader that goes away, such as head, ends us as it ends other programs: without a word.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A command lives for a second, of which looking for cycles of garbage would take a tenth.
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    is_plugin = sys.argv[0].endswith("kubectl-linkwise")
    sys.exit(run(sys.argv[1:], "kubectl linkwise" if is_plugin else "linkwise"))


if __name__ == "__main__":
    main()
