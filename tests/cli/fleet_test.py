"""Many models, each in a process: results are those of each model alone, and none is lost.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import html.parser
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.parse

from support import schemas
from support.fleets import (GOOD, KVLIFT, MODELS, REFUSED, Case, children, fleet, hold, results,
                            steady, wait_for)


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
                self.tags, self.links, self.outcomes, self.classes = set(), [], [], []

            def handle_starttag(self, tag, attrs):
                self.tags.add(tag)
                attrs = dict(attrs)
                self.links += [attrs["href"]] if tag == "a" else []
                self.classes.append(attrs.get("class", ""))
                self.outcomes += [attrs["data-outcome"]] if "data-outcome" in attrs else []

        page = Page()
        page.feed((self.whole / "index.html").read_text(encoding="utf-8"))
        self.assertEqual(page.outcomes, [line["outcome"] for line in self.lines])
        self.assertEqual([name for name in page.classes if name.startswith("verdict")],
                         ["verdict bad"])
        self.assertFalse(page.tags & {"script", "img", "link", "iframe"})
        files = [link for link in page.links if not link.startswith("#")]
        self.assertGreater(len(files), 2 * len(self.lines))
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
            for path in line["files"]:
                self.assertTrue((self.out / path).is_file(), path)
            line["files"] = [path.split("/", 2)[2] for path in line["files"]]
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
        # The conversions may be in another folder.
        self.run_fleet(0, "verify", MODELS, "-o", self.dir / "else" / "where", "--shard", "2/4",
                       "--converted", self.whole / "results.jsonl")
        away = results(self.dir / "else" / "where")
        self.assertEqual([line["key"] for line in away], [line["key"] for line in lines])
        self.assertEqual({line["outcome"] for line in away}, {"equal"})
        for line in away:
            self.assertTrue((self.dir / "else" / "where" / line["after"]).samefile(
                self.whole / line["model"]))
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

    def test_no_space_for_results(self):
        models = self.list_of(*sorted(MODELS.glob("toy_*/model.onnx")))
        done = fleet("check", models, "-o", self.out, "--jobs", 2,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("results.jsonl", done.stderr.splitlines()[-3])
        before = results(self.out)  # whole lines
        self.assertIn(len(before), range(2, 6))
        self.assertFalse((self.out / "index.html").exists())
        self.nothing_unfinished()
        self.run_fleet(0, "check", models, "-o", self.out, "--resume")
        for line in before:
            self.assertIn(line, results(self.out))

    def test_nothing_unfinished_stays_where_no_line_can_be_written(self):
        """One process prints its last words where the line of another one finds no room."""
        models = self.list_of(REFUSED, GOOD)
        limits = (400, 400)  # no line of results has so few bytes
        process = subprocess.Popen(
            [KVLIFT, "fleet", "convert", models, "-o", self.out, "--jobs", "2"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
        self.addCleanup(process.stderr.close)
        hold(process, "llama_optimum")  # fleet ends it
        self.assertEqual(process.wait(60), 5)
        self.assertIn("results.jsonl", process.stderr.read().splitlines()[-3])
        self.nothing_unfinished()
        self.assertEqual([path.name for path in self.out.rglob("*.log")
                          if "llama_optimum" in str(path)], [])

    def test_nothing_unfinished_stays_of_a_fleet_that_is_stopped(self):
        models = self.list_of(REFUSED, GOOD)
        for how in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(how=how):
                process = subprocess.Popen(
                    [KVLIFT, "fleet", "convert", models, "-o", self.out, "--jobs", "2", "--resume"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                hold(process, "llama_optimum")
                process.send_signal(how)
                self.assertEqual(process.wait(60), -how)
                self.nothing_unfinished()
                self.assertEqual([path.name for path in self.out.rglob("*.log")
                                  if "llama_optimum" in str(path)], [])

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


if __name__ == "__main__":
    unittest.main()
