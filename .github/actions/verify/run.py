"""Runs `kvlift check` and `kvlift verify` for a workflow: the step of action.yml.

Reads the inputs of the action from the environment (KVLIFT_MODELS, KVLIFT_PAIRS, KVLIFT_TARGET,
KVLIFT_ACCEPT, KVLIFT_PLAN, KVLIFT_RESULTS), writes documents into the folder of results, prints
annotations, and appends to the files that GitHub names in GITHUB_OUTPUT and GITHUB_STEP_SUMMARY.
Exits with 0 if every model is without errors and every pair is taken for equal, and otherwise with
the code of kvlift that is worst: 1 findings or different, 4 inconclusive, any other code first.
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


def models_of(lines):
    """Returns the files that the lines name, patterns expanded, each once and in their order."""
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        names = sorted(glob.glob(line, recursive=True)) if glob.has_magic(line) else [line]
        if not names:
            raise SystemExit(f"kvlift: no model matches {line}")
        found += [name for name in names if name not in found]
    return found


def pairs_of(lines):
    """Returns the pairs of a source and a converted model."""
    pairs = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        words = shlex.split(line)
        if len(words) != 2:
            raise SystemExit(f"kvlift: a pair is two paths, found {line}")
        pairs.append(tuple(words))
    return pairs


def run(command, *args):
    """Runs a command of kvlift with its output in the log, and returns (outcome, exit code)."""
    words = [os.environ.get("KVLIFT", "kvlift"), command, *args]
    print("$ " + shlex.join(words), flush=True)
    code = subprocess.run(words, check=False).returncode
    return OUTCOMES[command].get(code, "failed"), code


def saved(results, name, formats):
    """Returns the flags that make kvlift write a document in each format."""
    flags = []
    for form, ending in formats.items():
        flags += ["--save", f"{form}={results / (name + ending)}"]
    return flags


def append(variable, text):
    """Appends to the file that GitHub names; does nothing outside of a workflow."""
    if os.environ.get(variable):
        with open(os.environ[variable], "a", encoding="utf-8") as file:
            file.write(text)


def main():
    given = {name: os.environ.get("KVLIFT_" + name, "") for name in
             ("MODELS", "PAIRS", "TARGET", "ACCEPT", "PLAN", "RESULTS")}
    models, pairs = models_of(given["MODELS"]), pairs_of(given["PAIRS"])
    if not models and not pairs:
        raise SystemExit("kvlift: neither models nor pairs are given")
    results = Path(given["RESULTS"] or "kvlift-results")
    results.mkdir(parents=True, exist_ok=True)
    documents = {"sarif": ".sarif", "junit": ".junit.xml"}
    done = []  # (what, outcome, exit code)
    if models:
        done.append((f"{len(models)} models checked", *run(
            "check", *models, "--target", given["TARGET"] or "spec", "--format", "github",
            *saved(results, "check", documents))))
    for number, (before, after) in enumerate(pairs, start=1):
        done.append((f"{after} against {before}", *run(
            "verify", before, after, "--accept", given["ACCEPT"] or "proved",
            "--plan", given["PLAN"] or "quick", "--format", "github",
            *saved(results, f"verify-{number}", documents | {"json": ".json", "html": ".html"}))))
    worst = max((outcome for _, outcome, _ in done), key=ORDER.index)
    append("GITHUB_OUTPUT", f"results={results}\nverdict={worst}\n")
    rows = [f"| {json.dumps(what)[1:-1].replace('|', chr(92) + '|')} | {outcome} |\n"
            for what, outcome, _ in done]
    append("GITHUB_STEP_SUMMARY", "| kvlift | outcome |\n| --- | --- |\n" + "".join(rows))
    return next(code for _, outcome, code in done if outcome == worst)


if __name__ == "__main__":
    sys.exit(main())
