"""What the pages of docs/ say of files, codes and options is so. Environment: KVLIFT, the tool;
KVLIFT_ROOT, the repository.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CASES = ROOT / "testdata" / "rewrites"
# Files of examples, which the reader of the page adds.
TO_BE_WRITTEN = {"adding-a-cache-kind.md": ("growing_front.cc", "oldest_first.h", "oldest_first.cc")}
RULES = {path.stem for path in (ROOT / "rewrites").glob("*.cc")}


def help_of(*args):
    return subprocess.run([KVLIFT, *args], capture_output=True, text=True, check=True).stdout


class DocsFactsTest(unittest.TestCase):
    def each(self, pattern, pages=None):
        for page in pages or PAGES:
            for found in re.findall(pattern, page.read_text(encoding="utf-8")):
                yield page, found

    def test_links_lead_somewhere(self):
        links = list(self.each(r"\]\(([^)#\s]+)\)"))
        self.assertGreater(len(links), 15)
        for page, link in links:
            self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")

    def test_files_that_are_named_are_there(self):
        for page, name in self.each(r"`((?:lib|tests|tools|docs|rewrites|testdata)/[\w./-]+)`"):
            if re.search(r"[A-Z]{4}", name):  # stands for any name
                continue
            path = ROOT / name
            self.assertTrue(path.exists() or path.with_suffix(".h").exists(), f"{page.name}: {name}")

    def test_sources_that_are_named_by_their_ends_are_there(self):
        """`score.cc`, or `attention/score.cc`, where a page has named the folder."""
        there = [f"/{path.relative_to(ROOT).as_posix()}"
                 for folder in ("lib", "rewrites", "tests", "tools")
                 for path in (ROOT / folder).rglob("*.*")]
        named = 0
        for page, name in self.each(r"`([\w./-]+\.(?:h|cc|cpp))`"):
            if name in TO_BE_WRITTEN.get(page.name, ()) or name.startswith("sys/"):
                continue
            if re.search(r"[A-Z]{4}", name):  # stands for any name
                continue
            named += 1
            self.assertTrue(any(path.endswith("/" + name) for path in there), f"{page.name}: {name}")
        self.assertGreater(named, 200)

    def test_an_elementwise_operator_is_in_three_files(self):
        page = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
        sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
                   for folder in ("lib", "rewrites", "tools")
                   for path in (ROOT / folder).rglob("*.cc")}
        lines = re.findall(r"^ +(.*\"Softplus\".*)$", page, re.M)
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertTrue(any(line in text for text in sources.values()), line)
        for operator in ("Softplus", "Mish", "Elu", "Selu", "Celu", "HardSwish",
                         "HardSigmoid", "LeakyRelu", "Shrink", "ThresholdedRelu", "Swish", "Asinh"):
            named = sorted(name for name, text in sources.items() if f'"{operator}"' in text)
            self.assertLessEqual(len(named), 3, f"{operator}: {named}")

    def test_codes_exist(self):
        known = set(re.findall(r'"(KV\d{3})"', (ROOT / "lib/base/findings.cc").read_text()))
        codes = list(self.each(r"\bKV\d{3}\b"))
        self.assertGreater(len(codes), 20)
        for page, code in codes:
            self.assertIn(code, known, page.name)

    def test_options_exist(self):
        commands = re.findall(r"^  ([a-z-]+)", help_of("--help").split("Subcommands:")[1], re.M)
        known = set(re.findall(r"--[a-z][a-z-]+", help_of("--help")))
        for command in commands:
            known.update(re.findall(r"--[a-z][a-z-]+", help_of(command, "--help-all")))
        # A line that types kvlift; what it pipes into is another program's business.
        lines = list(self.each(r"(?m)^(?:\$ )?kvlift ([^|\n]*)"))
        self.assertGreater(len(lines), 20)
        for page, line in lines:
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", line):
                self.assertIn(option, known, f"{page.name}: {line}")

    def test_commands_of_the_readme(self):
        """Those of its table, behind the conversion that its example shows."""
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        table = text.split("| then | |", 1)[1].split("\n\n", 1)[0]
        lines = [line for line in re.findall(r"`(kvlift [^`]*)`", table) if "CODE" not in line]
        self.assertGreater(len(lines), 4)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "testdata/models/llama_optimum/model.onnx", folder)
            (pathlib.Path(folder) / "kvlift").symlink_to(KVLIFT)
            for line in ("kvlift convert model.onnx -o out.onnx", *lines):
                done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True,
                                      text=True, check=False,
                                      env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
                differ = line.startswith("kvlift diff")
                self.assertEqual(done.returncode, int(differ), line + done.stderr)

    def test_cases_of_patterns_end_as_they_are_said_to(self):
        page = ROOT / "docs" / "patterns.md"
        named = 0
        for line in page.read_text(encoding="utf-8").splitlines():
            for case in re.findall(r"`(\w+)`", line):
                if not any(case.startswith(rule + "_") for rule in RULES):
                    continue
                named += 1
                path = CASES / f"{case}.onnxtxt"
                self.assertTrue(path.is_file(), case)
                code = re.search(r"^# ---- refuse\n(?:\w+:.*\n)*?code: (KV\d+)",
                                 path.read_text(encoding="utf-8"), re.M)
                codes = re.findall(r"KV\d{3}", line)
                if codes:
                    self.assertIsNotNone(code, case)
                    self.assertIn(code.group(1), codes, case)
                else:
                    self.assertIsNone(code, case)
        self.assertGreater(named, 50)

    def test_every_folder_is_in_the_architecture(self):
        text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
        rooms = re.findall(r"^([\w/]+):", (ROOT / "lib" / "LAYERS.txt").read_text(), re.M)
        self.assertGreater(len(rooms), 40)
        for room in rooms:
            layer, _, name = room.partition("/")
            folder = "rewrites" if layer == "rewrites" else f"lib/{layer}"
            self.assertIn(f"| `{folder}` |", text)
            if name:
                section = text[text.index(f"\n### lib/{layer}\n"):]
                self.assertIn(f"\n| `{name}` |", section[:section.index("\n### ", 5)], room)

    def test_rules_are_in_the_page_that_lists_them(self):
        text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
        for rule in RULES:
            self.assertIn(f"`{rule}`", text)


if __name__ == "__main__":
    unittest.main()
