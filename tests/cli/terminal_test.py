"""What the tool prints to a terminal: colours, the line of progress, widths."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import fcntl
import subprocess
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
GOOD = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"
GREEN = "\x1b[32m"


def slow_down(process, seconds):
    """Lets the process have a small part of the time, as on a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        process.send_signal(signal.SIGCONT)


def on_terminal(*args, columns=100, kill=None, slow=0, **environment):
    """What a terminal gets to see (stdout and stderr), and the exit code.

    kill: what is seen when the process is interrupted. slow: seconds for which it is slowed down.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    env.update({"TERM": "xterm-256color", **environment})
    with subprocess.Popen([KVLIFT, *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs,
                          env=env) as process:
        os.close(theirs)
        slow_down(process, slow)
        seen = b""
        while True:
            ready, _, _ = select.select([ours], [], [], 120)
            try:
                part = os.read(ours, 65536) if ready else b""
            except OSError:
                part = b""
            if not part:
                break
            seen += part
            if kill is not None and kill in seen:
                process.send_signal(signal.SIGINT)
                kill = None
        code = process.wait(60)
    os.close(ours)
    return seen.decode().replace("\r\n", "\n"), code


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class Terminal(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def piped(self, *args, **environment):
        return subprocess.run([KVLIFT, *map(str, args)], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment}).stdout.decode()

    def test_colour_only_on_terminals(self):
        seen, _ = on_terminal("inspect", GOOD)
        self.assertIn(GREEN, seen)
        self.assertNotIn("\x1b", self.piped("inspect", GOOD))
        self.assertIn(GREEN, self.piped("inspect", GOOD, "--color", "always"))
        for flags, environment in (((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}),
                                   (("--color", "never"), {})):
            seen, _ = on_terminal("inspect", GOOD, *flags, **environment)
            self.assertNotIn("\x1b", seen)
        seen, _ = on_terminal("inspect", GOOD, "--color", "always", NO_COLOR="1")
        self.assertIn(GREEN, seen)

    def test_colours_change_nothing_else(self):
        seen, _ = on_terminal("inspect", GOOD, columns=80)
        self.assertEqual(plain(seen), self.piped("inspect", GOOD))

    def test_tables_fit_into_the_terminal(self):
        for columns in (60, 80, 150):
            seen, _ = on_terminal("inspect", GOOD, "--details", columns=columns)
            table = plain(seen).split("\n")[:-2]  # the last line is for grep
            self.assertLessEqual(max(map(len, table)), columns)

    def test_progress_comes_late_and_leaves_nothing(self):
        out = self.dir / "o.onnx"
        seen, code = on_terminal("convert", GOOD, "-o", out)
        self.assertEqual(code, 0)
        self.assertNotIn("\x1b[K", seen)
        seen, code = on_terminal("verify", GOOD, out, "--plan", "full", "--threads", "1",
                                 slow=3)
        self.assertEqual(code, 0)
        self.assertRegex(seen, r"\r\x1b\[K\d+ s  (plan|mutant) \d+ of \d+ ")
        self.assertIn("\r\x1b[Kplan ", plain(seen))  # wiped before the first result
        for environment in ({"TERM": "dumb"},):
            seen, _ = on_terminal("verify", GOOD, out, "--plan", "full", **environment)
            self.assertNotIn("\r", seen)
        seen, _ = on_terminal("verify", GOOD, out, "--plan", "full", "--quiet")
        self.assertEqual(seen, "")

    def test_interrupted_in_the_middle(self):
        out = self.dir / "o.onnx"
        on_terminal("convert", GOOD, "-o", out)
        _, code = on_terminal("verify", GOOD, out, "--plan", "full", "--threads", "1",
                              slow=3, kill=b" s  ")
        self.assertEqual(code, -signal.SIGINT)

    def test_errors_say_what_where_why_and_what_to_do(self):
        run = subprocess.run([KVLIFT, "inspect", self.dir / "gone.onnx"], capture_output=True,
                             check=False)
        lines = run.stderr.decode().splitlines()
        self.assertEqual(run.returncode, 3)
        self.assertRegex(lines[0], r"^kvlift: .*gone\.onnx: cannot open: .* \[KV001\]$")
        self.assertTrue(lines[1].startswith("  why: ") and lines[2].startswith("  do:  "), lines)

    def test_last_lines_can_be_grepped(self):
        out = self.dir / "o.onnx"
        for line, *args in (
                (r"^\S+model\.onnx: \d+ nodes, opset \d+, 4 caches, 4 convertible$", "inspect",
                 GOOD),
                (r"^converted: 4 of 4 caches, 2 of 2 attentions, \d+ -> \d+ nodes$", "convert",
                 GOOD, "-o", out),
                (r"^check: 0 errors, 0 warnings$", "check", out),
                (r"^verdict: equal \(\d+ plans, \d+ of \d+ mutants detected", "verify", GOOD, out)):
            self.assertRegex(self.piped(*args).splitlines()[-1], line)


if __name__ == "__main__":
    unittest.main()
