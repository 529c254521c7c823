"""Runs a record of `kvlift record` in ONNX Runtime, and says whether the converted model computes
there what its source has to compute.

    python -m kvlift.replay DIR --provider CUDA --device 0

Each cache that the manifest calls safe is one buffer, bound as past and as present. Needs numpy
and onnxruntime; with onnx installed, a node that is computed wrongly is named. docs/replay.md says
more.

Exit codes: 0 equal; 1 different; 2 usage, or a provider that is not there; 3 a record or model that
cannot be read; 4 inconclusive, or the runtime refuses the model; 5 a file cannot be written.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from typing import Any, Iterator, List, Optional

from ._replay.errors import UNWRITABLE, RecordError, ReplayError, UsageError


def _pair(word: str) -> "tuple[str, str]":
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"'{word}' is not KEY=VALUE")
    return key, value


def _count(word: str) -> int:
    try:
        number = int(word)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{word}' is not a number of 0 or more")
    return number


def _threads(word: str) -> int:
    number = _count(word)
    if number > 1024:
        raise argparse.ArgumentTypeError(f"{number} threads are too many: 1024 at most")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvlift.replay", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", metavar="DIR", help="the folder that `kvlift record` wrote")
    parser.add_argument("--provider", default="CPU",
                        help="execution provider: CPU, CUDA, TensorRT, ... (CPU)")
    parser.add_argument("--device", type=_count, default=0, help="number of the device")
    parser.add_argument("--provider-option", metavar="KEY=VALUE", type=_pair, action="append",
                        default=[], help="an option of the provider; may be repeated")
    parser.add_argument("--plan", metavar="GLOB", action="append", default=[],
                        help="only plans with such names; may be repeated")
    parser.add_argument("--rounds", type=_count, default=20,
                        help="how often steps are timed; 0: not at all (20)")
    parser.add_argument("--threads", type=_threads, default=0,
                        help="of the runtime, up to 1024; 0: its choice")
    parser.add_argument("--no-optimize", action="store_true",
                        help="turn the runtime's optimisations of the graph off")
    parser.add_argument("--before", metavar="FILE", help="the source, where it has moved")
    parser.add_argument("--after", metavar="FILE", help="the converted model, where it has moved")
    parser.add_argument("--json", metavar="FILE", help="write a document; - for stdout")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML; - for stdout")
    parser.add_argument("--force", action="store_true",
                        help="replace files that are no documents of an earlier replay")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return parser


def _modules(ort: Any) -> Any:
    """Returns the module onnxruntime, after looking for numpy."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise UsageError("needs numpy: pip install numpy") from None
    if ort is not None:
        return ort
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError(f"needs onnxruntime (pip install onnxruntime): {error}") from None
    return onnxruntime


def _say(words: str) -> None:
    """Writes one line to stderr, with control characters escaped."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in " ".join(words.split()))
    print(f"kvlift.replay: {line}", file=sys.stderr)


class _Unwritable(ReplayError):
    code = UNWRITABLE


# How the documents of a replay begin, without blanks; a later one may replace them.
_DOCUMENTS = (b'{"schema":"kvlift/replay/', b'<testsuitesname="kvlift"')


def _is_document(path: str) -> bool:
    """Says whether a file is empty, or a document that a replay wrote."""
    try:
        with open(path, "rb") as file:
            head = file.read(200)
    except OSError:
        return False
    words = b"".join(head.split())
    if words.startswith(b"<?xml"):
        words = words.partition(b"?>")[2]
    return not head or words.startswith(_DOCUMENTS)


def _check_outputs(args: argparse.Namespace, record: Any) -> None:
    """Refuses files that are read, one file for two documents, and what is no regular file. Other
    files than the documents of an earlier replay are replaced with --force only."""
    read = [record.before.path, record.after.path]
    for folder, _, names in os.walk(args.record):
        read += [os.path.join(folder, name) for name in names]
    outputs = [path for path in (args.json, args.junit) if path and path != "-"]
    for path in outputs:
        if os.path.exists(path) and not os.path.isfile(path):
            raise _Unwritable(f"{path}: is no regular file; nothing written")
        if any(os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)
               for other in read):
            raise _Unwritable(f"{path}: is an input; nothing written")
        if os.path.exists(path) and not args.force and not _is_document(path):
            raise _Unwritable(f"{path}: exists and is no document of a replay; nothing written "
                              "(--force replaces it)")
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise _Unwritable(f"{outputs[0]}: is asked for twice; nothing written")


def _write(path: str, words: str) -> None:
    """Writes a file as a whole or not at all."""
    if path == "-":
        sys.stdout.write(words)
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".kvlift-replay-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(words)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise _Unwritable(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _damage_named(record: str) -> Iterator[None]:
    """Says that a record is damaged where its values do not fit what is done with them."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
            ValueError) as error:
        path = os.path.join(record, "record.json")
        raise RecordError(f"{path}: is damaged: {type(error).__name__}: {error}") from None


def _run(args: argparse.Namespace, ort: Any) -> int:
    if args.json == "-" and args.junit == "-":
        raise UsageError("--json and --junit: only one document goes to stdout")
    ort = _modules(ort)
    from ._replay import reports, timing
    from ._replay.errors import Refused
    from ._replay.record import Record
    from ._replay.runtime import Runtime, Settings
    from ._replay.session import Replay

    settings = Settings(args.provider, args.device, dict(args.provider_option), args.threads,
                        not args.no_optimize)
    runtime = Runtime(ort, settings)
    with _damage_named(args.record):
        record = Record(args.record, args.before, args.after)
        _check_outputs(args, record)
        record.check()
        replay = Replay(runtime, record)
        outcome = replay.run(args.plan)
    lengths: List[timing.Length] = []
    in_place: Optional[timing.InPlace] = None
    if args.rounds and outcome.verdict == "equal":
        why = ""
        try:
            in_place = timing.in_place(runtime, replay.after, record, args.rounds)
            lengths, why = timing.lengths(runtime, replay.after, record, args.rounds)
        except Refused as error:
            _say(f"no times: {error}")
        if why:
            _say(f"no times of the source: {why}")
    found = (record, runtime, outcome, lengths, in_place)
    if args.json:
        _write(args.json, json.dumps(reports.document(*found), indent=2) + "\n")
    if args.junit:
        _write(args.junit, reports.junit(record, runtime, outcome))
    if not args.quiet and "-" not in (args.json, args.junit):
        sys.stdout.write(reports.text(*found))
    return reports.CODES[outcome.verdict]


def main(arguments: Optional[List[str]] = None, ort: Any = None) -> int:
    """Runs the program and returns its exit code. `ort` replaces the module onnxruntime."""
    args = _parser().parse_args(arguments)
    try:
        return _run(args, ort)
    except ReplayError as error:
        _say(str(error))
        return error.code


if __name__ == "__main__":
    sys.exit(main())
