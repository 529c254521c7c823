"""The sources of text cases: testdata/rewrites/NAME.onnxtxt, as tests/support/case_file.h says.

Environment: KVLIFT_ROOT, the repository. Run with the name of a case, it prints the case's source.
"""
import os
import re
import sys

FOLDER = os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "rewrites")


def sections_of_case(name):
    """The sections of a case by their names."""
    with open(os.path.join(FOLDER, name + ".onnxtxt"), encoding="utf-8") as file:
        parts = ("\n" + file.read()).split("\n# ---- ")[1:]
    pieces = [part.partition("\n") for part in parts]
    return {title.strip(): body.rstrip("\n") for title, _, body in pieces}


def apply_edits(text, edits):
    """The text with the hunks applied; every hunk must have exactly one place."""
    lines = text.split("\n")
    changes = []
    for hunk in re.split("\n\n+", edits.strip("\n")):
        rows = hunk.split("\n")
        before = [row[1:] for row in rows if row[0] in " -"]
        places = [k for k in range(len(lines)) if lines[k:k + len(before)] == before]
        if len(places) != 1:
            raise ValueError(f"{len(places)} places for the edit {rows[0]}")
        changes.append((places[0], len(before), [row[1:] for row in rows if row[0] in " +"]))
    for place, count, after in reversed(changes):  # the places are those of the base
        lines[place:place + count] = after
    return "\n".join(lines)


def text_of_case(name):
    """The source of a case as ONNX text: its own, or that of its base with its edits."""
    sections = sections_of_case(name)
    keys = dict(line.split(":", 1) for line in sections["case"].split("\n") if line)
    if "base" not in keys:
        return sections["before"] + "\n"
    base = sections_of_case(keys["base"].strip())["before"]
    return (apply_edits(base, sections["edits"]) if "edits" in sections else base) + "\n"


if __name__ == "__main__":
    print(text_of_case(sys.argv[1]), end="")
