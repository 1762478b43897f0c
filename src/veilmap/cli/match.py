"""`veilmap match`: match the records of two parties, on one machine or on two."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TypeAlias

import typer

from veilmap.cli._options import FormatOption, HeightOption, must_have_folder
from veilmap.cli._output import Format, print_csv, print_table, progress, say
from veilmap.errors import BadInput, LedgerWarning

if TYPE_CHECKING:
    from veilmap.arrays import Ints
    from veilmap.matching.agreement import Agreement
    from veilmap.matching.blocks import Side
    from veilmap.matching.local_match import Match
    from veilmap.matching.protocol import Wire
    from veilmap.matching.rule import Rule
    from veilmap.method.method import Method
    from veilmap.releases.release import Release

Facts: TypeAlias = "dict[str, float | int | str]"  # printed as a table, and as CSV and JSON with these keys

HELP_EXAMPLE = (
    'Example: veilmap match clinic.csv register.csv --on age=2,hours=5 --domain "age=17:90,hours=1:99" --epsilon 1'
)
MAX_SECONDS_TO_CONNECT = 60
MODE_OWNER_ONLY = 0o600  # of all files written here, because they are about records
NO_GAIN = (
    "Blocking does not pay off here: dummy records cost more comparisons than blocking saves. "
    "Use a larger epsilon or a smaller height."
)


def match(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LEFT RIGHT", help="Two files of records; or only your own file, with --listen or --connect."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="The thresholds: name=value for each axis of the domain, separated by commas."),
    ] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", help="The privacy budget of each party.")] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain",
            help="The public bounding box of both files: name=low:high for each axis, separated by commas.",
        ),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="The decomposition method.")] = "kd-standard",
    height: HeightOption = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", help="The agreed maximum number of records per party. The height is chosen for it."),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="NAME=VALUE", help="Round an axis to multiples of this step. May be repeated."),
    ] = None,
    lost: Annotated[
        str,
        typer.Option("--lost", help="The fraction of its records that a party may leave out for lack of slots."),
    ] = "0.01",
    secure: Annotated[
        bool,
        typer.Option(
            "--secure/--no-secure", help="Compare candidates with the secure protocol, or only count the work."
        ),
    ] = True,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Be the left party: wait here for the right party."),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option("--connect", metavar="HOST:PORT", help="Be the right party: connect to the left party."),
    ] = None,
    kept_release: Annotated[
        Path | None,
        typer.Option("--release", help="A file for your own release: written the first time, and reused if it exists."),
    ] = None,
    transcript: Annotated[
        Path | None, typer.Option("--transcript", help="Record everything that the parties send in this file.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file for the matches.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A picture of the pairs that blocking saves: .png, .svg or .pdf.")
    ] = None,
    study: Annotated[
        bool,
        typer.Option("--study", help="Reproduce figure 7(b) of the paper in the folder -o, with synthetic people."),
    ] = False,
    data: Annotated[Path | None, typer.Option("--data", help="The UCI Adult file, for --study.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run a smaller --study.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Find matching records of two parties, with private blocking and secure comparison.

    Two records match if their distance along every axis is within the threshold of --on. Each party makes a private
    release of its own file. Only records in adjacent boxes are compared, with a protocol that tells the left party
    which pairs match, and tells the parties nothing else. Rows are numbered from 0.

    For two machines, the left party runs the command with its own file and --listen, and the right party with its own
    file and --connect. The parties exchange only their options, the two releases, and ciphertexts. Each party refuses
    a release that is larger than the agreed --rows allow (10,000 if not given). Once a release has been sent, its
    budget is spent: keep it with --release, so that a second try costs no more.
    """
    files = records or []
    if study:
        if files or listen or connect:
            raise BadInput("--study uses its own records. Leave out files, --listen and --connect.")
        _study(out or Path("match-study"), data, quick)
        return
    if data or quick:
        raise BadInput("--data and --quick work with --study only. Add --study, or leave them out.")
    two_machines = bool(listen or connect)
    _must_be_complete(files, listen, connect, {"--on": on, "--epsilon": epsilon, "--domain": domain})
    assert on is not None and epsilon is not None and domain is not None  # noqa: S101, PT018
    for path in (out, plot, transcript):
        _must_be_new(path)
    outputs = [path.resolve() for path in (out, plot, transcript, kept_release) if path is not None]
    if len(set(outputs)) < len(outputs):
        raise BadInput("Two options name the same output file. Give each output a name of its own.")
    if plot is not None:
        _must_be_a_picture(plot)
    if transcript is not None and not secure:
        raise BadInput("Without the secure protocol nothing is sent. Leave out --transcript or --no-secure.")
    from veilmap.matching.blocks import leaves_only

    if os.environ.get("VEILMAP_LEDGER"):
        warnings.warn(
            "VEILMAP_LEDGER is set, but a match is not charged automatically. See 'veilmap ledger charge --help'.",
            LedgerWarning,
            stacklevel=2,
        )
    rule = _rule(on, domain, step, lost)
    chosen = leaves_only(method, height, rule, epsilon, rows)
    if two_machines:
        _must_suit_two_machines(out, plot, secure, output)
        _match_two_machines(files[0], rule, epsilon, chosen, rows, kept_release, listen, connect, transcript, out)
    elif kept_release is not None:
        raise BadInput("--release keeps the release of one party. It needs --listen or --connect.")
    else:
        _match_two_files(files, rule, epsilon, chosen, secure, transcript, out, plot, output)


