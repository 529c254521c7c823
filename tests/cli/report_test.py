"""The HTML report: what it says, what it must not load, and how a browser shows it."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import onnx
from lxml import html

from decoders.cases import BASES, build
from support.browser import browser
from support.schemas import check_document, check_json

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODELS = ROOT / "testdata" / "models"
GOOD = MODELS / "llama_optimum" / "model.onnx"
REFUSED = MODELS / "toy_fifo_shift_ts" / "model.onnx"
CANARIES = ("</script><b id=x>bold</b>", "\"><img src=x onerror=alert(1)>", "\u202ertl", "\x1b[31m",
            "&lt;b&gt;", "]]><!--", "a" * 3000, "'};alert(1)//")


def kvlift(*args):
    return subprocess.run([KVLIFT, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=300, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.out, self.page = self.dir / "o.onnx", self.dir / "r.html"

    def convert(self, model=GOOD, *flags, code=0):
        run = kvlift("convert", model, "-o", self.out, "--report", self.page, "--json", *flags)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        return check_json(run.stdout)

    def read(self):
        text = self.page.read_text(encoding="utf-8")
        self.assertLess(len(text.encode()), 2 << 20)
        # Nothing is loaded, nothing runs.
        self.assertIsNone(re.search(r"https?:|url\(|@import|<link|<iframe|<img|<object", text))
        tree = html.fromstring(text)
        for script in tree.iter("script"):
            self.assertEqual(script.attrib, {"type": "application/json", "id": "data"})
        for element in tree.iter():
            for name, value in element.attrib.items():
                self.assertFalse(name.startswith("on"), name)
                if name in ("href", "src"):
                    self.assertTrue(value.startswith("#"), value)
        return tree

    def rows(self, tree, name):
        """Of the table, with layers that are alike told one by one."""
        found = tree.xpath(f"//table[@id='{name}-all']") or tree.xpath(f"//table[@id='{name}']")
        if not found:
            return 0
        rows = found[0].xpath("./tbody/tr")
        self.assertEqual(int(found[0].get("data-rows")), len(rows))
        return len(rows)


class Content(Case):
    def test_counts_are_those_of_the_json(self):
        document = self.convert(GOOD, "--verify")
        tree = self.read()
        verify = document["verify"]
        self.assertEqual(tree.get_element_by_id("verdict").get("data-verdict"), "equal")
        for name, count in (("layers-table", len(document["caches"])),
                            ("plans-table", len(verify["plans"])),
                            ("outputs-table", len(verify["outputs"])),
                            ("mutants-table", len(verify["controls"])),
                            ("proof-table", len(verify["proof"]["facts"])),
                            ("aliases-table", len(verify["aliases"])),
                            ("preconditions-table", len(document["preconditions"])),
                            ("refused-table", 0)):
            self.assertEqual(self.rows(tree, name), count, name)
        data = json.loads(tree.get_element_by_id("data").text)
        check_document(data["convert"])
        self.assertEqual(data["convert"], document)
        self.assertIn(str(self.page), document["outputs"])

    def test_files_and_hashes(self):
        self.convert()
        tree = self.read()
        text = tree.get_element_by_id("files").text_content()
        for path in (GOOD, self.out):
            self.assertIn(hashlib.sha256(path.read_bytes()).hexdigest(), text)
        self.assertEqual(tree.get_element_by_id("verdict").get("data-verdict"), "not verified")
        self.assertIn("kvlift convert ", tree.text_content())

    def test_drawing_shows_what_changed(self):
        self.convert()
        before, after = self.read().xpath("//section[@id='drawing']//svg")
        self.assertIn("\u2212 Softmax", before.text_content())
        self.assertIn("+ TensorScatter", after.text_content())
        self.assertIn("+ Attention", after.text_content())
        self.assertEqual(len(after.xpath(".//*[@class='alias']")), 2)
        self.assertEqual(len(before.xpath(".//*[@class='alias']")), 0)

    def test_same_bytes_twice(self):
        self.convert()
        first = self.page.read_bytes()
        self.convert(GOOD, "--force")
        self.assertEqual(self.page.read_bytes().replace(b" --force", b""), first)

    def test_refused(self):
        document = self.convert(REFUSED, code=1)
        tree = self.read()
        self.assertEqual(tree.get_element_by_id("verdict").get("data-verdict"), "not converted")
        self.assertIn("KV205", tree.get_element_by_id("refused-table").text_content())
        self.assertEqual(self.rows(tree, "layers-table"), len(document["caches"]))
        self.assertEqual(len(tree.xpath("//section[@id='drawing']//svg")), 1)
        self.assertFalse(self.out.exists())

    def test_every_bundled_model(self):
        for model in sorted(MODELS.glob("*/model.onnx")):
            with self.subTest(model=model.parent.name):
                run = kvlift("convert", model, "-o", self.out, "--report", self.page, "--force",
                             "--quiet")
                self.assertIn(run.returncode, (0, 1), run.stderr.decode())
                self.read()

    def test_many_layers(self):
        model, _ = build(BASES["growing"].but(layers=48))
        onnx.save(model, self.dir / "m.onnx")
        document = self.convert(self.dir / "m.onnx")
        tree = self.read()
        self.assertEqual(len(document["caches"]), 96)
        self.assertEqual(self.rows(tree, "layers-table"), 96)
        self.assertEqual(len(tree.xpath("//table[@id='layers-table']/tbody/tr")), 2)
        self.assertEqual(len(tree.xpath("//section[@id='drawing']//svg")), 2)

    def test_hostile_names_stay_text(self):
        model = onnx.load(GOOD)
        renamed = {}
        for k, value in enumerate([*model.graph.input, *model.graph.output]):
            renamed[value.name] = CANARIES[k % len(CANARIES)] + str(k)
            value.name = renamed[value.name]
        for k, node in enumerate(model.graph.node):
            node.name = f"{CANARIES[k % len(CANARIES)]}{k}"
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    names[i] = renamed.get(name, name)
        onnx.save(model, self.dir / "m.onnx")
        document = self.convert(self.dir / "m.onnx", "--verify")
        tree = self.read()
        self.assertEqual(len(document["caches"]), 4)
        self.assertEqual(tree.xpath("//img | //*[@id='x']"), [])
        self.assertIn("</script><b id=x>bold</b>", tree.text_content())
        self.assertIsNone(re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]",
                                    self.page.read_text(encoding="utf-8")))
        self.assertEqual(json.loads(tree.get_element_by_id("data").text)["convert"], document)


class Command(Case):
    def report(self, before, after, code):
        run = kvlift("report", before, after, "-o", self.page, "--json", "--force")
        self.assertEqual(run.returncode, code, run.stderr.decode())
        document = check_json(run.stdout)
        tree = self.read()
        self.assertEqual(tree.get_element_by_id("verdict").get("data-verdict"),
                         document["verdict"])
        return tree

    def test_equal_and_different(self):
        kvlift("convert", GOOD, "-o", self.out)
        tree = self.report(GOOD, self.out, 0)
        data = json.loads(tree.get_element_by_id("data").text)
        for document in data.values():
            check_document(document)
        self.assertEqual(self.rows(tree, "plans-table"), len(data["verify"]["plans"]))
        model = onnx.load(self.out)
        for node in model.graph.node:
            if node.op_type == "Attention":
                node.attribute.append(onnx.helper.make_attribute("softcap", 2.0))
        onnx.save(model, self.out)
        tree = self.report(GOOD, self.out, 1)
        self.assertIn("KV404", tree.get_element_by_id("verdict").text_content())

    def test_files_in_the_way(self):
        self.page.write_text("precious")
        run = kvlift("report", GOOD, GOOD, "-o", self.page)
        self.assertEqual(run.returncode, 5)
        run = kvlift("convert", GOOD, "-o", self.out, "--report", self.page)
        self.assertEqual(run.returncode, 5)
        self.assertEqual(self.page.read_text(), "precious")
        self.assertFalse(self.out.exists())
        run = kvlift("convert", GOOD, "-o", self.out, "--report", self.out, "--force")
        self.assertEqual(run.returncode, 5)
        run = kvlift("convert", GOOD, "-o", self.out, "--report", self.dir / "no" / "r.html")
        self.assertEqual(run.returncode, 5)
        self.assertFalse(self.out.exists())

    def test_dry_run(self):
        self.convert(GOOD, "--dry-run")
        self.assertFalse(self.page.exists())


class Browser(Case):
    @classmethod
    def setUpClass(cls):
        cls.chromium, why = browser()
        if cls.chromium is None:
            raise unittest.SkipTest(f"SKIPPED: {why}")
        cls.addClassCleanup(cls.chromium.quit)

    def show(self, width, scheme="light"):
        cdp = self.chromium.execute_cdp_cmd
        cdp("Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        cdp("Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.chromium.get(self.page.as_uri())

    def script(self, text):
        return self.chromium.execute_script("return " + text)

    def test_no_message_no_request_no_overflow(self):
        self.convert(GOOD, "--verify")
        self.chromium.get_log("performance")  # of tests before
        backgrounds = set()
        for width, scheme in ((1400, "light"), (1200, "dark"), (390, "light"), (390, "dark")):
            self.show(width, scheme)
            backgrounds.add(self.script("getComputedStyle(document.body).backgroundColor"))
            self.assertLessEqual(self.script("document.documentElement.scrollWidth"), width)
        self.assertEqual(len(backgrounds), 2, backgrounds)
        self.assertEqual(self.chromium.get_log("browser"), [])
        requested = set()
        for entry in self.chromium.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                requested.add(message["params"]["request"]["url"].split("#")[0])
        self.assertLessEqual(requested, {self.page.as_uri(), "data:,"})

    def test_texts_can_be_read(self):
        """Contrast of at least 4.5 for every text, light and dark."""
        self.convert(GOOD, "--verify")
        for scheme in ("light", "dark"):
            self.show(1200, scheme)
            worst = self.script("""(() => {
              const parse = c => (c.match(/[0-9.]+/g) || []).map(Number);
              const lum = c => c.slice(0, 3).map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
              const back = e => { for (; e; e = e.parentElement) {
                const c = parse(getComputedStyle(e).backgroundColor);
                if (c.length == 3 || c[3] > 0) return c; } return [255, 255, 255]; };
              let worst = [99, ''];
              for (const e of document.querySelectorAll('td,th,p,li,a,b,h1,h2,h3,code,summary,' +
                                                        'figcaption,caption,.key span')) {
                const f = lum(parse(getComputedStyle(e).color)), g = lum(back(e));
                const ratio = (Math.max(f, g) + 0.05) / (Math.min(f, g) + 0.05);
                if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 80)];
              } return worst; })()""")
            self.assertGreaterEqual(worst[0], 4.5, (scheme, worst))

    def test_print(self):
        self.convert(GOOD, "--verify")
        self.show(1200)
        pdf = self.chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
        self.assertGreater(len(pdf["data"]), 10000)

    def test_hostile_names_run_nothing(self):
        model = onnx.load(GOOD)
        for k, node in enumerate(model.graph.node):
            node.name = f"{CANARIES[k % len(CANARIES)]}{k}"
        onnx.save(model, self.dir / "m.onnx")
        self.convert(self.dir / "m.onnx", "--verify")
        self.show(1200)
        self.assertEqual(self.chromium.get_log("browser"), [])
        self.assertEqual(self.script("document.querySelectorAll('img,#x').length"), 0)
        self.assertLessEqual(self.script("document.documentElement.scrollWidth"), 1200)


if __name__ == "__main__":
    unittest.main()
