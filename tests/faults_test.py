"""Whatever fails while a model is converted, old outputs stand complete or new ones do.

A shim (support/fault_shim.cc) fails each system call and many allocations in turn, or kills the
program there; disks are full, memory is short, processes are killed at random.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository; KVLIFT_SHIM, the shim.
"""
import errno
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import onnx

KVLIFT = os.environ["KVLIFT"]
SHIM = os.environ.get("KVLIFT_SHIM", "")
MODEL = pathlib.Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models" / "llama_optimum"
SANITIZED = b"__asan_init" in pathlib.Path(KVLIFT).read_bytes()

DONE, UNREADABLE, UNWRITABLE, INTERNAL = 0, 3, 5, 70


def limited(*limits):
    def set_limits():
        for what, value in limits:
            resource.setrlimit(what, (value, value))
    return set_limits


class Conversion(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.source = self.dir / "model.onnx"
        shutil.copy(MODEL / "model.onnx", self.source)
        for data in MODEL.glob("*.data"):
            shutil.copy(data, self.dir)
        self.out = self.dir / "out"
        self.old = self.convert_to(self.dir / "old", 16)
        self.new = self.convert_to(self.dir / "new", 24)
        self.assertNotEqual(self.old, self.new)

    def command(self, folder, capacity):
        return [KVLIFT, "convert", str(self.source), "-o", str(folder / "m.onnx"), "--force",
                "--quiet", "--threads", "1", "--max-seq-len", str(capacity)]

    def convert_to(self, folder, capacity):
        folder.mkdir()
        subprocess.run(self.command(folder, capacity), check=True)
        return self.contents(folder)

    @staticmethod
    def contents(folder):
        return {p.name: p.read_bytes() for p in folder.iterdir() if ".tmp-" not in p.name}

    def reset(self, with_old):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        if with_old:
            for name, content in self.old.items():
                (self.out / name).write_bytes(content)

    def run_convert(self, preexec=None, **env):
        return subprocess.run(self.command(self.out, 24), capture_output=True, timeout=120,
                              check=False, preexec_fn=preexec, env={**os.environ, **env})

    def check_old_or_new(self, with_old, killed, what):
        """Each file is the old or the new one; both are of one kind unless the process was killed
        between two renames, and then the tool says so."""
        found = self.contents(self.out)
        old = self.old if with_old else {}
        left = [p.name for p in self.out.iterdir() if ".tmp-" in p.name]
        if not killed:
            self.assertEqual(left, [], what)
        if found in (old, self.new):
            return found == self.new
        self.assertTrue(killed, what)
        for name, content in found.items():
            self.assertIn(content, (old.get(name), self.new[name]), (what, name))
        if "m.onnx" in found:
            onnx.load(str(self.out / "m.onnx"), load_external_data=False)
            told = subprocess.run([KVLIFT, "check", str(self.out / "m.onnx"), "--exit-zero"],
                                  capture_output=True, check=False)
            self.assertIn(b"another conversion", told.stderr, what)
        return False

    def check_message(self, run, what):
        # ONNX says itself what it cannot register.
        lines = [line for line in run.stderr.decode().splitlines()
                 if not line.startswith("Schema error: ")]
        self.assertTrue(all(line.startswith("  ") for line in lines[1:]), (what, run.stderr))
        self.assertTrue(lines[0].startswith("kvlift: "), (what, lines))


@unittest.skipIf(not SHIM, "no shim")
class Faults(Conversion):
    def counts(self):
        """How often a conversion calls what can fail."""
        self.reset(with_old=True)
        self.run_convert(LD_PRELOAD=SHIM, KVLIFT_FAULT_DIR=str(self.dir),
                         KVLIFT_FAULT_COUNT=str(self.dir / "counts"))
        lines = (self.dir / "counts").read_text().splitlines()
        return {name: int(n) for name, n in (line.split() for line in lines)}

    def fail_at(self, fault, with_old=True):
        self.reset(with_old)
        return self.run_convert(LD_PRELOAD=SHIM, KVLIFT_FAULT_DIR=str(self.dir), KVLIFT_FAULT=fault)

    def test_every_call_fails_once(self):
        errors = {"open": (errno.EACCES,), "read": (errno.EIO,), "map": (errno.ENOMEM,),
                  "write": (errno.ENOSPC, errno.EIO), "fsync": (errno.EIO,),
                  "close": (errno.EDQUOT,), "rename": (errno.EROFS,), "link": (errno.EMLINK,),
                  "copy": (errno.ENOSPC,), "size": (errno.ENOSPC,)}
        counts = self.counts()
        for call in ("open", "write", "fsync", "close", "rename"):
            self.assertGreater(counts[call], 0, counts)
        for call, numbers in errors.items():
            for error in numbers:
                for n in range(1, counts[call] + 1):
                    what = f"{call}:{n}:{error}"
                    with self.subTest(what):
                        self.fail_here(call, what, with_old=n % 2 == 1)

    def fail_here(self, call, what, with_old):
        run = self.fail_at(what, with_old)
        self.assertIn(run.returncode, (DONE, UNREADABLE, UNWRITABLE), (what, run))
        new = self.check_old_or_new(with_old, False, what)
        if run.returncode == DONE:
            self.assertTrue(new, what)
        else:
            self.check_message(run, what)
        if call in ("write", "rename"):
            self.assertEqual(run.returncode, UNWRITABLE, what)

    def test_killed_at_every_call(self):
        for n in range(1, self.counts()["io"] + 1):
            with self.subTest(n):
                run = self.fail_at(f"io:{n}:kill", with_old=n % 2 == 0)
                self.assertIn(run.returncode, (-signal.SIGKILL, DONE))  # new files: fewer calls
                self.check_old_or_new(n % 2 == 0, True, n)

    @unittest.skipIf(SANITIZED, "a sanitizer has an allocator of its own")
    def test_allocations_fail(self):
        total = self.counts()["alloc"]
        points = sorted({1, 2, 3, total, *range(5, total, max(1, total // 60))})
        for n in points:
            with self.subTest(n):
                run = self.fail_at(f"alloc:{n}:{errno.ENOMEM}")
                self.assertIn(run.returncode, (DONE, UNREADABLE, UNWRITABLE, INTERNAL), (n, run))
                new = self.check_old_or_new(True, False, n)
                if run.returncode == DONE:
                    self.assertTrue(new)
                else:
                    self.check_message(run, n)


class Shortage(Conversion):
    @unittest.skipIf(SANITIZED, "a sanitizer takes more memory than such limits")
    def test_memory_runs_out(self):
        """Wherever it does: the program says so, and ends by itself."""
        ended = {}
        for kib in range(3000, 16000, 500):
            run = subprocess.run(
                ["bash", "-c", f'ulimit -d {kib}; exec "$@"', "-", *self.command(self.out, 24),
                 "--json"], capture_output=True, timeout=120, check=False)
            with self.subTest(kib):
                self.assertIn(run.returncode, (DONE, UNREADABLE, UNWRITABLE, INTERNAL, 127),
                              run.stderr[-500:])
                if run.returncode == INTERNAL:
                    self.assertIn(b"out of memory", run.stderr)
                    self.assertEqual(json.loads(run.stdout)["exit_code"], INTERNAL)
            ended[run.returncode] = ended.get(run.returncode, 0) + 1
        self.assertGreater(ended.get(INTERNAL, 0), 3, ended)

    def test_killed_at_random(self):
        rng = random.Random(1)
        start = time.monotonic()
        self.reset(with_old=True)
        self.run_convert()
        duration = time.monotonic() - start
        for n in range(50):
            self.reset(with_old=True)
            with subprocess.Popen(self.command(self.out, 24), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as process:
                time.sleep(rng.uniform(0, duration * 1.1))
                process.kill()
            self.check_old_or_new(True, True, n)

    def test_files_are_limited(self):
        size = len(self.new["m.onnx"])
        for limit in (0, 1, 100, size // 2, size - 1):
            with self.subTest(limit):
                self.reset(with_old=True)
                run = self.run_convert(preexec=limited((resource.RLIMIT_FSIZE, limit)))
                self.assertEqual(run.returncode, UNWRITABLE, run)
                self.check_message(run, limit)
                self.assertFalse(self.check_old_or_new(True, False, limit))

    def test_full_disk(self):
        disk = self.dir / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system may be mounted here")
        self.addCleanup(subprocess.run, ["umount", str(disk)], check=True)
        self.out = disk / "out"
        self.reset(with_old=False)
        run = self.run_convert()
        self.assertEqual(run.returncode, UNWRITABLE, run)
        self.check_message(run, "full disk")
        self.assertEqual(list(self.out.iterdir()), [])

    @unittest.skipIf(SANITIZED, "a sanitizer reserves all address space")
    def test_memory_is_limited(self):
        for megabytes in (60, 80, 90, 100, 120, 160, 240, 400):
            with self.subTest(megabytes):
                self.reset(with_old=True)
                run = self.run_convert(preexec=limited((resource.RLIMIT_AS, megabytes << 20)))
                self.assertEqual(self.check_old_or_new(True, False, megabytes),
                                 run.returncode == DONE)

    def test_stale_files_are_named_and_not_picked_up(self):
        self.reset(with_old=True)
        with subprocess.Popen(["true"]) as gone:
            pass
        stale = self.out / f"m.onnx.tmp-{gone.pid}-0123456789abcdef"
        others = [self.out / f"m.onnx.tmp-{os.getpid()}-0123456789abcdef",
                  self.out / "m.onnx.tmp-1-0123", self.out / "other.tmp-1"]
        for path in (stale, *others):
            path.write_bytes(b"half")
        command = [word for word in self.command(self.out, 24) if word != "--quiet"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, DONE)
        self.assertEqual(self.contents(self.out), self.new)
        for path in (stale, *others):
            self.assertEqual(path.read_bytes(), b"half")
        lines = [line for line in run.stderr.splitlines() if ".tmp-" in line]
        self.assertEqual(len(lines), 1, run.stderr)
        self.assertIn(stale.name, lines[0])
        self.assertIn("KV505", lines[0])


class Mixed(Conversion):
    def test_a_manifest_of_another_conversion_is_said(self):
        self.reset(with_old=True)
        (self.out / "m.kv.json").write_bytes(self.new["m.kv.json"])
        run = subprocess.run([KVLIFT, "check", str(self.out / "m.onnx")], capture_output=True,
                             check=False)
        self.assertIn(b"another conversion", run.stderr)
        (self.out / "m.kv.json").write_bytes(
            json.dumps(json.loads(self.old["m.kv.json"])).encode())
        run = subprocess.run([KVLIFT, "check", str(self.out / "m.onnx")], capture_output=True,
                             check=False)
        self.assertEqual(run.stderr, b"")


if __name__ == "__main__":
    unittest.main()