def _must_suit_two_machines(out: Path | None, plot: Path | None, secure: bool, output: Format) -> None:
    if not secure:
        raise BadInput("--no-secure counts the work for two local files. Leave it out, or give both files.")
    if plot is not None:
        raise BadInput("--plot needs both files. Leave it out with --listen and --connect.")
    if output is not Format.TABLE:
        raise BadInput("--format works with two local files only. Leave it out with --listen and --connect.")
    if out is None:
        raise BadInput("--listen and --connect need -o. Without it, the matches would be lost.")


def _must_be_complete(
    files: list[Path], listen: str | None, connect: str | None, agreed: dict[str, str | None]
) -> None:
    if listen and connect:
        raise BadInput("One party listens and the other connects. Give either --listen or --connect.")
    two_machines = bool(listen or connect)
    if len(files) != (1 if two_machines else 2):
        needed = "only your own file with --listen or --connect" if two_machines else "two files, LEFT and RIGHT"
        raise BadInput(f"Give {needed}; got {len(files)}.")
    for name, value in agreed.items():
        if value is None:
            raise BadInput(f"{name} is missing. Both parties must agree on it. See 'veilmap match --help'.")


def _study(folder: Path, data: Path | None, quick: bool) -> None:
    from veilmap.reproduce.record_matching import run_alone

    with progress("Study") as tell:
        tables, claims = run_alone(folder, data, quick, lambda fraction, _: tell(fraction))
    for table in tables:
        say(f"{table.title}:")
        print_table(list(table.header), [list(row) for row in table.rows])
    for claim in claims:
        say(f"{claim.text} {claim.verdict.capitalize()}: {claim.because}")
    say(f"Wrote {folder / 'index.html'}. Tables and pictures are in the same folder.")


