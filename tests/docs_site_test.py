"""The pages of docs/ as a site (tools/docs/mkdocs.yml): it builds strictly, loads nothing from the
network, holds every page, and its links lead somewhere. Environment: KVLIFT_ROOT, the repository.
"""
import functools
import http.server
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from urllib.parse import unquote, urljoin, urlsplit

import lxml.html

from support.browser import browser

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
CONFIG = "tools/docs/mkdocs.yml"
FIRST_HEADINGS = {"index.html": "kvlift", "is-it-safe.html": "Is it safe?",
                  "runtimes.html": "Runtimes and targets"}


def build(root, site):
    """Builds the site of the repository at `root`; what MkDocs says is in the result."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", root / CONFIG, "-d", site],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"})


def skip(why):
    why = f"SKIPPED: {why}; `tools/dev setup` installs it"
    print(why, file=sys.stderr)
    raise unittest.SkipTest(why)


def setUpModule():
    for package, module in (("mkdocs", "mkdocs"), ("mkdocs-material", "material")):
        if importlib.util.find_spec(module) is None:
            skip(f"no {package} here")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.site = pathlib.Path(folder.name)
        done = build(ROOT, cls.site)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.pages = {path.relative_to(cls.site).as_posix(): lxml.html.parse(str(path)).getroot()
                     for path in sorted(cls.site.rglob("*.html"))}


def loaded(tree):
    """What a browser fetches to show a page."""
    for element in tree.iter(*"script img source iframe embed video audio track input".split()):
        yield from filter(None, (element.get("src"),))
        yield from (part.split()[0] for part in (element.get("srcset") or "").split(",")
                    if part.strip())
    for element in tree.iter("object"):
        yield element.get("data")
    for element in tree.iter("link"):
        if (element.get("rel") or "") not in ("canonical", "prev", "next"):
            yield element.get("href")
    for style in [*(e.text or "" for e in tree.iter("style")),
                  *(e.get("style") for e in tree.xpath("//*[@style]"))]:
        yield from urls_of_css(style)


def urls_of_css(text):
    for quoted in re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s;]+)""", text):
        yield quoted


def is_remote(url):
    return bool(urlsplit(url).netloc) or urlsplit(url).scheme in ("http", "https")


class Site(Case):
    def test_every_page_is_in_the_navigation(self):
        linked = {urlsplit(urljoin("index.html", a.get("href"))).path
                  for a in self.pages["index.html"].xpath("//nav[@data-md-level='0']//a[@href]")}
        sources = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
        self.assertGreater(len(sources), 20)
        for source in sources:
            page = source.with_suffix(".html").as_posix().replace("README.html", "index.html")
            self.assertIn(page, self.pages)
            self.assertIn(page, linked)

    def test_nothing_is_loaded_from_the_network(self):
        count = 0
        for name, tree in self.pages.items():
            for url in loaded(tree):
                count += 1
                self.assertFalse(is_remote(url), f"{name}: {url}")
        self.assertGreater(count, 100)
        for path in self.site.rglob("*.css"):
            for url in urls_of_css(path.read_text(encoding="utf-8")):
                self.assertFalse(is_remote(url), f"{path.name}: {url}")

    def test_local_links_lead_somewhere(self):
        ids = {name: {*tree.xpath("//@id"), *tree.xpath("//a/@name"), ""}
               for name, tree in self.pages.items()}
        count = 0
        for name, tree in self.pages.items():
            for url in [*tree.xpath("//a/@href"), *loaded(tree)]:
                parts = urlsplit(urljoin(name, url))
                if parts.scheme or parts.netloc:
                    continue
                count += 1
                path = unquote(parts.path).lstrip("/") or name
                if (self.site / path).is_dir():
                    path = path.rstrip("/") + "/index.html" if path != "." else "index.html"
                self.assertTrue((self.site / path).is_file(), f"{name}: {url}")
                # The script of the theme makes anchors of its own, which begin with "__".
                if path in ids and not parts.fragment.startswith("__"):
                    self.assertIn(unquote(parts.fragment), ids[path], f"{name}: {url}")
        self.assertGreater(count, 1000)

    def test_the_readme_is_the_first_page(self):
        text = self.pages["index.html"].xpath("string(//article)")
        self.assertIn("Exit codes", text)
        self.assertNotIn("docs/", " ".join(self.pages["index.html"].xpath("//article//a/@href")))

    def test_the_checks_bite(self):
        tree = lxml.html.fromstring(
            "<div><img src='https://a/b.png' srcset='//c/d.png 2x'><style>@import 'http://e/f';"
            "p { background: url(\"https://g/h\") }</style><a href='https://i/j'>k</a></div>")
        self.assertEqual([is_remote(url) for url in loaded(tree)], [True] * 4)
        self.assertFalse(is_remote("assets/a.css"))
        self.assertFalse(is_remote("data:image/png;base64,AA=="))


class Strictness(unittest.TestCase):
    """What is wrong in a page fails the build, with its name."""

    def fails(self, page, text, named):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder, "root")
            for name in ("docs", "tools/docs"):
                shutil.copytree(ROOT / name, root / name)
            for name in ("README.md", "LICENSE"):
                shutil.copy(ROOT / name, root)
            with open(root / page, "a", encoding="utf-8") as file:
                file.write(text)
            done = build(root, pathlib.Path(folder, "site"))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(named, done.stderr)

    def test_a_page_that_is_not_there(self):
        self.fails("docs/lower.md", "\nSee [it](no-such-page.md).\n", "no-such-page.md")

    def test_an_anchor_that_is_not_there(self):
        self.fails("docs/lower.md", "\nSee [it](proof.md#no-such-part).\n", "no-such-part")

    def test_a_file_outside_that_is_not_there(self):
        self.fails("docs/lower.md", "\nSee [it](../lib/no_such_file.h).\n", "no_such_file.h")

    def test_a_page_of_the_readme_that_is_not_there(self):
        self.fails("README.md", "\nSee [it](docs/no-such-page.md).\n", "no-such-page.md")

    def test_a_page_outside_the_navigation(self):
        self.fails("docs/alone.md", "# Alone\n", "alone.md")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Browser(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.chromium, why = browser()
        if cls.chromium is None:
            skip(why)
        cls.addClassCleanup(cls.chromium.quit)
        cls.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(cls.site)))
        cls.addClassCleanup(cls.server.server_close)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.shutdown)
        cls.origin = f"http://127.0.0.1:{cls.server.server_address[1]}"

    def test_pages_are_shown(self):
        for page, heading in FIRST_HEADINGS.items():
            for width in (1280, 390):
                with self.subTest(page=page, width=width):
                    self.chromium.execute_cdp_cmd(
                        "Emulation.setDeviceMetricsOverride",
                        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
                    self.chromium.get(f"{self.origin}/{page}")
                    first = self.chromium.find_element("css selector", "article h1")
                    self.assertTrue(first.is_displayed())
                    self.assertEqual(first.text.rstrip("¶"), heading)
                    self.assertIn("kvlift", self.chromium.title)
                    self.assertIn(heading, self.chromium.title)
                    wide = self.chromium.execute_script(
                        "return document.documentElement.scrollWidth")
                    self.assertLessEqual(wide, width)
        self.assertEqual(self.chromium.get_log("browser"), [])
        requested = set()
        for entry in self.chromium.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                requested.add(message["params"]["request"]["url"])
        self.assertGreater(len(requested), 5)
        for url in requested:
            self.assertTrue(url.startswith((self.origin, "data:", "blob:")), url)


if __name__ == "__main__":
    unittest.main()
