"""veilmap match: two parties' records, or one party's against another that runs elsewhere."""

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
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from veilmap.cli._options import FormatOption, HeightOption, must_have_folder
from veilmap.cli._output import Format, print_csv, print_table, progress, say
from veilmap.errors import BadInput, LedgerWarning

if TYPE_CHECKING:
    from veilmap.arrays import Ints
    from veilmap.matching.agreement import Agreement
    from veilmap.matching.blocks import Side
    from veilmap.matching.rule import Rule
    from veilmap.method.method import Method
    from veilmap.releases.release import Release

EXAMPLE = (
    'Example: veilmap match clinic.csv register.csv --on age=2,hours=5 --domain "age=17:90,hours=1:99" --epsilon 1'
)
SECONDS_TO_MEET = 60
OWNER_ONLY = 0o600  # the mode of all files written here: they concern records
NO_GAIN = "Blocking does not pay here: dummies cost more than it saves. Take a larger epsilon or smaller trees."


def match(
    records: Annotated[
        list[Path] | None,
        typer.Argument(metavar="LEFT RIGHT", help="Files of records: two, or your own with --listen or --connect."),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Thresholds: name=value for each axis of the domain, with commas.")
    ] = None,
    epsilon: Annotated[str | None, typer.Option("--epsilon", help="The privacy budget of each party.")] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", help="The public box of both: name=low:high for each axis, with commas.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="How to decompose.")] = "kd-standard",
    height: HeightOption = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", help="Records that each party has at most, as agreed; the height suits so many."),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="NAME=VALUE", help="Round an axis to whole steps of this size."),
    ] = None,
    lost: Annotated[
        str, typer.Option("--lost", help="The part of its records that a party may leave out for want of slots.")
    ] = "0.01",
    secure: Annotated[
        bool, typer.Option("--secure/--no-secure", help="Compare candidates by the secure protocol, or count the work.")
    ] = True,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Be the left party, and wait for the right one.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option("--connect", metavar="HOST:PORT", help="Be the right party, and go to the left one.")
    ] = None,
    made: Annotated[
        Path | None,
        typer.Option("--release", help="Your own release: made and kept there once, used again when it exists."),
    ] = None,
    transcript: Annotated[
        Path | None, typer.Option("--transcript", help="Keep everything that crosses between the parties.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file for the matches.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="A picture of what is saved: .png, .svg or .pdf.")] = None,
    study: Annotated[
        bool, typer.Option("--study", help="Figure 7(b) of the paper into the folder -o, on people made up for it.")
    ] = False,
    data: Annotated[Path | None, typer.Option("--data", help="The Adult file, for --study.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller --study.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Which records of two parties match: blocked privately, compared on ciphertexts.

    Records match if along no axis they are farther apart than --on allows. Each party publishes a private
    decomposition of its own file; only boxes near each other are compared, by a protocol that tells the left
    party which pairs match and neither of them anything else. Rows are numbered from 0.

    Two parties on two machines: the left one runs with its own file and --listen, the right one with its own and
    --connect. Nothing crosses but what both typed, the two releases, and ciphertexts. Each refuses a release that is
    larger than the agreed --rows allow (10,000 if not given). A release that has crossed is spent: keep it with
    --release, so that a second try costs no more.
    """
    files = records or []
    if study:
        if files or listen or connect:
            raise BadInput("--study brings its own records: leave files and --listen or --connect out.")
        _study(out or Path("match-study"), data, quick)
        return
    if data or quick:
        raise BadInput("--data and --quick go with --study.")
    apart = bool(listen or connect)
    _must_be_complete(files, apart, listen and connect, {"--on": on, "--epsilon": epsilon, "--domain": domain})
    assert on is not None and epsilon is not None and domain is not None  # noqa: S101, PT018
    for path in (out, plot, transcript):
        _must_be_new(path)
    places = [path.resolve() for path in (out, plot, transcript, made) if path is not None]
    if len(set(places)) < len(places):
        raise BadInput("What is written goes to different files: give each a name of its own.")
    if plot is not None:
        _must_be_a_picture(plot)
    if transcript is not None and not secure:
        raise BadInput("Without the secure step nothing crosses: leave --transcript or --no-secure out.")
    from veilmap.matching.blocks import leaves_only

    if os.environ.get("VEILMAP_LEDGER"):
        warnings.warn(
            "VEILMAP_LEDGER is set, and a match is not charged there by itself: see 'veilmap ledger charge --help'.",
            LedgerWarning,
            stacklevel=2,
        )
    rule = _rule(on, domain, step, lost)
    chosen = leaves_only(method, height, rule, epsilon, rows)
    if apart:
        _must_fit_two_parties(out, plot, secure, output)
        _match_apart(files[0], rule, epsilon, chosen, rows, made, listen, connect, transcript, out)
    elif made is not None:
        raise BadInput("--release keeps one party's release: it goes with --listen or --connect.")
    else:
        _match_both(files, rule, epsilon, chosen, secure, transcript, out, plot, output)


def _must_fit_two_parties(out: Path | None, plot: Path | None, secure: bool, output: Format) -> None:
    if not secure:
        raise BadInput("--no-secure counts work for two files at hand: leave it out, or give both files.")
    if plot is not None:
        raise BadInput("--plot draws what both files hold: leave it out with --listen and --connect.")
    if output is not Format.TABLE:
        raise BadInput("--format is for the table of two files: leave it out with --listen and --connect.")
    if out is None:
        raise BadInput("Give -o with --listen and --connect: without it, what was found would be lost.")


def _must_be_complete(files: list[Path], apart: bool, both: object, agreed: dict[str, str | None]) -> None:
    if both:
        raise BadInput("One party listens and the other connects: give --listen or --connect.")
    if len(files) != (1 if apart else 2):
        way = "your own file, with --listen or --connect" if apart else "two files, LEFT and RIGHT"
        raise BadInput(f"Give {way}; got {len(files)}.")
    for name, value in agreed.items():
        if value is None:
            raise BadInput(f"Give {name}: it is what the parties agree on. See 'veilmap match --help'.")


def _study(folder: Path, data: Path | None, quick: bool) -> None:
    from veilmap.reproduce.record_matching import run_alone

    with progress("Study") as tell:
        tables, claims = run_alone(folder, data, quick, lambda part, _: tell(part))
    for table in tables:
        say(f"{table.title}:")
        print_table(list(table.header), [list(row) for row in table.rows])
    for claim in claims:
        say(f"{claim.text} {claim.verdict.capitalize()}: {claim.because}")
    say(f"Wrote {folder / 'index.html'}, with tables and pictures beside it.")


def _match_both(
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
    from veilmap.matching.local_match import match_sides
    from veilmap.matching.plot import draw_match
    from veilmap.matching.protocol import compare_both, expected_seconds, measure_speed

    started = time.perf_counter()
    with progress("Blocking") as tell:
        found = match_sides([str(path) for path in files], rule, epsilon, method, tell)
    blocked = time.perf_counter() - started
    met = found.agreement
    facts: dict[str, float | int | str] = {
        "records left": len(found.left.records),
        "records right": len(found.right.records),
        "pairs without blocking": found.every,
        "pairs compared": found.work,
        "reduction ratio": found.reduction_ratio,
        "matches": found.matches,
        "recall": found.recall,
        "precision": found.precision,
        "seconds of blocking": blocked,
    }
    if secure:
        met.must_be_short()
    speed = measure_speed(rule) if secure or find_spec("nacl") else None  # without it there is nothing to measure
    seconds = expected_seconds(met, speed) if speed else 0.0
    if secure:
        typer.echo(f"{met.work:,} comparisons to make, about {seconds / 60:,.1f} minutes.", err=True)
        started = time.perf_counter()
        with progress("Comparing") as tell, _written(transcript) as book:
            pairs = compare_both(found.left, found.right, found.rule, tell, book)
        seconds = time.perf_counter() - started
        _write_rows(out, ["left_row", "right_row"], pairs)
        facts |= {"matches found securely": len(pairs), "secure pairs a second": met.work / seconds}
    else:
        _write_rows(out, ["left_row", "right_row"], found.candidates if out else None)
    if speed:
        facts |= {
            "hours of comparing": seconds / 3600,
            "hours saved by blocking": (found.every / speed[0] - seconds) / 3600,
        }
    _print_facts(facts, output)
    typer.echo("Truth, recall and precision are known because both files are here. Not for publication.", err=True)
    if plot is not None:
        draw_match(found, plot)
    if output is Format.TABLE:
        if found.work >= found.every:
            say(NO_GAIN)
        _say_width(met)
        for path, what in ((out, "matches" if secure else "candidates"), (plot, "picture"), (transcript, "transcript")):
            if path is not None:
                say(f"Wrote the {what} to {path}.")


def _say_width(met: Agreement) -> None:
    try:
        met.must_be_short()
    except BadInput as error:
        say(str(error))


def _match_apart(
    file: Path,
    rule: Rule,
    epsilon: str,
    method: Method,
    rows: int | None,
    made: Path | None,
    listen: str | None,
    connect: str | None,
    transcript: Path | None,
    out: Path | None,
) -> None:
    from veilmap.files.atomic_writes import write_atomically
    from veilmap.matching.blocks import USUAL_ROWS, open_side
    from veilmap.matching.limits import must_fit_rows
    from veilmap.matching.protocol import Wire, answer_all, find_matches, meet, to_bytes

    address = _address(listen or connect or "")
    kept = _kept(made, rule, epsilon)
    with progress("Blocking"):
        side = open_side(str(file), rule, epsilon, method, made=kept, rows=rows or USUAL_ROWS)
        if made is not None and kept is None:  # before anything crosses
            write_atomically(made, to_bytes(side.release), overwrite=False, mode=OWNER_ONLY)
    must_fit_rows(side, rule)
    say(side.release.privacy.statement())
    with _told_when_stopped(made), _met(address, listening=listen is not None) as stream, _written(transcript) as book:
        wire = Wire(stream, book)
        met = meet(wire, side, rule, left=listen is not None)
        wire.wait(met.patience)  # from here on the other party has work to do between messages
        _say_work(met)
        if not listen:
            _say_what_cheating_tells(met)
        with progress("Comparing" if listen else "Answering") as tell:
            if listen:
                found = find_matches(wire, side, met, tell)
                _write_rows(out, ["row", "ticket"], found)
                say(f"{len(found):,} pairs match. A ticket is a slot of the right party, which knows whose it is.")
            else:
                _write_rows(out, ["ticket", "row"], _tickets(side))
                answer_all(wire, side, met, tell)
                say("All comparisons are answered. Only the left party knows which match.")
    say(f"Wrote {out}.")


@contextmanager
def _told_when_stopped(made: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        way = f"--release {made} starts again from it" if made else "and the release is not kept"
        typer.echo(f"veilmap: interrupted. What has crossed is spent; {way}.", err=True)
        raise SystemExit(130) from None  # and no more is said


def _kept(path: Path | None, rule: Rule, epsilon: str) -> Release | None:
    """This party's release of an earlier try."""
    if path is None or not path.exists():
        if path is not None:
            _must_be_new(path)
        return None
    from veilmap.releases.release import load
    from veilmap.validation import exact_epsilon

    found = load(path)
    if not found.privacy.private:
        raise BadInput(f"The release {path} is not private, and must not cross: give another file.")
    if (found.domain, found.privacy.epsilon) != (rule.domain, exact_epsilon(epsilon)):
        raise BadInput(f"The release {path} has another domain or epsilon than you give: take its own.")
    say(f"Using the release {path} again: it costs nothing more.")
    return found


def _say_work(met: Agreement) -> None:
    say(f"{met.work:,} comparisons, in {len(met.pairs):,} pairs of boxes; about {met.expected:,} without blocking.")
    if met.work >= met.expected:
        say(NO_GAIN)


def _say_what_cheating_tells(met: Agreement) -> None:
    say(
        f"If the left party cheats, it can choose {met.points:,} points freely and learn which of your records lie "
        f"within the thresholds of each: {met.near_one:,} of them at most for any one record. "
        f"So many points cover at most {met.reach:.1%} of the domain."
    )


def _tickets(side: Side) -> Ints:
    import numpy as np

    taken = np.flatnonzero(side.seats >= 0)
    return np.stack([taken, side.seats[taken]], axis=1)


def _print_facts(facts: dict[str, float | int | str], output: Format) -> None:
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

    box = Domain.parse(domain)
    limits = _named(on.split(","), box.names, "A threshold", "--on")
    sizes = _named(steps or [], box.names, "A step", "--step")
    if missing := [name for name in box.names if name not in limits]:
        raise BadInput(f"Every axis of the domain needs a threshold, and {missing[0]} has none: add it to --on.")
    return Rule.of(box, [limits[name] for name in box.names], [sizes.get(name) for name in box.names], lost)


def _named(texts: list[str], names: tuple[str, ...], what: str, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value) or name in found:
            raise BadInput(f"{what} is name=value, each name once; got {text!r} in {option}.")
        if name not in names:
            raise BadInput(f"{name!r} in {option} is no axis of the domain: that has {', '.join(names)}.")
        found[name] = value
    return found


@contextmanager
def _met(address: tuple[str, int], *, listening: bool) -> Iterator[socket.socket]:
    """A connection with the other party."""
    place = f"{address[0]}:{address[1]}"
    if listening:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            with socket.create_server(address, family=family) as door:
                say(f"Waiting for the right party at {place}.")
                stream, _ = door.accept()
        except OSError as error:
            raise BadInput(f"Cannot listen at {place}: {_reason(error)}. Choose another host or port.") from None
    else:
        stream = _reach(address, place)
    with stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.settimeout(SECONDS_TO_MEET)
        yield stream


def _reach(address: tuple[str, int], place: str) -> socket.socket:
    """The left party may need some time to come to the door."""
    late, told = time.monotonic() + SECONDS_TO_MEET, False
    while True:
        try:
            return socket.create_connection(address, SECONDS_TO_MEET)
        except OSError as error:
            if time.monotonic() > late or not isinstance(error, ConnectionRefusedError | TimeoutError):
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
    if isinstance(error, socket.gaierror) or (error.errno or 0) <= 0:  # a server's name is not told apart
        return "the name is not known"
    return os.strerror(error.errno or 0).lower()


def _address(place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise BadInput(f"A place is HOST:PORT, like 127.0.0.1:7700; got {place!r}.")
    return host.strip("[]"), int(port)


def _must_be_a_picture(path: Path) -> None:
    from veilmap.matching.plot import KINDS

    if path.suffix.lower() not in KINDS:
        raise BadInput(f"A picture is a {', '.join(KINDS[:-1])} or {KINDS[-1]} file, got {str(path)!r}.")


def _must_be_new(path: Path | None) -> None:
    if path is None:
        return
    if path.exists():
        raise BadInput(f"{path} exists already: choose another name.")
    must_have_folder(path)


@contextmanager
def _written(path: Path | None) -> Iterator[BinaryIO | None]:
    if path is None:
        yield None
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb")
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
    write_atomically(path, ("\n".join(lines) + "\n").encode(), overwrite=False, mode=OWNER_ONLY)