def _match_two_files(
    files: list[Path],
    rule: Rule,
    epsilon: str,
    method: Method,
    secure: bool,
    transcript: Path | None,
    out: Path | None,
    plot: Path | None,
    output: Format,
) -> None:
    """Match two local files, and print how much work blocking saves and what it loses."""
    from veilmap.matching.local_match import match_sides
    from veilmap.matching.plot import draw_match
    from veilmap.matching.protocol import measure_speed

    started = time.perf_counter()
    with progress("Blocking") as tell:
        result = match_sides([str(path) for path in files], rule, epsilon, method, tell)
    facts = _blocking_facts(result, time.perf_counter() - started)
    if secure:
        result.agreement.must_be_short()
    speed = measure_speed(rule) if secure or find_spec("nacl") else None  # measuring needs the package nacl
    if secure and speed:
        facts |= _compare_securely(result, speed, transcript, out)
    else:
        _write_rows(out, ["left_row", "right_row"], result.candidates if out else None)
        facts |= _expected_hours(result, speed) if speed else {}
    _print_facts(facts, output)
    typer.echo("Matches, recall and precision are exact because both files are here. Do not publish them.", err=True)
    if plot is not None:
        draw_match(result, plot)
    if output is Format.TABLE:
        if result.work >= result.every:
            say(NO_GAIN)
        _say_if_too_wide(result.agreement)
        for path, name in ((out, "matches" if secure else "candidates"), (plot, "picture"), (transcript, "transcript")):
            if path is not None:
                say(f"Wrote the {name} to {path}.")


def _blocking_facts(result: Match, seconds: float) -> Facts:
    return {
        "records left": len(result.left.records),
        "records right": len(result.right.records),
        "pairs without blocking": result.every,
        "pairs compared": result.work,
        "reduction ratio": result.reduction_ratio,
        "matches": result.matches,
        "recall": result.recall,
        "precision": result.precision,
        "seconds of blocking": seconds,
    }


def _compare_securely(result: Match, speed: tuple[float, float], transcript: Path | None, out: Path | None) -> Facts:
    """Compare the candidates with the secure protocol, write the matches, and return what it took."""
    from veilmap.matching.protocol import compare_both, expected_seconds

    work = result.agreement.work
    minutes = expected_seconds(result.agreement, speed) / 60
    typer.echo(f"{work:,} comparisons to make, about {minutes:,.1f} minutes.", err=True)
    started = time.perf_counter()
    with progress("Comparing") as tell, _opened_for_writing(transcript) as transcript_file:
        pairs = compare_both(result.left, result.right, result.rule, tell, transcript_file)
    seconds = time.perf_counter() - started
    _write_rows(out, ["left_row", "right_row"], pairs)
    facts: Facts = {"matches found securely": len(pairs), "secure pairs a second": work / seconds}
    return facts | _hours(result, speed, seconds)


def _expected_hours(result: Match, speed: tuple[float, float]) -> Facts:
    from veilmap.matching.protocol import expected_seconds

    return _hours(result, speed, expected_seconds(result.agreement, speed))


def _hours(result: Match, speed: tuple[float, float], seconds: float) -> Facts:
    return {
        "hours of comparing": seconds / 3600,
        "hours saved by blocking": (result.every / speed[0] - seconds) / 3600,
    }


def _say_if_too_wide(agreement: Agreement) -> None:
    try:
        agreement.must_be_short()
    except BadInput as error:
        say(str(error))


def _match_two_machines(
    file: Path,
    rule: Rule,
    epsilon: str,
    method: Method,
    rows: int | None,
    kept_release: Path | None,
    listen: str | None,
    connect: str | None,
    transcript: Path | None,
    out: Path | None,
) -> None:
    """Match the local file with that of a party on another machine."""
    from veilmap.files.atomic_writes import write_atomically
    from veilmap.matching.blocks import DEFAULT_ROWS, open_side
    from veilmap.matching.limits import must_fit_rows
    from veilmap.matching.protocol import Wire, meet, to_bytes

    address = _parse_address(listen or connect or "")
    earlier = _earlier_release(kept_release, rule, epsilon)
    with progress("Blocking"):
        side = open_side(str(file), rule, epsilon, method, made=earlier, rows=rows or DEFAULT_ROWS)
        if kept_release is not None and earlier is None:  # before anything is sent
            write_atomically(kept_release, to_bytes(side.release), overwrite=False, mode=MODE_OWNER_ONLY)
    must_fit_rows(side, rule)
    say(side.release.privacy.statement())
    is_left = listen is not None
    with (
        _explained_interrupt(kept_release),
        _connection(address, listening=is_left) as stream,
        _opened_for_writing(transcript) as transcript_file,
    ):
        wire = Wire(stream, transcript_file)
        agreement = meet(wire, side, rule, left=is_left)
        wire.wait(agreement.patience)  # from here on, the other party computes between messages
        _say_work(agreement)
        if is_left:
            _find_matches(wire, side, agreement, out)
        else:
            _answer_comparisons(wire, side, agreement, out)
    say(f"Wrote {out}.")


