"""Many models, each in a process: results are those of each model alone, and none is lost.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import html.parser
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.parse

import onnx

from support import schemas

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODELS = ROOT / "testdata" / "models"
GOOD = MODELS / "llama_optimum" / "model.onnx"
REFUSED = MODELS / "neg_concat_reversed_ts" / "model.onnx"
MEASURED = ("seconds", "peak_memory_bytes")


def fleet(*args, **options):
    return subprocess.run([KVLIFT, "fleet", *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600, check=False, **options)


def results(out):
    """The lines of results.jsonl, each of which must be a whole document."""
    text = (out / "results.jsonl").read_text(encoding="ascii")
    return [schemas.check_json(line) for line in text.splitlines()]


def steady(lines):
    """Results without what is measured anew in each run."""
    return [{key: value for key, value in line.items() if key not in MEASURED} for line in lines]


def children(pid):
    """Processes that a process has started, with their arguments."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == pid and fields[0] not in "ZX":
                words = (stat.parent / "cmdline").read_bytes().split(b"\0")
                yield int(stat.parent.name), [word.decode() for word in words]
        except (FileNotFoundError, ProcessLookupError):
            continue


def wait_for(found, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError("waited in vain")


def hold(process, wanted=""):
    """Stops a child of a run that works on such a model; gives its id."""
    def stopped():
        for pid, words in children(process.pid):
            if "--json" not in words or wanted not in words[2]:
                continue
            try:
                os.kill(pid, signal.SIGSTOP)
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                return pid
        return None
    return wait_for(stopped)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = self.dir / "out"

    def run_fleet(self, code, *args, **options):
        done = fleet(*args, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def start(self, *args):
        process = subprocess.Popen([KVLIFT, "fleet", *map(str, args)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def list_of(self, *lines, name="list.txt"):
        path = self.dir / name
        path.write_text("\n".join(map(str, lines)) + "\n", encoding="utf-8")
        return path

    def nothing_unfinished(self):
        left = [path for path in self.out.rglob("*")
                if ".tmp-" in path.name or path.suffix == ".part"]
        self.assertEqual(left, [])


class Folder(Case):
    """All bundled models."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.whole = cls.folder / "whole"
        done = fleet("convert", MODELS, "-o", cls.whole, "--jobs", "2")
        cls.code, cls.stdout, cls.stderr = done.returncode, done.stdout, done.stderr
        cls.lines = results(cls.whole)
        cls.paths = sorted(path.relative_to(MODELS).as_posix() for path in MODELS.rglob("*.onnx"))

    def test_every_model_has_its_line(self):
        self.assertEqual(self.code, 1)
        self.assertGreater(len(self.paths), 20)
        self.assertEqual([line["model"] for line in self.lines], self.paths)
        self.assertEqual([line["index"] for line in self.lines],
                         list(range(1, len(self.paths) + 1)))
        outcomes = {line["outcome"] for line in self.lines}
        self.assertEqual(outcomes, {"converted", "refused", "no-cache"})
        self.assertIn(f"[{len(self.paths)}/{len(self.paths)}] ", self.stderr)
        good = sum(line["succeeded"] for line in self.lines)
        self.assertIn(f"convert: {good} of {len(self.paths)} models succeeded\n", self.stdout)

    def test_results_are_those_of_a_model_alone(self):
        for line in self.lines:
            with self.subTest(model=line["model"]):
                alone = self.dir / "alone.onnx"
                done = subprocess.run([KVLIFT, "convert", MODELS / line["model"], "-o", alone,
                                       "--force", "--json"], capture_output=True, check=False)
                self.assertEqual(line["exit_code"], done.returncode)
                document = json.loads(done.stdout)
                ours = json.loads((self.whole / line["document"]).read_text())
                for each in (document, ours):
                    del each["outputs"]
                self.assertEqual(ours, document)
                reasons = [entry["reason"] for kind in ("caches", "attention")
                           for entry in document[kind] if entry["reason"]]
                self.assertEqual(line["codes"], sorted({reason["code"] for reason in reasons}))
                if done.returncode == 0:
                    written = self.whole / line["output"]
                    self.assertEqual(written.read_bytes(), alone.read_bytes())
                    self.assertEqual(written.with_suffix(".kv.json").read_bytes(),
                                     alone.with_suffix(".kv.json").read_bytes())
                else:
                    self.assertIsNone(line["output"])
                    self.assertEqual(line["outcome"], {"nothing": "no-cache"}.get(
                        document["status"], document["status"]))
                    if reasons:
                        self.assertTrue(line["reason"].startswith(reasons[0]["code"] + ": "))

    def test_page(self):
        class Page(html.parser.HTMLParser):
            def __init__(self):
                super().__init__()
                self.tags, self.links, self.outcomes = set(), [], []

            def handle_starttag(self, tag, attrs):
                self.tags.add(tag)
                attrs = dict(attrs)
                self.links += [attrs["href"]] if tag == "a" else []
                self.outcomes += [attrs["data-outcome"]] if "data-outcome" in attrs else []

        page = Page()
        page.feed((self.whole / "index.html").read_text(encoding="utf-8"))
        self.assertEqual(page.outcomes, [line["outcome"] for line in self.lines])
        self.assertFalse(page.tags & {"script", "img", "link", "iframe"})
        files = [link for link in page.links if not link.startswith("#")]
        self.assertGreater(len(files), 3 * len(self.lines))
        for link in files:
            self.assertTrue((self.whole / urllib.parse.unquote(link)).is_file(), link)

    def test_one_worker_is_killed(self):
        process = self.start("convert", MODELS, "-o", self.out, "--jobs", "2")
        wait_for(lambda: (self.out / "results.jsonl").is_file() and len(results(self.out)) > 3)
        victim = hold(process)
        words = dict(children(process.pid))[victim]
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(process.wait(300), 1)
        killed = pathlib.Path(words[2]).relative_to(MODELS).as_posix()
        for line, whole in zip(steady(results(self.out)), steady(self.lines), strict=True):
            if line["model"] != killed:
                self.assertEqual(line, whole)
                continue
            self.assertEqual((line["outcome"], line["exit_code"]), ("crashed", 137))
            self.assertIn("SIGKILL", line["reason"])
            self.assertIsNone(line["document"])
        self.nothing_unfinished()
        # The crash stays until somebody asks for that model again.
        again = self.run_fleet(1, "convert", MODELS, "-o", self.out, "--resume")
        self.assertIn(f"{len(self.lines)} of {len(self.lines)} results are those", again.stderr)
        self.run_fleet(1, "convert", MODELS, "-o", self.out, "--resume", "--retry", "crashed")
        self.assertEqual(steady(results(self.out)), steady(self.lines))

    def test_resume_after_fleet_is_killed(self):
        for how in (signal.SIGKILL, signal.SIGINT):
            with self.subTest(how=how):
                shutil.rmtree(self.out, ignore_errors=True)
                process = self.start("convert", MODELS, "-o", self.out, "--jobs", "2")
                wait_for(lambda: (self.out / "results.jsonl").is_file()
                         and len(results(self.out)) > 4)
                workers = [pid for pid, _ in children(process.pid)]
                process.send_signal(how)
                self.assertEqual(process.wait(60), -how)
                for pid in workers:  # no worker goes on without it
                    wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}") or "\nState:\tZ" in
                             pathlib.Path(f"/proc/{pid}/status").read_text())
                before = results(self.out)
                with open(self.out / "results.jsonl", "a", encoding="ascii") as file:
                    file.write('{"schema":"kvlift/fleet-res')  # as of a writer that was killed
                done = self.run_fleet(1, "convert", MODELS, "-o", self.out, "--resume", "--jobs",
                                      "2")
                self.assertIn(f"{len(before)} of {len(self.lines)} results are those of earlier",
                              done.stderr)
                after = results(self.out)
                self.assertEqual(steady(after), steady(self.lines))
                for line in before:
                    self.assertIn(line, after)
                self.nothing_unfinished()

    def test_shards_together_are_the_whole(self):
        shards = []
        for part in (1, 2, 3):
            shards.append(self.dir / f"shard {part}" / "results.jsonl")
            self.run_fleet(1, "convert", MODELS, "-o", shards[-1].parent, "--shard", f"{part}/3",
                           "--jobs", 2)
            indices = [line["index"] for line in results(shards[-1].parent)]
            self.assertEqual(indices, list(range(part, len(self.lines) + 1, 3)))
        self.run_fleet(1, "merge", *reversed(shards), "-o", self.out)
        merged = steady(results(self.out))
        for line in merged:
            for key in ("output", "document", "report", "log"):
                if line[key] is None:
                    continue
                self.assertTrue((self.out / line[key]).is_file(), line[key])
                line[key] = line[key].split("/", 2)[2]  # ../shard K/...
        self.assertEqual(merged, steady(self.lines))
        # The same in one folder, one shard after another.
        for part in (1, 2, 3):
            self.run_fleet(1, "convert", MODELS, "-o", self.dir / "one", "--shard", f"{part}/3",
                           "--resume")
        self.assertEqual(steady(results(self.dir / "one")), steady(self.lines))
        # A shard that is missing is not overlooked.
        done = self.run_fleet(1, "merge", shards[0], "-o", self.dir / "third", "--json")
        summary = schemas.check_json(done.stdout)
        self.assertEqual(summary["models"] + summary["missing"], len(self.lines))
        self.assertEqual(summary["models"], len(results(shards[0].parent)))

    def test_verify_and_check_what_was_converted(self):
        shutil.copytree(self.whole, self.out)
        done = self.run_fleet(0, "verify", MODELS, "-o", self.out, "--jobs", 2, "--json", "--shard",
                              "2/4")
        converted = [line for line in self.lines if line["output"]]
        lines = [line for line in results(self.out) if line["command"] == "verify"]
        self.assertEqual([line["model"] for line in lines],
                         [line["model"] for line in converted[1::4]])
        self.assertEqual({line["outcome"] for line in lines}, {"equal"})
        self.assertEqual(schemas.check_json(done.stdout)["outcomes"], {"equal": len(lines)})
        self.assertIn(f"{len(self.lines) - len(converted)} models were not converted", done.stderr)
        for line in lines:
            self.assertTrue((self.out / line["after"]).is_file())
        self.run_fleet(0, "check", self.out, "-o", self.out, "--quiet")
        everything = results(self.out)
        checks = [line for line in everything if line["command"] == "check"]
        self.assertEqual([line["model"] for line in checks], [line["output"] for line in converted])
        self.assertEqual(steady(everything[:len(self.lines)]), steady(self.lines))


class Limits(Case):
    def test_timeout(self):
        process = self.start("convert", self.list_of(GOOD, REFUSED), "-o", self.out, "--jobs", 1,
                             "--timeout", 2)
        hold(process, "llama_optimum")
        self.assertEqual(process.wait(60), 1)
        late, refused = results(self.out)
        self.assertEqual((late["outcome"], late["reason"], late["exit_code"]),
                         ("timeout", "took longer than 2 s", 137))
        self.assertGreaterEqual(late["seconds"], 2)
        self.assertEqual(refused["outcome"], "refused")
        self.nothing_unfinished()
        again = ("convert", self.dir / "list.txt", "-o", self.out, "--resume", "--timeout")
        self.run_fleet(1, *again, 2)
        self.assertEqual(results(self.out), [late, refused])
        self.run_fleet(1, *again, 300)  # with another limit the end may be another one
        self.assertEqual([line["outcome"] for line in results(self.out)], ["converted", "refused"])
        self.assertEqual(results(self.out)[1], refused)

    def test_memory(self):
        self.run_fleet(1, "convert", self.list_of(GOOD), "-o", self.out, "--memory", 0.004)
        line, = results(self.out)
        self.assertEqual((line["outcome"], line["output"]), ("out-of-memory", None))
        self.assertIn("more than 0.004 GiB", line["reason"])
        self.assertEqual([path.name for path in self.out.rglob("*.onnx")], [])
        self.run_fleet(0, "convert", self.list_of(GOOD), "-o", self.out, "--memory", 1, "--resume")
        # Too little to run a model: the verdict alone would say "inconclusive".
        self.run_fleet(1, "verify", self.list_of(GOOD), "-o", self.out, "--memory", 0.02)
        self.assertEqual(results(self.out)[1]["outcome"], "out-of-memory")
        # Too little to start at all.
        self.run_fleet(1, "check", self.list_of(GOOD), "-o", self.out, "--memory", 0.001)
        self.assertEqual(results(self.out)[2]["outcome"], "out-of-memory")

    def test_a_model_that_crashes_its_process(self):
        process = self.start("convert", self.list_of(REFUSED, GOOD, REFUSED.parent / "x.onnx"),
                             "-o", self.out, "--jobs", 2)
        os.kill(victim := hold(process, "llama_optimum"), signal.SIGSEGV)
        os.kill(victim, signal.SIGCONT)
        self.assertEqual(process.wait(60), 1)
        refused, crashed, absent = results(self.out)
        self.assertEqual((crashed["outcome"], crashed["exit_code"], crashed["reason"]),
                         ("crashed", 139, "ended by signal 11 (SIGSEGV)"))
        self.assertEqual((refused["outcome"], refused["exit_code"]), ("refused", 1))
        self.assertEqual((absent["outcome"], absent["exit_code"], absent["sha256"]),
                         ("invalid", 3, None))
        self.assertTrue(absent["codes"])

    def test_results_that_cannot_be_written(self):
        (self.dir / "blocked").mkdir()
        (self.dir / "blocked" / "a").write_text("a file where a folder would have to be")
        shutil.copy(GOOD, self.dir / "good.onnx")
        (self.dir / "a").mkdir()
        shutil.copy(GOOD, self.dir / "a" / "m.onnx")
        self.run_fleet(1, "check", self.list_of("a/m.onnx", "good.onnx"), "-o",
                       self.dir / "blocked")
        blocked, good = results(self.dir / "blocked")
        self.assertEqual((blocked["outcome"], blocked["exit_code"]), ("not-written", 5))
        self.assertEqual(good["outcome"], "clean")


class Lists(Case):
    def test_lines(self):
        (self.dir / "in er").mkdir()
        for name in ("in er/m.onnx", "m.onnx"):
            shutil.copy(GOOD, self.dir / name)
        (self.dir / "m.onnxtxt").write_text("<ir_version: 10>")
        path = self.list_of("\ufeff# models", "", "in er/m.onnx # with a space\r", "m.onnx",
                            "m.onnxtxt", "in er/m.onnx", self.dir / "m.onnx", "in er/../m.onnx")
        done = self.run_fleet(1, "check", path, "-o", self.out)
        self.assertIn("line 6: in er/m.onnx is named twice; it is taken once", done.stderr)
        lines = results(self.out)
        self.assertEqual([line["model"] for line in lines],
                         ["in er/m.onnx", "m.onnx", "m.onnxtxt", f"{self.dir}/m.onnx",
                          "in er/../m.onnx"])
        absolute = str(self.dir / "m").lstrip("/")
        self.assertEqual([line["document"] for line in lines],
                         ["in er/m.check.json", "m.check.json", None, f"{absolute}.check.json",
                          "m-3.check.json"])
        self.assertEqual(lines[2]["log"], "m-2.check.log")
        self.assertEqual([line["outcome"] for line in lines],
                         ["clean", "clean", "invalid", "clean", "clean"])

    def test_pairs(self):
        shutil.copy(GOOD, self.dir / "source.onnx")
        for name, options in (("right one", ()), ("other", ("--max-seq-len", "64"))):
            subprocess.run([KVLIFT, "convert", self.dir / "source.onnx", "-o",
                            self.dir / f"{name}.onnx", *options], capture_output=True, check=True)
        wrong = onnx.load(self.dir / "other.onnx")
        for node in wrong.graph.node:
            if node.op_type == "Attention":
                kept = [a for a in node.attribute if a.name != "scale"]
                del node.attribute[:]
                node.attribute.extend([*kept, onnx.helper.make_attribute("scale", 0.5)])
        onnx.save(wrong, self.dir / "other.onnx")
        pairs = self.list_of("source.onnx\tright one.onnx", "source.onnx other.onnx",
                             "source.onnx source.onnx")
        self.run_fleet(1, "verify", pairs, "-o", self.out)
        lines = results(self.out)
        self.assertEqual([line["outcome"] for line in lines[:2]], ["equal", "different"])
        self.assertEqual(lines[1]["codes"], [lines[1]["reason"].split()[0]])
        self.assertEqual([line["after"] for line in lines],
                         ["right one.onnx", "other.onnx", "source.onnx"])
        self.assertEqual([line["document"] for line in lines],
                         ["source.verify.json", "source-2.verify.json", "source-3.verify.json"])
        # A changed file is verified again, the others are not.
        shutil.copy(self.dir / "right one.onnx", self.dir / "other.onnx")
        shutil.copy(self.dir / "right one.kv.json", self.dir / "other.kv.json")
        done = self.run_fleet(1 if lines[2]["exit_code"] else 0, "verify", pairs, "-o", self.out,
                              "--resume")
        self.assertIn("2 of 3 results are those of earlier runs", done.stderr)
        self.assertEqual([line["outcome"] for line in results(self.out)[:2]], ["equal", "equal"])

    def test_hostile_names_stay_data(self):
        name = "\x1b]0;x\a</script><b>\u202e\n::error::x.onnx"
        (self.dir / "in").mkdir()
        shutil.copy(GOOD, self.dir / "in" / name)
        (self.dir / "in" / "-o.onnx").write_bytes(b"\x1b[31m no model")
        done = self.run_fleet(1, "convert", "in", "-o", self.out, cwd=self.dir)
        page = (self.out / "index.html").read_text(encoding="utf-8")
        for text in (done.stdout, done.stderr, page):
            for control in "\x1b\a\u202e":
                self.assertNotIn(control, text)
            self.assertNotIn("<b></", text)
            self.assertFalse(any(line.startswith("::") for line in text.splitlines()))
        lines = results(self.out)
        self.assertEqual([line["model"] for line in lines], [name, "-o.onnx"][::-1])
        self.assertEqual([line["outcome"] for line in lines], ["invalid", "converted"])
        self.assertEqual((self.out / lines[1]["output"]).suffix, ".onnx")

    def test_options_and_number_of_jobs(self):
        two = self.list_of(GOOD, REFUSED)
        kept = None
        for jobs in (1, 2, 5):
            self.run_fleet(1, "convert", two, "-o", self.out, "--jobs", jobs, "--force", "--",
                           "--max-seq-len", "64")
            lines = steady(results(self.out))
            self.assertEqual(lines, kept or lines)
            kept = lines
        self.assertEqual(lines[0]["options"], ["--max-seq-len", "64"])
        manifest = json.loads((self.out / lines[0]["output"]).with_suffix(".kv.json").read_text())
        self.assertEqual(manifest["capacity"]["value"], 64)
        # Other options are another question.
        self.run_fleet(1, "convert", two, "-o", self.out, "--resume", "--", "--max-seq-len", "32")
        self.assertNotEqual(results(self.out)[0]["key"], lines[0]["key"])
        # A result without its files is made again; one of a model that is gone is dropped.
        (self.out / results(self.out)[0]["output"]).unlink()
        done = self.run_fleet(0, "convert", self.list_of(GOOD), "-o", self.out, "--resume", "--",
                              "--max-seq-len", "32")
        self.assertNotIn("earlier runs", done.stderr)
        self.assertEqual([line["outcome"] for line in results(self.out)], ["converted"])


class Refusals(Case):
    def refused(self, code, text, *args):
        done = fleet(*args, cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(text, done.stderr.splitlines()[0])
        self.assertTrue(done.stderr.startswith("kvlift: "), done.stderr)

    def test_nothing_is_written_after_bad_input(self):
        good, out = self.list_of(GOOD), self.out
        (self.dir / "empty").mkdir()
        for code, text, args in (
                (2, "convert", ("convrt", good, "-o", out)),
                (2, "--output", ("convert", good)),
                (2, "source", ("convert", "-o", out)),
                (2, "more than one list", ("convert", good, good, "-o", out)),
                (2, "--shard", ("convert", good, "-o", out, "--shard", "3/2")),
                (2, "--shard", ("convert", good, "-o", out, "--shard", "0/2")),
                (2, "--jobs", ("convert", good, "-o", out, "--jobs", "-1")),
                (2, "--timeout", ("convert", good, "-o", out, "--timeout", "0")),
                (2, "--memory", ("convert", good, "-o", out, "--memory", "much")),
                (2, "--retry", ("convert", good, "-o", out, "--retry", "crashed")),
                (2, "--retry", ("convert", good, "-o", out, "--resume", "--retry", "crash")),
                (2, "--targt", ("convert", good, "-o", out, "--", "--targt", "ort")),
                (2, "ortt", ("convert", good, "-o", out, "--", "--target", "ortt")),
                (2, "max-seq-len", ("convert", good, "-o", out, "--", "--max-seq-len", "no")),
                (2, "fleet decides", ("convert", good, "-o", out, "--", "--output=x.onnx")),
                (2, "fleet decides", ("convert", good, "-o", out, "--", "-ox.onnx")),
                (2, "fleet decides", ("verify", good, "-o", out, "--", "--format", "text")),
                (2, "fleet itself", ("convert", good, "-o", out, "--", "--threads", "2")),
                (2, "other.onnx", ("verify", good, "-o", out, "--", "other.onnx")),
                (2, "more models", ("check", good, "-o", out, "--", "other.onnx")),
                (2, "merge", ("merge", good, "-o", out, "--", "--whole")),
                (2, "merge", ("merge", good, "-o", out, "--resume")),
                (3, "gone.txt", ("convert", "gone.txt", "-o", out)),
                (3, "is a model", ("convert", GOOD, "-o", out)),
                (3, "no *.onnx", ("convert", "empty", "-o", out)),
                (3, "no models", ("check", self.list_of("# none", name="none.txt"), "-o", out)),
                (3, "line 2: is not text", ("check", self.list_of("a", "b\0", name="b"), "-o", out)),
                (3, "line 1: needs BEFORE AFTER",
                 ("verify", self.list_of("a b c", name="three.txt"), "-o", out)),
                (3, "run fleet convert", ("verify", MODELS, "-o", out)),
                (3, "line 1 is no result", ("merge", good, "-o", out)),
                (3, "gone.jsonl", ("merge", "gone.jsonl", "-o", out)),
                (5, "list.txt", ("convert", good, "-o", good))):
            with self.subTest(args=args):
                self.refused(code, text, *args)
                self.assertFalse(out.exists())
        self.assertEqual(good.read_text(), f"{GOOD}\n")

    def test_what_is_there_is_kept(self):
        shutil.copy(GOOD, self.dir / "m.onnx")
        models = self.list_of("m.onnx")
        before = {path.name for path in self.dir.iterdir()}
        # The result would be the source.
        for force in ((), ("--force",), ("--resume",)):
            self.refused(5, "is a model of the list", "convert", models, "-o", ".", *force)
        self.assertEqual({path.name for path in self.dir.iterdir()}, before)
        self.out.mkdir()
        (self.out / "m.kv.json").write_text("mine")
        for resume in ((), ("--resume",)):  # there is nothing to resume
            self.refused(5, "m.kv.json exists", "convert", models, "-o", self.out, *resume)
        self.assertEqual((self.out / "m.kv.json").read_text(), "mine")
        self.run_fleet(0, "convert", models, "-o", self.out, "--force", "--quiet")
        kept = (self.out / "results.jsonl").read_text()
        self.refused(5, "has results of convert", "convert", models, "-o", self.out)
        self.refused(5, "exists", "merge", self.out / "results.jsonl", "-o", self.out)
        (self.out / "results.jsonl").write_text("no line\n" + kept)
        self.refused(3, "line 1 is no result", "convert", models, "-o", self.out, "--resume")
        self.assertEqual((self.out / "results.jsonl").read_text(), "no line\n" + kept)

    def test_results_of_different_lists(self):
        for name, path in (("a", GOOD), ("b", REFUSED)):
            fleet("check", self.list_of(path), "-o", self.dir / name)
        self.refused(3, "different lists", "merge", "a/results.jsonl", "b/results.jsonl", "-o",
                     self.out)

    def test_two_runs_in_one_folder(self):
        process = self.start("convert", self.list_of(GOOD), "-o", self.out)
        victim = hold(process)
        self.refused(5, "another run of fleet", "check", self.dir / "list.txt", "-o", self.out)
        os.kill(victim, signal.SIGCONT)
        self.assertEqual(process.wait(60), 0)
        self.run_fleet(0, "check", self.dir / "list.txt", "-o", self.out)
        self.assertEqual([line["command"] for line in results(self.out)], ["convert", "check"])


if __name__ == "__main__":
    unittest.main()
