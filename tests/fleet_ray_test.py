"""`python -m kvlift.fleet` on a stand-in of Ray, which runs tasks in threads and fails some of them.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

from support.fleets import GOOD, MODELS, REFUSED, ROOT, Case, results, steady

# Its first try of each task is lost behind the work, as on a machine that has failed.
RAY = '''
    import concurrent.futures as futures, json, os, pathlib, sys, types

    pool, log = futures.ThreadPoolExecutor(2), pathlib.Path(os.environ["RAY_LOG"])
    exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def init(address, **options):
        if address == "nowhere:1":
            raise ConnectionError("cannot reach it\\nmore")
        log.write_text(json.dumps({"address": address}) + "\\n")

    def remote(**needs):
        def task(work):
            def attempts(arguments, copies):
                with open(log, "a") as file:
                    file.write(json.dumps({"needs": needs, "arguments": arguments}) + "\\n")
                for _ in range(2 if "--shard" in arguments else 1):
                    done = work(arguments, copies)
                if os.environ.get("RAY_FAILS"):
                    raise exceptions.RayError("lost")
                return done
            return types.SimpleNamespace(remote=lambda *words: pool.submit(attempts, *words))
        return task

    def wait(tasks, num_returns):
        done, rest = futures.wait(tasks, return_when=futures.FIRST_COMPLETED)
        return [next(iter(done))], [task for task in tasks if task not in done]

    def get(task):
        return task.result()

    def shutdown():
        pool.shutdown()
'''


class RayTest(Case):
    def setUp(self):
        super().setUp()
        (self.dir / "stand-in").mkdir()
        (self.dir / "stand-in" / "ray.py").write_text(textwrap.dedent(RAY))

    def python(self, code, *args, **environment):
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "python" / "kvlift" / "fleet.py", *map(str, args)],
            capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(self.dir / "stand-in"), *sys.path)),
                 "RAY_LOG": str(self.dir / "log"), **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_shards_on_a_cluster(self):
        some = self.list_of(GOOD, REFUSED, *sorted(MODELS.glob("toy_s*/model.onnx")))
        self.run_fleet(1, "convert", some, "-o", self.dir / "here", "--memory", 1, "--",
                       "--target", "ort")
        flags = ("--ray", "auto", "--shards", 3)
        self.python(1, "convert", some, "-o", self.out, *flags, "--jobs", 2, "--memory", 1, "--",
                    "--target", "ort")
        there, here = steady(results(self.out)), steady(results(self.dir / "here"))
        for line in there:
            for key in ("output", "document", "report", "log"):
                if line[key] is not None:
                    self.assertTrue((self.out / line[key]).is_file())
                    line[key] = line[key].split("/", 2)[2]  # shards/K/...
            line["files"] = [file.split("/", 2)[2] for file in line["files"]]
        self.assertEqual(there, here)
        first, *tasks = (self.dir / "log").read_text().splitlines()
        self.assertEqual(first, '{"address": "auto"}')
        self.assertEqual(len(tasks), 3)
        self.assertIn('"num_cpus": 2', tasks[0])
        self.assertIn(f'"memory": {2 << 30}', tasks[0])
        self.assertIn("--resume", tasks[0])
        # What was converted is verified, cut in other parts.
        self.python(1, "verify", some, "-o", self.out, "--ray", "local", "--shards", 2)
        lines = [line for line in results(self.out) if line["command"] == "verify"]
        self.assertEqual([line["model"] for line in lines],
                         [line["model"] for line in here if line["output"]])
        self.assertEqual({line["outcome"] for line in lines}, {"equal"})
        before = (self.out / "results.jsonl").read_text()
        done = self.python(5, "convert", some, "-o", self.out, *flags)
        self.assertIn("--resume keeps them", done.stderr)
        self.assertEqual((self.out / "results.jsonl").read_text(), before)

    def test_results_of_more_parts_are_left_out(self):
        some = self.list_of(GOOD, REFUSED, *sorted(MODELS.glob("toy_s*/model.onnx")))
        flags = ("convert", some, "-o", self.out, "--ray", "local", "--resume")
        self.python(1, *flags, "--shards", 3)
        self.python(1, *flags, "--shards", 1, "--", "--target", "ort")
        lines = results(self.out)
        self.assertEqual({tuple(line["options"]) for line in lines}, {("--target", "ort")})
        self.assertEqual(len(lines), len({line["model"] for line in lines}))

    def test_models_that_fsspec_reads(self):
        far = self.dir / "far"
        far.mkdir()
        for name in ("llama_optimum", "gpt2_optimum"):  # of one folder, in two shards
            (far / f"{name}.onnx").write_bytes((MODELS / name / "model.onnx").read_bytes())
        (far / "list.txt").write_text("# one\nllama_optimum.onnx  # here\n")
        mixed = self.dir / "mixed.txt"
        mixed.write_text(f"file://{far}/gpt2_optimum.onnx\n{GOOD}\n")
        for source, models in ((f"file://{far}", 2), (f"file://{far}/list.txt", 1), (mixed, 2)):
            with self.subTest(source=str(source)):
                out = self.dir / f"out{models}{pathlib.Path(str(source)).suffix}"
                self.python(0, "convert", source, "-o", out, "--ray", "local", "--shards", 2)
                lines = results(out)
                self.assertEqual([line["outcome"] for line in lines], ["converted"] * models)
                for line in lines:
                    self.assertTrue((out / line["output"]).is_file())
                self.assertFalse((out / "copies").exists())
        done = self.python(3, "convert", f"file://{far}/none", "-o", self.dir / "no", "--ray",
                           "local", "--shards", 1)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = self.python(3, "convert", "nosuch://a/b", "-o", self.dir / "no", "--ray", "local",
                           "--shards", 1)
        self.assertIn("nosuch", done.stderr)

    def test_failures_are_told(self):
        one = self.list_of(GOOD)
        flags = ("-o", self.out, "--ray", "auto", "--shards", 1)
        done = self.python(2, "check", one, *flags, "--", "--targt", "ort")
        self.assertIn("--targt", done.stderr)
        done = self.python(70, "check", one, *flags, RAY_FAILS="1")
        self.assertIn("given the shard up: lost", done.stderr)
        done = self.python(70, "check", one, "--resume", *flags, KVLIFT="/no/such/program")
        self.assertIn("kvlift: cannot be run on ", done.stderr)
        done = self.python(3, "check", one, "-o", self.dir / "far", "--ray", "nowhere:1",
                           "--shards", 1)
        self.assertEqual(done.stderr, "kvlift: nowhere:1: no Ray cluster: cannot reach it\n")
        self.python(2, "check", one, "-o", self.dir / "far", "--ray", "auto", "--shards", 0)
        (self.dir / "stand-in" / "ray.py").write_text("raise ImportError")
        done = self.python(2, "check", one, "-o", self.dir / "far", *flags[2:])
        self.assertEqual(done.stderr, "kvlift: needs Ray: pip install 'kvlift[ray]'\n")
        self.assertFalse(pathlib.Path(self.dir / "far").exists())


if __name__ == "__main__":
    unittest.main()
