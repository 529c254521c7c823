"""The files that other programs read: the hooks of pre-commit, run by pre-commit itself, and the
Dockerfile. Environment: KVLIFT, the tool in its build folder; KVLIFT_ROOT, the repository.
"""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
GOOD = ROOT / "testdata" / "models" / "llama_attention_opset23" / "model.onnx"


def broken_model(path):
    """A model whose update is longer than its cache."""
    import onnx.parser
    model = onnx.parser.parse_model("""<ir_version: 12, opset_import: ["" : 24]>
        g (float[1,2,4,8] past, float[1,2,9,8] rows, int64[1] at) => (float[1,2,4,8] present)
        { present = TensorScatter<axis = 2>(past, rows, at) }""")
    onnx.save(model, path)


class PreCommitTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kvlift").symlink_to(KVLIFT)
        self.environment = {
            **os.environ, "HOME": str(self.folder), "PRE_COMMIT_HOME": str(self.folder / "cache"),
            "PATH": f"{programs}:{os.environ['PATH']}", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n",
            "GIT_COMMITTER_EMAIL": "e", "PYTHONDONTWRITEBYTECODE": "1"}

    def run_in(self, folder, *command):
        done = subprocess.run(command, cwd=folder, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    def repository(self, name, files):
        """A committed repository that holds copies of the files."""
        made = self.folder / name
        made.mkdir()
        for file in files:
            shutil.copy(file, made)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", name]):
            code, text = self.run_in(made, "git", *command)
            self.assertEqual(code, 0, text)
        return made

    def test_hook(self):
        pre_commit = (sys.executable, "-m", "pre_commit")
        manifest = ROOT / ".pre-commit-hooks.yaml"
        code, text = self.run_in(self.folder, *pre_commit, "validate-manifest", str(manifest))
        self.assertEqual(code, 0, text)
        hooks = self.repository("hooks", [manifest])
        work = self.repository("work", [GOOD])
        try_it = (*pre_commit, "try-repo", str(hooks), "kvlift-check", "--all-files", "--verbose")
        code, text = self.run_in(work, *try_it)
        self.assertEqual(code, 0, text)
        self.assertIn("check: 0 errors", text)
        broken_model(work / "broken.onnx")
        self.run_in(work, "git", "add", "-A")
        code, text = self.run_in(work, *try_it)
        self.assertEqual(code, 1, text)
        self.assertIn("KV121", text)


class DockerfileTest(unittest.TestCase):
    def setUp(self):
        text = (ROOT / "tools" / "Dockerfile").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        joined = "\n".join(lines).replace("\\\n", " ")
        self.stages = []
        for line in filter(None, map(str.strip, joined.splitlines())):
            word, rest = line.split(maxsplit=1)
            if word == "FROM":
                self.stages.append([])
            self.stages[-1].append((word, rest))

    def commands(self, stage, word):
        return [rest for found, rest in self.stages[stage] if found == word]

    def test_stages(self):
        known = {"FROM", "COPY", "RUN", "WORKDIR", "ENTRYPOINT"}
        self.assertEqual(len(self.stages), 2)
        self.assertLessEqual({word for stage in self.stages for word, _ in stage}, known)
        self.assertEqual(json.loads(self.commands(1, "ENTRYPOINT")[0]), ["kvlift"])

    def test_commands_are_shell_and_what_they_name_is_here(self):
        for stage in range(2):
            for command in self.commands(stage, "RUN"):
                subprocess.run(["bash", "-n", "-c", command], check=True)
        words = shlex.split(" ".join(self.commands(0, "RUN")))
        self.assertTrue(os.access(ROOT / "tools" / "dev", os.X_OK) and "./tools/dev" in words)
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        named = {preset["name"] for preset in presets["configurePresets"]}
        for at, word in enumerate(words):
            if word == "--preset":
                self.assertIn(words[at + 1], named)
        config = pathlib.Path(words[words.index("--config") + 1])
        self.assertTrue((pathlib.Path(KVLIFT).parents[1] / config.name).is_file())
        self.assertEqual(config.parts[:2], ("build", "release"))

    def test_the_second_stage_takes_what_the_first_makes(self):
        words = shlex.split(" ".join(self.commands(0, "RUN")))
        made = words[words.index("-B") + 1]
        [copy] = self.commands(1, "COPY")
        self.assertEqual(copy.split()[1], f"{made}/*.deb")
        self.assertIn("/tmp/*.deb", self.commands(1, "RUN")[0])

    def test_the_build_folder_is_no_part_of_the_context(self):
        ignored = (ROOT / "tools" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
        self.assertEqual(ignored, [".git", "build"])


if __name__ == "__main__":
    unittest.main()
