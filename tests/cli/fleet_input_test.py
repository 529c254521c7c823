"""What `fleet` is given: lists, pairs, options, and what it refuses.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

import onnx

from support.fleets import GOOD, KVLIFT, MODELS, REFUSED, Case, fleet, hold, results, steady


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

    def test_link_to_a_missing_file_is_a_model_that_cannot_be_opened(self):
        folder = self.dir / "folder"
        folder.mkdir()
        shutil.copy(GOOD, folder / "a.onnx")
        (folder / "b.onnx").symlink_to(self.dir / "no_blob")
        self.run_fleet(1, "check", folder, "-o", self.out)
        lines = results(self.out)
        self.assertEqual([line["model"] for line in lines], ["a.onnx", "b.onnx"])
        self.assertEqual([line["outcome"] for line in lines], ["clean", "invalid"])

    def test_several_graphs_of_a_model_are_refused(self):
        path = self.list_of(str(GOOD))
        done = self.run_fleet(2, "convert", path, "-o", self.out, "--", "--max-seq-len", "64",
                              "--freeze", "batch=1,tokens=1|2")
        self.assertIn("give one number of tokens", done.stderr)
        self.assertFalse(self.out.exists())

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
        name = "\x1b]0;x\a<script><b>\u202e\n::error::x.onnx"
        (self.dir / "in").mkdir()
        shutil.copy(GOOD, self.dir / "in" / name)
        (self.dir / "in" / "-o.onnx").write_bytes(b"\x1b[31m no model")
        done = self.run_fleet(1, "convert", "in", "-o", self.out, cwd=self.dir)
        page = (self.out / "index.html").read_text(encoding="utf-8")
        for text in (done.stdout, done.stderr, page):
            for control in "\x1b\a\u202e":
                self.assertNotIn(control, text)
            self.assertNotIn("<script>", page)
            self.assertFalse(any(line.startswith("::") for line in text.splitlines()))
        lines = results(self.out)
        self.assertEqual([line["model"] for line in lines], [name, "-o.onnx"])
        self.assertEqual([line["outcome"] for line in lines], ["converted", "invalid"])
        self.assertEqual((self.out / lines[0]["output"]).suffix, ".onnx")

        # A name is no option of the command, and not its stdin.
        shutil.copy(GOOD, self.dir / "-o.onnx")
        self.list_of("-o.onnx", "-")
        self.run_fleet(1, "check", "list.txt", "-o", "dashes", cwd=self.dir)
        self.assertEqual([line["outcome"] for line in results(self.dir / "dashes")],
                         ["clean", "invalid"])

    def test_names_that_are_not_utf_8(self):
        """Each is converted, verified and checked like any other, under an escaped name."""
        folder = os.fsencode(self.dir / "in")
        os.mkdir(folder)
        for name in (b"caf\xe9.onnx", b"caf\xe8.onnx", "caf\u00e9.onnx".encode()):
            shutil.copy(GOOD, os.path.join(folder, name))
        os.mkdir(os.path.join(folder, b"\xff"))
        shutil.copy(REFUSED, os.path.join(folder, b"\xff", b"m.onnx"))
        names = ["\\xff/m.onnx", "caf\\xe8.onnx", "caf\\xe9.onnx", "caf\u00e9.onnx"]

        def found(code, command, *args, source="in"):
            done = self.run_fleet(code, command, source, "-o", self.out, *args, cwd=self.dir)
            lines = [line for line in results(self.out) if line["command"] == command]
            return done, {line["model"]: line["outcome"] for line in lines}
        _, outcomes = found(1, "convert")
        self.assertEqual(outcomes, dict(zip(names, ["refused"] + 3 * ["converted"])))
        done, outcomes = found(0, "verify")
        self.assertIn("1 models were not converted; they are left out", done.stderr)
        self.assertEqual(outcomes, dict.fromkeys(names[1:], "equal"))
        _, outcomes = found(0, "check")
        self.assertEqual(outcomes, dict.fromkeys(names, "clean"))
        done, outcomes = found(1, "convert", "--resume")
        self.assertIn("4 of 4 results are those of earlier runs", done.stderr)
        for line in results(self.out):
            self.assertTrue(line["document"] is None or (self.out / line["document"]).is_file())

        # Lists of other encodings, and names that would look alike.
        (self.dir / "list.txt").write_bytes(b"in/caf\xe9.onnx\n")
        done, outcomes = found(0, "check", "--force", source="list.txt")
        self.assertEqual(outcomes, {"in/caf\\xe9.onnx": "clean"})
        shutil.copy(GOOD, self.dir / "in" / "caf\\xe9.onnx")
        for command in ("convert", "verify", "check"):
            done = self.run_fleet(3, command, "in", "-o", self.out, "--force", cwd=self.dir)
            self.assertIn("two models have the name caf\\xe9.onnx", done.stderr)

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


    def test_a_result_without_one_of_its_files_is_made_again(self):
        onnx.save(onnx.load(GOOD), self.dir / "m.onnx", save_as_external_data=True,
                  location="w.data", size_threshold=64)
        convert = ("convert", self.list_of("m.onnx"), "-o", self.out)
        self.run_fleet(0, *convert)
        line, = results(self.out)
        written = {path.relative_to(self.out).as_posix(): path.read_bytes()
                   for path in self.out.rglob("m.*")}
        self.assertEqual({file["path"]: file["bytes"] for file in line["files"]},
                         {name: len(data) for name, data in written.items()})
        self.assertEqual({pathlib.Path(name).suffix for name in written},
                         {".onnx", ".data", ".json", ".html"})
        self.assertEqual(len(written), 5)

        def resumed(kept):
            done = self.run_fleet(0, *convert, "--resume")
            self.assertEqual("1 of 1 results are those of earlier runs" in done.stderr, kept)
            self.assertEqual({name: (self.out / name).read_bytes() for name in written}, written)
        resumed(True)
        for name, data in written.items():
            with self.subTest(name):
                (self.out / name).unlink()
                resumed(False)
                (self.out / name).write_bytes(data[:-1])
                resumed(False)
                resumed(True)
        # A line of an earlier version has no files.
        del line["files"]
        (self.out / "results.jsonl").write_text(json.dumps(line) + "\n")
        resumed(True)

    def test_folders_with_names_of_results(self):
        for name in ("index.html/m", "results.jsonl/m", "a.kv.json/m", "a", "b.onnx/m",
                     "b.onnx-2/m"):
            path = self.dir / "in" / f"{name}.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(GOOD, path)
        (self.dir / "in" / "b.onnxtxt").write_text("<ir_version: 10>")
        source = self.list_of("in/b.onnxtxt", "in/a.kv.json/m.onnx", "in/a.onnx",
                              "in/b.onnx/m.onnx", "in/b.onnx-2/m.onnx")
        done = self.run_fleet(0, "convert", self.dir / "in", "-o", self.out)
        self.assertEqual(len(results(self.out)), 6)
        for name in ("index.html", "results.jsonl"):
            self.assertIn(f"{name}/m.onnx: its files are called {name}-2/m.*", done.stderr)
        for line in results(self.out):
            self.assertTrue((self.out / line["output"]).is_file())
        self.assertEqual(len({line["output"] for line in results(self.out)}), 6)
        done = self.run_fleet(1, "convert", source, "-o", self.dir / "listed")
        self.assertEqual([line["output"] for line in results(self.dir / "listed")],
                         [None, "in/a.kv.json/m.onnx", "in/a-2.onnx", "in/b.onnx-2/m.onnx",
                          "in/b.onnx-2/m-2.onnx"])
        self.run_fleet(0, "verify", self.dir / "in", "-o", self.out)

    def test_files_of_fleet_are_not_replaced_by_chance(self):
        self.out.mkdir()
        (self.out / "index.html").write_text("mine")
        refused = fleet("check", self.list_of(GOOD), "-o", self.out)
        self.assertEqual(refused.returncode, 5)
        self.assertIn("index.html exists; --force", refused.stderr)
        self.assertEqual([path.name for path in self.out.iterdir()], ["index.html"])
        (self.out / "index.html").unlink()
        (self.out / "index.html").mkdir()
        for flag in ((), ("--force",)):
            refused = fleet("check", self.dir / "list.txt", "-o", self.out, *flag)
            self.assertEqual(refused.returncode, 5)
            self.assertIn("index.html is no regular file", refused.stderr)


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
                (2, "fleet decides", ("check", good, "-o", out, "--", "--save", f"sarif={good}")),
                (2, "fleet decides", ("verify", good, "-o", out, "--", "--explorer", "e.json")),
                (2, "name of a folder", ("check", good, "-o", "")),
                (2, "fleet itself", ("convert", good, "-o", out, "--", "--threads", "2")),
                (2, "other.onnx", ("verify", good, "-o", out, "--", "other.onnx")),
                (2, "more models", ("check", good, "-o", out, "--", "other.onnx")),
                (2, "merge", ("merge", good, "-o", out, "--", "--whole")),
                (2, "merge", ("merge", good, "-o", out, "--resume")),
                (2, "--converted", ("check", good, "-o", out, "--converted", "r.jsonl")),
                (3, "gone.jsonl", ("verify", good, "-o", out, "--converted", "gone.jsonl")),
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
