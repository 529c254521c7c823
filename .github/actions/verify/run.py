"""Runs `kvlift check` and `kvlift verify` for a workflow: the step of action.yml.

Reads the inputs of the action from the environment (KVLIFT_MODELS, KVLIFT_PAIRS, KVLIFT_TARGET,
KVLIFT_ACCEPT, KVLIFT_PLAN, KVLIFT_RESULTS), writes documents into the folder of results, prints
annotations, and appends to the files that GitHub names in GITHUB_OUTPUT and GITHUB_STEP_SUMMARY.
Exits with 0 if every model is without errors and every pair is taken for equal, and otherwise with
the code of kvlift that is worst: 1 findings or different, 4 inconclusive, any other code first. A
verdict is written in every case.
"""

import glob
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

# The outcomes by exit code of kvlift, from best to worst. Other codes are worse: kvlift failed.
OUTCOMES = {"check": {0: "equal", 1: "findings"},
            "verify": {0: "equal", 4: "inconclusive", 1: "different"}}
ORDER = ["equal", "inconclusive", "findings", "different", "failed"]
# Exit codes as those of kvlift.
USAGE, UNREADABLE, UNWRITABLE, INTERNAL = 2, 3, 5, 70


class Failure(Exception):
    """Nothing can be checked: an exit code and what is wrong."""


def shown(text):
    """Returns text for the log, in which no name can start a line or a command of GitHub."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def operand(path):
    """Returns a path that is neither an option of kvlift nor its stdin."""
    return "./" + path if path.startswith("-") else path


def models_of(lines):
    """Returns the files that the lines name, each once and in their order.

    A line that is the name of a file means that file; any other one with *, ? or [ is a pattern.
    """
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        names = [line]
        if glob.has_magic(line) and not os.path.lexists(line):
            names = [name for name in sorted(glob.glob(line, recursive=True))
                     if not os.path.isdir(name)]
        if not names:
            raise Failure(UNREADABLE, f"no model matches {line}")
        found += [name for name in map(operand, names) if name not in found]
    return found


def pairs_of(lines):
    """Returns the pairs of a source and a converted model."""
    pairs = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise Failure(USAGE, f"a pair is two paths, found {line}: {error}") from error
        if len(words) != 2:
            raise Failure(USAGE, f"a pair is two paths, found {line}")
        pairs.append(tuple(map(operand, words)))
    return pairs


def folder_of(name):
    """Returns the folder of results, and makes it."""
    if not name.isprintable():
        raise Failure(USAGE, f"the name of the folder of results has control characters: {name}")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(UNWRITABLE, f"the folder of results cannot be made: {error}") from error
    return Path(name)


def run(command, *args):
    """Runs a command of kvlift with its output in the log, and returns (outcome, exit code)."""
    words = [os.environ.get("KVLIFT") or "kvlift", command, *args]
    print("$ " + shown(shlex.join(words)), flush=True)
    try:
        code = subprocess.run(words, check=False).returncode
    except (OSError, ValueError) as error:
        raise Failure(INTERNAL, f"{words[0]} cannot be run: {error}") from error
    code = code if code >= 0 else 128 - code
    return OUTCOMES[command].get(code, "failed"), code


def saved(results, name, formats):
    """Returns the flags that make kvlift write a document in each format."""
    flags = []
    for form, ending in formats.items():
        flags += ["--save", f"{form}={results / (name + ending)}"]
    return [*flags, "--force"]  # those of an earlier run in the same folder are replaced


def append(variable, text):
    """Appends to the file that GitHub names; does nothing outside of a workflow."""
    if os.environ.get(variable):
        with open(os.environ[variable], "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)


def work(results):
    """Checks and verifies. Returns a list of (what, outcome, exit code)."""
    given = {name: os.environ.get("KVLIFT_" + name, "") for name in
             ("MODELS", "PAIRS", "TARGET", "ACCEPT", "PLAN")}
    models, pairs = models_of(given["MODELS"]), pairs_of(given["PAIRS"])
    if not models and not pairs:
        raise Failure(USAGE, "neither models nor pairs are given")
    results = folder_of(results)
    documents = {"sarif": ".sarif", "junit": ".junit.xml"}
    done = []
    if models:
        done.append((f"{len(models)} models checked", *run(
            "check", *models, f"--target={given['TARGET'] or 'spec'}", "--format", "github",
            *saved(results, "check", documents))))
    for number, (before, after) in enumerate(pairs, start=1):
        done.append((f"{after} against {before}", *run(
            "verify", before, after, f"--accept={given['ACCEPT'] or 'proved'}",
            f"--plan={given['PLAN'] or 'quick'}", "--format", "github",
            *saved(results, f"verify-{number}", documents | {"json": ".json", "html": ".html"}))))
    return done


def main():
    results = os.environ.get("KVLIFT_RESULTS") or "kvlift-results"
    try:
        done = work(results)
    except Failure as failure:
        code, text = failure.args
        print("kvlift: " + shown(text), file=sys.stderr, flush=True)
        done = [(text, "failed", code)]
    worst = max((outcome for _, outcome, _ in done), key=ORDER.index)
    append("GITHUB_OUTPUT", f"results={shown(results)}\nverdict={worst}\n")
    rows = [f"| {json.dumps(what)[1:-1].replace('|', chr(92) + '|')} | {outcome} |\n"
            for what, outcome, _ in done]
    append("GITHUB_STEP_SUMMARY", "| kvlift | outcome |\n| --- | --- |\n" + "".join(rows))
    return next(code for _, outcome, code in done if outcome == worst)


if __name__ == "__main__":
    sys.exit(main())
