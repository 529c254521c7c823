"""Completions and the manual page, in the shells and the formatter that read them.

A shell that is not there is told as skipped. Environment: KVLIFT, the tool.
"""
import os
import shutil
import subprocess
import tempfile
import unittest

KVLIFT = os.environ["KVLIFT"]


def tool(*args):
    return subprocess.run([KVLIFT, *args], capture_output=True, text=True, timeout=60)


def script(shell, folder):
    done = tool("completion", shell)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    path = os.path.join(folder, {"bash": "kvlift", "zsh": "_kvlift", "fish": "kvlift.fish"}[shell])
    with open(path, "w", encoding="utf-8") as file:
        file.write(done.stdout)
    return path


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


class ShellFilesTest(unittest.TestCase):
    def needs(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"no {program}")

    def bash(self, path, *words):
        line = " ".join(f"'{word}'" for word in ("kvlift", *words))
        done = run("bash", "-c", f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
                                 "_kvlift; printf '%s\\n' \"${COMPREPLY[@]}\"")
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.needs("bash")
        with tempfile.TemporaryDirectory() as folder:
            path = script("bash", folder)
            self.assertEqual(self.bash(path, "conv"), ["convert"])
            self.assertIn("--max-seq-len", self.bash(path, "convert", "--m"))
            self.assertEqual(self.bash(path, "convert", "m.onnx", "--target", "genai-"),
                             ["genai-static"])
            self.assertEqual(self.bash(path, "inspect", path[:-1]), [path])

    def test_zsh(self):
        self.needs("zsh")
        with tempfile.TemporaryDirectory() as folder:
            path = script("zsh", folder)
            self.assertEqual(run("zsh", "-n", path).stderr, "")
            # What _arguments and _describe are told.
            done = run("zsh", "-f", "-c", f"""
                compdef() {{ :; }}
                _arguments() {{ print -rl -- "$@"; }}
                _describe() {{ print -rl -- ${{(P)2}}; }}
                source {path}
                words=(kvlift conv); CURRENT=2; _kvlift
                print -r -- ----
                words=(kvlift convert --t); CURRENT=3; _kvlift""")
            self.assertEqual(done.stderr, "")
            commands, flags = done.stdout.split("----")
            self.assertIn("convert:", commands)
            self.assertIn("*--target[", flags)
            self.assertIn("(spec ort genai genai-static tensorrt portable)", flags)

    def test_fish(self):
        self.needs("fish")
        with tempfile.TemporaryDirectory() as folder:
            path = script("fish", folder)

            def complete(line):
                done = run("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'",
                           env=os.environ | {"HOME": folder, "XDG_CONFIG_HOME": folder})
                self.assertEqual(done.stderr, "")
                return [row.split("\t")[0] for row in done.stdout.splitlines()]

            self.assertEqual(complete("kvlift conv"), ["convert"])
            self.assertIn("--max-seq-len", complete("kvlift convert --m"))
            self.assertIn("genai-static", complete("kvlift convert --target "))

    def test_manual_page(self):
        page = tool("man").stdout
        self.assertTrue(page.startswith(".TH KVLIFT 1"))
        for command in ("inspect", "convert", "check", "verify", "run", "bench"):
            self.assertIn(f'.SS "kvlift {command}', page)
        status, examples = page.split(".SH EXIT STATUS")[1].split(".SH EXAMPLES")
        for code in ("0", "1", "2", "3", "4", "5", "70", "128+n"):
            self.assertIn(f"\\fB{code}\\fR\n", status)
        for command in ("inspect", "convert", "check", "verify", "run", "bench", "fleet"):
            shown = tool(command, "--help").stdout.split("Example:\n")[1].strip().splitlines()
            for line in shown:
                self.assertIn(line.strip().replace("-", "\\-"), examples)
        self.needs("mandoc")
        done = run("mandoc", "-T", "lint", "-W", "warning", input=page)
        # Without a date, two builds give the same bytes.
        found = [line for line in done.stdout.splitlines() if "missing date" not in line]
        self.assertEqual(found, [])

    def test_unknown_shell(self):
        self.assertEqual(tool("completion", "tcsh").returncode, 2)


if __name__ == "__main__":
    unittest.main()
