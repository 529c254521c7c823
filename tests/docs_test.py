"""The shell blocks of the pages of docs/ that have some, run as they are written.

In a ```console block a line "$ COMMAND" is run by bash (its continuation lines start with "> "), and
the lines behind it are what it prints; a line "..." stands for any lines. The blocks of a page run
in order in one folder. `models/` there is testdata/models, `model.onnx` one of them, `kvlift` the
tool, `python3` has ONNX Runtime and the part of the package that is Python. In the README one number is as good as another. KVLIFT_UPDATE_DOCS=1 writes what was printed into the page. Environment: KVLIFT, the tool;
KVLIFT_ROOT, the repository.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

KVLIFT = os.environ["KVLIFT"]
ROOT = os.environ["KVLIFT_ROOT"]
UPDATE = os.environ.get("KVLIFT_UPDATE_DOCS") == "1"
PAGES = ("README.md", "docs/tutorial.md", "docs/cookbook.md", "docs/adding-an-idiom.md",
         "docs/fleet.md", "docs/replay.md", "docs/lower.md", "docs/freeze.md", "docs/is-it-safe.md",
         "docs/runtimes.md", "docs/reduce.md", "docs/github.md")


def parts_of(text):
    """Splits a page: ("text", lines) and ("run", command lines, output lines), in order."""
    parts, inside, shown = [], False, None
    for line in text.splitlines():
        if not inside:
            parts.append(("text", [line]))
            inside = line == "```console"
        elif line == "```":
            inside, shown = False, None
            parts.append(("text", [line]))
        elif line.startswith("$ "):
            shown = []
            parts.append(("run", [line], shown))
        elif line.startswith("> ") and shown == []:
            parts[-1][1].append(line)
        elif shown is None:
            raise ValueError(f"output without a command: {line}")
        else:
            shown.append(line)
    return parts


def meets(want, got):
    """`got` is `want`, whose lines "..." stand for any."""
    if not want:
        return not got
    if want[0] == "...":
        return any(meets(want[1:], got[k:]) for k in range(len(got) + 1))
    return bool(got) and want[0] == got[0] and meets(want[1:], got[1:])


def plain(lines, page):
    """Lines as they are compared. Column widths follow numbers in the README, too."""
    lines = [line.rstrip() for line in lines]
    if page != "README.md":
        return lines
    return [" ".join(re.sub(r"\d+", "0", line).split()) for line in lines]


def fill(want, got):
    """What an update writes: lines between the ones that "..." leaves out."""
    if "..." not in want:
        return got
    first, last = want.index("..."), len(want) - 1 - want[::-1].index("...")
    return got[:first] + ["..."] + got[len(got) - (len(want) - 1 - last):]


class Shell:
    def __init__(self, folder):
        self.folder = folder
        bin_folder = os.path.join(folder, ".bin")
        os.mkdir(bin_folder)
        os.symlink(KVLIFT, os.path.join(bin_folder, "kvlift"))
        python = os.path.join(bin_folder, "python3")
        with open(python, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        os.chmod(python, 0o755)
        os.symlink(os.path.join(ROOT, "testdata", "models"), os.path.join(folder, "models"))
        os.symlink(os.path.join(ROOT, "testdata", "models", "llama_optimum", "model.onnx"),
                   os.path.join(folder, "model.onnx"))
        self.environment = {
            "PATH": os.pathsep.join([bin_folder, "/usr/bin", "/bin"]),
            "HOME": folder, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.path.join(ROOT, "tools", "python")}

    def run(self, lines):
        command = "\n".join(line[2:] for line in lines)
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120)
        return [line.rstrip() for line in done.stdout.splitlines()]


class DocsTest(unittest.TestCase):
    maxDiff = None

    def check(self, page):
        path = os.path.join(ROOT, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        written, commands = [], 0
        with tempfile.TemporaryDirectory() as folder:
            shell = Shell(folder)
            for part in parts_of(text):
                written += part[1]
                if part[0] == "text":
                    continue
                commands += 1
                got = shell.run(part[1])
                if UPDATE:
                    written += fill(part[2], got)
                elif not meets(*(plain(lines, page) for lines in (part[2], got))):
                    self.assertEqual("\n".join(part[2]), "\n".join(got), part[1][0])
        self.assertGreater(commands, 1, page)
        if UPDATE:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(written) + "\n")

    def test_pages(self):
        for page in PAGES:
            with self.subTest(page):
                self.check(page)

    def test_the_check_bites(self):
        self.assertTrue(meets(["a", "...", "c"], ["a", "b", "b", "c"]))
        self.assertFalse(meets(["a", "...", "c"], ["a", "b"]))
        self.assertFalse(meets(["a"], ["a", "b"]))
        self.assertEqual(fill(["a", "...", "c"], ["x", "y", "z", "w"]), ["x", "...", "w"])
        with self.assertRaises(ValueError):
            parts_of("```console\nprinted\n```")


if __name__ == "__main__":
    unittest.main()
