"""What MkDocs does for kvlift's pages besides its own work.

The README of the repository becomes the site's first page. A link that leaves docs/ leads to that
page if it names the README; any other file of the repository is named without a link, since the
site does not hold it. A link to a file that does not exist fails the build. The style sheet beside
this file becomes one of the site.
"""
import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)


def retarget(text, source):
    """`text`, the page at `source` in the repository, with links as the site has them."""
    folder = posixpath.dirname(source)
    # The README is shown as a page of docs/.
    shown = folder if source.startswith("docs/") else "docs"

    def one(match):
        words, link = match.groups()
        path, hash_sign, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return match.group(0)
        target = posixpath.normpath(posixpath.join(folder, path))
        if target.startswith("../") or not (ROOT / target).exists():
            raise PluginError(f"{source}: no such file: {link}")
        if target == "README.md":
            target = "docs/index.md"
        if not target.startswith("docs/"):
            return words
        return f"[{words}]({posixpath.relpath(target, shown)}{hash_sign}{anchor})"

    parts = FENCE.split(text)
    return "".join(part if k % 2 else LINK.sub(one, part) for k, part in enumerate(parts))


def on_files(files, config):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=retarget(text, "README.md")))
    files.append(File.generated(config, "site.css", abs_src_path=str(HERE / "site.css")))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri == "index.md":
        return markdown
    return retarget(markdown, "docs/" + page.file.src_uri)
