"""What check and verify print for other programs, and that names in a model stay data there."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import jsonschema
import onnx
from onnx import TensorProto, helper

from support import schemas

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
GOOD = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"
FORMATS = ("text", "json", "github", "junit", "sarif")
CANARIES = ("\x1b]0;x\a", "::error::x\n::error::y", "</script><b>", '"}];//', "\u202ertl", "a%0Ab,c:d",
            "long" * 10000, "]]>&<!--", "\x9b31m\r", "\ufffe\ud7ff")


def kvlift(*args):
    return subprocess.run([KVLIFT, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=300, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def text(self, code, *args):
        run = kvlift(*args)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        return run.stdout.decode()

    def bad_model(self, names, file="bad.onnx"):
        """A TensorScatter per name whose update is longer than its cache: KV121."""
        nodes, inputs, outputs = [], [], []
        for k, name in enumerate(names):
            nodes.append(helper.make_node("TensorScatter", [f"c{k}", f"u{k}", f"w{k}"],
                                          [f"y{k}"], name=name))
            for value, kind, shape in (("c", TensorProto.FLOAT, [2, 2, 4, 8]),
                                       ("u", TensorProto.FLOAT, [2, 2, 5, 8]),
                                       ("w", TensorProto.INT64, [2])):
                inputs.append(helper.make_tensor_value_info(f"{value}{k}", kind, shape))
            outputs.append(helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [2, 2, 4, 8]))
        model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=12,
                                  opset_imports=[helper.make_opsetid("", 24)])
        onnx.save(model, self.dir / file)
        return self.dir / file


class Check(Case):
    def test_every_format_of_findings(self):
        bad = self.bad_model(["first", "second"])
        args = ("check", bad, GOOD, "--format")
        text = self.text(1, *args, "text")
        self.assertEqual(text.splitlines()[-1], "check: 2 errors, 0 warnings")
        document = schemas.check_json(self.text(1, *args, "json"))
        self.assertEqual([len(m["findings"]) for m in document["models"]], [2, 0])
        lines = self.text(1, *args, "github").splitlines()
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[0].startswith(f"::error file={bad},title=KV121 update-too-long::"))
        root = schemas.check_junit(self.text(1, *args, "junit").encode())
        self.assertEqual((root.get("tests"), root.get("failures"), len(root)), ("3", "2", 2))
        run = schemas.check_sarif(self.text(1, *args, "sarif"))["runs"][0]
        self.assertEqual([r["ruleId"] for r in run["results"]], ["KV121", "KV121"])
        self.assertEqual([r["id"] for r in run["tool"]["driver"]["rules"]], ["KV121"])
        place = run["results"][1]["locations"][0]
        self.assertEqual(place["logicalLocations"][0]["fullyQualifiedName"], "second")
        self.assertEqual(place["physicalLocation"]["artifactLocation"]["uri"], f"file://{bad}")
        prints = {r["partialFingerprints"]["kvliftFinding/v1"] for r in run["results"]}
        self.assertEqual(len(prints), 2)

    def test_nothing_found(self):
        args = ("check", GOOD, "--format")
        self.assertEqual(self.text(0, *args, "github"), "")
        self.assertEqual(schemas.check_junit(self.text(0, *args, "junit").encode()).get("tests"),
                         "1")
        self.assertEqual(schemas.check_sarif(self.text(0, *args, "sarif"))["runs"][0]["results"],
                         [])

    def test_an_unreadable_model_hides_no_other(self):
        wrong, cut = self.bad_model(["first"]), self.dir / "cut.onnx"
        cut.write_bytes(GOOD.read_bytes()[:5000])
        saved = self.dir / "saved.sarif"
        for models in ([wrong, cut, GOOD], [cut, wrong, GOOD], [wrong, GOOD, cut]):
            args = ("check", *models, "--save", f"sarif={saved}", "--force", "--format")
            for name in FORMATS:
                run = kvlift(*args, name)
                self.assertEqual(run.returncode, 3)
                errors = [line for line in run.stderr.decode().splitlines()
                          if not line.startswith("  ")]
                self.assertEqual(len(errors), 1, errors)
                self.assertTrue(errors[0].startswith(f"kvlift: {cut}: "), errors)
                self.assertTrue(errors[0].endswith("[KV002]"), errors)
                log = schemas.check_sarif(saved.read_text(encoding="utf-8"))["runs"][0]
                self.assertEqual({result["ruleId"] for result in log["results"]},
                                 {"KV002", "KV121"})
            lines = self.text(3, *args, "text").splitlines()
            self.assertEqual(lines[-1], "check: 1 errors, 0 warnings, 1 of 3 models not checked")
            self.assertIn(f"{cut}: not checked, KV002", lines)
            found = schemas.check_json(self.text(3, *args, "json"))["models"]
            self.assertEqual([model["path"] for model in found], list(map(str, models)))
            self.assertEqual({pathlib.Path(model["path"]).name: model["checked"] for model in found},
                             {"bad.onnx": True, "cut.onnx": False, "model.onnx": True})
            self.assertEqual(self.text(3, *args, "github").count("::error file="), 2)
            root = schemas.check_junit(self.text(3, *args, "junit").encode())
            self.assertEqual((root.get("tests"), root.get("failures"), root.get("errors")),
                             ("3", "1", "1"))
        # No flag turns what was not checked into a pass.
        for flags in (["--exit-zero"], ["--ignore", "KV"], ["--select", "KV121"]):
            self.text(3, "check", GOOD, cut, *flags)

    def test_documents_say_why_the_only_model_was_not_checked(self):
        absent = self.dir / "absent.onnx"
        for name in FORMATS:
            text = self.text(3, "check", absent, "--format", name)
            self.assertEqual("KV001" in text, name != "text", name)

    def test_a_manifest_that_cannot_be_read_has_a_code(self):
        path = self.dir / "m.onnx"
        shutil.copy(GOOD, path)
        path.with_suffix(".kv.json").write_text("{", encoding="utf-8")
        found = schemas.check_json(self.text(3, "check", path, "--json"))["models"][0]
        self.assertEqual([finding["code"] for finding in found["findings"]], ["KV033"])
        self.assertIn("m.kv.json: manifest: not JSON", found["findings"][0]["text"])

    def test_no_document_takes_the_place_of_an_unreadable_model(self):
        cut = self.dir / "cut.onnx"
        cut.write_bytes(GOOD.read_bytes()[:5000])
        self.assertEqual(kvlift("check", cut, "--save", f"json={cut}").returncode, 5)
        self.assertEqual(cut.read_bytes(), GOOD.read_bytes()[:5000])

    def test_hostile_names_stay_data(self):
        bad = self.bad_model(CANARIES)
        for name in FORMATS:
            with self.subTest(format=name):
                text = self.text(1, "check", bad, "--format", name)
                for control in "\x1b\a\r\x9b\u202e\ufffe":
                    self.assertNotIn(control, text)
                self.assertLess(len(text), 200000)
                if name == "text":
                    self.assertEqual(len(text.splitlines()), len(CANARIES) + 1)
                elif name == "github":
                    self.assertEqual(len(text.splitlines()), len(CANARIES))
                    for line in text.splitlines():
                        self.assertTrue(line.startswith("::error file="), line)
                elif name == "junit":
                    root = schemas.check_junit(text.encode())
                    self.assertEqual(root.get("failures"), str(len(CANARIES)))
                elif name == "sarif":
                    run = schemas.check_sarif(text)["runs"][0]
                    self.assertEqual(len(run["results"]), len(CANARIES))

    def test_paths_are_references(self):
        path = self.bad_model(["n"], "a b#c?d%e:f,g.onnx")
        run = schemas.check_sarif(self.text(1, "check", path, "--format", "sarif"))["runs"][0]
        uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        self.assertTrue(uri.endswith("/a%20b%23c%3Fd%25e%3Af%2Cg.onnx"), uri)
        line = self.text(1, "check", path, "--format", "github")
        self.assertIn("d%25e%3Af%2Cg.onnx,title=", line)

    def test_save_writes_the_documents_that_format_prints(self):
        bad = self.bad_model(["first"])
        flags = []
        for name in FORMATS:
            flags += ["--save", f"{name}={self.dir / name}"]
        printed = self.text(1, "check", bad, "--format", "github", *flags)
        for name in FORMATS:
            with self.subTest(format=name):
                saved = (self.dir / name).read_text(encoding="utf-8")
                self.assertEqual(saved, self.text(1, "check", bad, "--format", name))
        self.assertEqual(printed, (self.dir / "github").read_text(encoding="utf-8"))

    def test_save_refuses_what_is_no_document_of_its_own(self):
        bad = self.bad_model(["first"])
        before = bad.read_bytes()
        for value, code in (("sarif", 2), ("xml=x", 2), ("sarif=", 2), ("html=x", 2),
                            (f"sarif={bad}", 5), (f"sarif={self.dir}/no/folder", 5)):
            with self.subTest(value=value):
                run = kvlift("check", bad, "--save", value)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertEqual(len(run.stderr.decode().splitlines()[:1]), 1)
                self.assertEqual(run.stdout, b"")
        twice = ["--save", f"sarif={self.dir / 's'}", "--save", f"json={self.dir}/./s"]
        self.assertEqual(kvlift("check", bad, *twice).returncode, 5)
        self.assertFalse((self.dir / "s").exists())
        self.assertEqual(bad.read_bytes(), before)

    def test_misspelt_format(self):
        self.assertEqual(kvlift("check", GOOD, "--format", "xml").returncode, 2)


class Inspect(Case):
    def test_an_unreadable_model_hides_no_other(self):
        absent = self.dir / "absent.onnx"
        for models in ([GOOD, absent], [absent, GOOD]):
            run = kvlift("inspect", *models)
            self.assertEqual(run.returncode, 3)
            self.assertIn(f"{GOOD}: ".encode(), run.stdout)
            self.assertTrue(run.stderr.startswith(f"kvlift: {absent}: ".encode()), run.stderr)
            documents = json.loads(self.text(3, "inspect", *models, "--json"))
            self.assertEqual([document["model"]["path"] for document in documents], [str(GOOD)])


class Verify(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.converted = cls.folder / "out.onnx"
        assert kvlift("convert", GOOD, "-o", cls.converted).returncode == 0
        model = onnx.load(cls.converted)
        for node in model.graph.node:
            if node.op_type == "Attention":
                kept = [a for a in node.attribute if a.name != "scale"]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("scale", 0.5)])
        cls.wrong = cls.folder / "wrong.onnx"
        onnx.save(model, cls.wrong)
        node = helper.make_node("Nothing", ["x"], ["y"], domain="nowhere")
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
        cls.unknown = cls.folder / "unknown.onnx"
        onnx.save(helper.make_model(
            helper.make_graph([node], "g", value[:1], value[1:]),
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("nowhere", 1)]),
            cls.unknown)

    def outputs(self, code, before, after):
        return {name: self.text(code, "verify", before, after, "--format", name)
                for name in FORMATS}

    def test_save_writes_the_documents_of_one_run(self):
        flags = []
        for name in (*FORMATS, "html"):
            flags += ["--save", f"{name}={self.dir / name}"]
        self.text(1, "verify", GOOD, self.wrong, *flags)
        for name in FORMATS:
            with self.subTest(format=name):
                saved = (self.dir / name).read_text(encoding="utf-8")
                self.assertEqual(saved, self.text(1, "verify", GOOD, self.wrong, "--format", name))
        self.assertIn("different", (self.dir / "html").read_text(encoding="utf-8"))
        manifest = self.converted.with_suffix(".kv.json")
        for path in (GOOD, self.converted, manifest):
            before = path.read_bytes()
            for command in (["verify", GOOD, self.converted], ["check", GOOD, self.converted]):
                run = kvlift(*command, "--save", f"json={path}")
                self.assertEqual(run.returncode, 5)
                self.assertEqual(path.read_bytes(), before)

    def test_equal(self):
        out = self.outputs(0, GOOD, self.converted)
        document = schemas.check_json(out["json"])
        root = schemas.check_junit(out["junit"].encode())
        self.assertEqual((root.get("failures"), root.get("errors")), ("0", "0"))
        suites = {suite.get("name"): len(suite) for suite in root}
        self.assertEqual(suites, {"verdict": 1, "plans": len(document["plans"]),
                                  "mutants": len(document["controls"]),
                                  "for all shapes": len(document["proof"]["facts"])})
        self.assertEqual(schemas.check_sarif(out["sarif"])["runs"][0]["results"], [])
        self.assertRegex(out["github"], r"^::notice file=.*::verdict: equal to .*\n$")
        self.assertRegex(out["text"].splitlines()[-1], "^verdict: equal ")

    def test_different(self):
        out = self.outputs(1, GOOD, self.wrong)
        document = schemas.check_json(out["json"])
        self.assertIsNotNone(document["counterexample"])
        self.assertNotEqual(schemas.check_junit(out["junit"].encode()).get("failures"), "0")
        results = schemas.check_sarif(out["sarif"])["runs"][0]["results"]
        self.assertEqual((results[0]["ruleId"], results[0]["level"]), ("KV404", "error"))
        self.assertTrue(out["github"].startswith("::error file="))

    def test_documents_say_which_model_could_not_be_read(self):
        absent, cut = self.dir / "absent.onnx", self.dir / "cut.onnx"
        cut.write_bytes(GOOD.read_bytes()[:5000])
        broken = self.dir / "broken.kv.json"
        broken.write_text("{", encoding="utf-8")
        for before, after, path, code, *flags in (
                (absent, self.converted, absent, "KV001"), (GOOD, cut, cut, "KV002"),
                (GOOD, self.converted, broken, "KV033", "--manifest", broken)):
            saves = []
            for name in (*FORMATS, "html"):
                saves += ["--save", f"{name}={self.dir / name}"]
            out = {name: self.text(3, "verify", before, after, *flags, "--format", name, "--force",
                                   *saves) for name in FORMATS}
            for name in FORMATS:
                with self.subTest(path=path, format=name):
                    self.assertEqual(out[name], (self.dir / name).read_text(encoding="utf-8"))
                    self.assertEqual(f"{code}" in out[name] and str(path) in out[name],
                                     name != "text")
            document = schemas.check_json(out["json"])
            self.assertEqual(document["verdict"], "inconclusive")
            self.assertTrue(document["reason"].startswith(f"{code} {path}: "), document["reason"])
            self.assertEqual((document["plans"], document["controls"]), ([], []))
            root = schemas.check_junit(out["junit"].encode())
            self.assertEqual((root.get("tests"), root.get("errors")), ("1", "1"))
            results = schemas.check_sarif(out["sarif"])["runs"][0]["results"]
            self.assertEqual([(r["ruleId"], r["level"]) for r in results], [(code, "error")])
            page = (self.dir / "html").read_text(encoding="utf-8")
            self.assertIn(f"{code} {path}: ", page)
        # What no runtime could load is unreadable, too: a tensor that lacks bytes, an unknown opset.
        for code, change in (("KV029", lambda m: m.graph.initializer[0].ClearField("raw_data")),
                             ("KV028", lambda m: setattr(m.opset_import[0], "version", 99))):
            model = onnx.load(GOOD)
            change(model)
            onnx.save(model, self.dir / "odd.onnx")
            for pair in ((GOOD, self.dir / "odd.onnx"), (self.dir / "odd.onnx", GOOD)):
                run = kvlift("verify", *pair)
                self.assertEqual(run.returncode, 3, run.stdout + run.stderr)
                self.assertIn(f"[{code}]".encode(), run.stderr)
        # No document takes the place of a model that cannot be read.
        run = kvlift("verify", GOOD, cut, "--save", f"json={cut}", "--force")
        self.assertEqual((run.returncode, run.stdout), (5, b""))
        self.assertEqual(cut.read_bytes(), GOOD.read_bytes()[:5000])

    def test_a_model_is_compared_with_itself(self):
        """Its manifest relates a conversion to another model, its source, and is not read here."""
        line = "BEFORE and AFTER are the same model: it is compared with itself"
        copy = self.dir / "copy.onnx"
        shutil.copy(self.converted, copy)
        for before, after in ((GOOD, GOOD), (self.converted, self.converted),
                              (copy, self.converted), (self.converted, copy)):
            with self.subTest(before=before, after=after):
                args = ("verify", before, after)
                text = self.text(0, *args)
                self.assertEqual(text.splitlines()[0], line)
                self.assertRegex(text.splitlines()[-1], "^verdict: equal ")
                document = schemas.check_json(self.text(0, *args, "--json"))
                self.assertIs(document["same_model"], True)
                self.assertIn("relation", document)
        self.assertNotIn(line, self.text(0, "verify", GOOD, self.converted))
        document = schemas.check_json(self.text(0, "verify", GOOD, self.converted, "--json"))
        self.assertNotIn("same_model", document)

    def test_inconclusive_never_looks_passed(self):
        out = self.outputs(4, self.unknown, self.unknown)
        self.assertEqual(schemas.check_json(out["json"])["verdict"], "inconclusive")
        root = schemas.check_junit(out["junit"].encode())
        self.assertNotEqual(root.get("errors"), "0")
        run = schemas.check_sarif(out["sarif"])["runs"][0]
        self.assertEqual(run["results"][0]["level"], "error")
        self.assertTrue(out["github"].startswith("::error file="))


class Schemas(unittest.TestCase):
    def test_the_check_bites(self):
        good = {"schema": "kvlift/check/1", "models": [{"path": "m", "findings": []}]}
        schemas.check_document(good)
        for bad in ({**good, "more": 1}, {"schema": "kvlift/check/1"},
                    {**good, "models": [{"path": 1, "findings": []}]},
                    {**good, "models": [{"path": "m", "findings": [], "more": 1}]}):
            with self.subTest(bad=bad), self.assertRaises(jsonschema.ValidationError):
                schemas.check_document(bad)

    def test_every_document_has_one(self):
        names = {path.name.split(".")[0] for path in schemas.FOLDER.glob("*.schema.json")}
        source = "".join(path.read_text() for folder in ("lib", "tools")
                         for kind in ("*.cc", "*.h", "*.py") for path in (ROOT / folder).rglob(kind))
        printed = {part.split("/")[0] for part in source.split('"kvlift/')[1:]
                   if re.search(r"/\d$", part.split('"')[0])}
        self.assertEqual(names, printed)

    def test_published_ones_allow_more_fields(self):
        for path in schemas.FOLDER.glob("*.schema.json"):
            self.assertNotIn("additionalProperties\": false", path.read_text(), path)
            self.assertRegex(json.loads(path.read_text())["properties"]["schema"]["const"],
                             rf"^kvlift/{path.name.split('.')[0]}/\d$")


if __name__ == "__main__":
    unittest.main()