def _find_matches(wire: Wire, side: Side, agreement: Agreement, out: Path | None) -> None:
    """Do the left party's part of the protocol."""
    from veilmap.matching.protocol import find_matches

    with progress("Comparing") as tell:
        pairs = find_matches(wire, side, agreement, tell)
        _write_rows(out, ["row", "ticket"], pairs)
        say(f"{len(pairs):,} pairs match. A ticket is a slot of the right party, which knows whose record it holds.")


def _answer_comparisons(wire: Wire, side: Side, agreement: Agreement, out: Path | None) -> None:
    """Do the right party's part of the protocol."""
    from veilmap.matching.protocol import answer_all

    _say_risk_of_cheating(agreement)
    with progress("Answering") as tell:
        _write_rows(out, ["ticket", "row"], _tickets(side))
        answer_all(wire, side, agreement, tell)
        say("All comparisons are answered. Only the left party knows which pairs match.")


@contextmanager
def _explained_interrupt(kept_release: Path | None) -> Iterator[None]:
    """On Ctrl-C, say what is spent and how to start again."""
    try:
        yield
    except KeyboardInterrupt:
        advice = (
            f"Run the command again with --release {kept_release} to reuse it"
            if kept_release
            else "It was not kept (see --release)"
        )
        typer.echo(f"veilmap: Interrupted. The budget of a release that was sent is spent. {advice}.", err=True)
        raise SystemExit(130) from None  # so that main() prints no second message


def _earlier_release(path: Path | None, rule: Rule, epsilon: str) -> Release | None:
    """Load this party's release of an earlier try, if there is one."""
    if path is None or not path.exists():
        if path is not None:
            _must_be_new(path)
        return None
    from veilmap.releases.release import load
    from veilmap.validation import exact_epsilon

    release = load(path)
    if not release.privacy.private:
        raise BadInput(f"The release {path} is not private and must not be sent. Give another file.")
    if (release.domain, release.privacy.epsilon) != (rule.domain, exact_epsilon(epsilon)):
        raise BadInput(
            f"The release {path} has another domain or epsilon than the options say. Give those of the release."
        )
    say(f"Reusing the release {path}. This costs no further budget.")
    return release


def _say_work(agreement: Agreement) -> None:
    say(
        f"{agreement.work:,} comparisons, in {len(agreement.pairs):,} pairs of boxes; "
        f"about {agreement.expected:,} without blocking."
    )
    if agreement.work >= agreement.expected:
        say(NO_GAIN)


def _say_risk_of_cheating(agreement: Agreement) -> None:
    say(
        f"A left party that cheats can choose {agreement.points:,} points freely and learn which of your records lie "
        f"within the thresholds of each point, with at most {agreement.near_one:,} points for any one record. "
        f"This many points cover at most {agreement.reach:.1%} of the domain."
    )


def _tickets(side: Side) -> Ints:
    """Return the slots of this party that hold a record, with the rows of these records."""
    import numpy as np

    taken = np.flatnonzero(side.seats >= 0)
    return np.stack([taken, side.seats[taken]], axis=1)


def _print_facts(facts: Facts, output: Format) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}, indent=2))
    elif output is Format.CSV:
        print_csv(["what", "value"], [[name, value] for name, value in facts.items()])
    else:
        rows = [[name, f"{v:,}" if isinstance(v, int) else f"{v:,.4g}"] for name, v in facts.items()]
        print_table(["", "value"], rows)


