"""The text of `linkwise certs status`."""

from linkwise.views.analysis.certificates import CertificateReport
from linkwise.views.output.printer import BAD, GOOD, QUIET, Cell, Paint, say, sentence, table

_PHASES = {
    "stable": "no rotation of the CA is under way",
    "announce": "1 of 4: the next CA is added to every caBundle and Secret",
    "wait": "2 of 4: API servers get time to see the next CA",
    "switch": "3 of 4: servers get certificates of the new CA",
    "retire": "4 of 4: servers get time to load their certificates",
}
_SHORT = 12


def show_certificates(report: CertificateReport) -> None:
    """Write the state of all certificates for people."""
    say(Paint("Certificates", bold=True), f"issued by mode {report.mode}")
    if report.phase:
        meaning = _PHASES.get(report.phase, "")
        say(Paint("Phase", bold=True), f"{report.phase} since {report.since}: {meaning}")
    say()
    rows: list[list[Cell]] = [["CA", "ROLE", "VALID FROM", "TO"]]
    rows += [
        [each.sha256[:_SHORT], each.role, each.not_before, each.not_after]
        for each in report.authorities
    ]
    table(rows)
    say()
    rows = [["SERVER", "SECRET", "CA", "VALID TO", "STATE"]]
    for server in report.servers:
        state = Paint(server.problem, BAD) if server.problem else Paint("ok", GOOD)
        issuer = server.issuer[:_SHORT] or "-"
        rows.append([server.server, server.secret, issuer, server.not_after or "-", state])
    table(rows)
    say()
    rows = [["REGISTRATION", "TRUSTS", "STATE"]]
    for each in report.registrations:
        trusted = " ".join(one[:_SHORT] for one in each.authorities or ()) or "-"
        state = Paint(each.problem, BAD) if each.problem else Paint("ok", GOOD)
        if each.authorities is None and not each.problem:
            state = Paint("not read", QUIET)
        rows.append([each.configuration, trusted, state])
    table(rows)
    say()
    at = f" at {report.next.at}" if report.next.at else ""
    say(Paint("Next", bold=True), sentence(f"{report.next.text}{at}"))