def _rule(on: str, domain: str, steps: list[str] | None, lost: str) -> Rule:
    from veilmap.domain import Domain
    from veilmap.matching.rule import Rule

    both = Domain.parse(domain)
    thresholds = _values_by_axis(on.split(","), both.names, "--on")
    sizes = _values_by_axis(steps or [], both.names, "--step")
    if missing := [name for name in both.names if name not in thresholds]:
        raise BadInput(f"Every axis of the domain needs a threshold, and {missing[0]} has none. Add it to --on.")
    return Rule.of(both, [thresholds[name] for name in both.names], [sizes.get(name) for name in both.names], lost)


def _values_by_axis(texts: list[str], axes: tuple[str, ...], option: str) -> dict[str, str]:
    """Parse name=value texts of an option."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value) or name in values:
            raise BadInput(f"{option} takes name=value, each name once; got {text!r}.")
        if name not in axes:
            raise BadInput(f"{name!r} in {option} is not an axis of the domain, which has {', '.join(axes)}.")
        values[name] = value
    return values


@contextmanager
def _connection(address: tuple[str, int], *, listening: bool) -> Iterator[socket.socket]:
    """Yield a connection with the other party."""
    place = f"{address[0]}:{address[1]}"
    if listening:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            with socket.create_server(address, family=family) as server:
                say(f"Waiting for the right party at {place}.")
                stream, _ = server.accept()
        except OSError as error:
            raise BadInput(f"Cannot listen at {place}: {_reason(error)}. Choose another host or port.") from None
    else:
        stream = _connect(address, place)
    with stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.settimeout(MAX_SECONDS_TO_CONNECT)
        yield stream


def _connect(address: tuple[str, int], place: str) -> socket.socket:
    """Connect to the left party. Retry for a while, since it may start later."""
    deadline, told = time.monotonic() + MAX_SECONDS_TO_CONNECT, False
    while True:
        try:
            return socket.create_connection(address, MAX_SECONDS_TO_CONNECT)
        except OSError as error:
            if time.monotonic() > deadline or not isinstance(error, ConnectionRefusedError | TimeoutError):
                raise BadInput(
                    f"Cannot reach {place}: {_reason(error)}. Start the left party with --listen first."
                ) from None
            if not told:
                say(f"Waiting for the left party at {place}.")
                told = True
            time.sleep(0.2)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, socket.gaierror) or (error.errno or 0) <= 0:  # create_server() re-raises it as OSError
        return "the host name is unknown"
    return os.strerror(error.errno or 0).lower()


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise BadInput(f"An address is HOST:PORT, for example 127.0.0.1:7700; got {text!r}.")
    return host.strip("[]"), int(port)


def _must_be_a_picture(path: Path) -> None:
    from veilmap.matching.plot import PICTURE_SUFFIXES

    if path.suffix.lower() not in PICTURE_SUFFIXES:
        raise BadInput(
            f"--plot writes a {', '.join(PICTURE_SUFFIXES[:-1])} or {PICTURE_SUFFIXES[-1]} file, got {str(path)!r}."
        )


def _must_be_new(path: Path | None) -> None:
    if path is None:
        return
    if path.exists():
        raise BadInput(f"{path} already exists. Choose another name.")
    must_have_folder(path)


@contextmanager
def _opened_for_writing(path: Path | None) -> Iterator[BinaryIO | None]:
    """Yield a new file that only its owner can read, or None if no path is given."""
    if path is None:
        yield None
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE_OWNER_ONLY), "wb")
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.") from None
    try:
        yield file
    finally:
        try:
            file.close()
        except OSError as error:
            raise BadInput(f"Cannot write {path}: {error.strerror}.") from None


def _write_rows(path: Path | None, header: list[str], rows: Ints | None) -> None:
    if path is None or rows is None:
        return
    from veilmap.files.atomic_writes import write_atomically

    lines = [",".join(header), *(",".join(map(str, row)) for row in rows.tolist())]
    write_atomically(path, ("\n".join(lines) + "\n").encode(), overwrite=False, mode=MODE_OWNER_ONLY)
