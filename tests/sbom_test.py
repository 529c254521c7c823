"""The bill of materials that is installed: a valid CycloneDX document that accounts for every library
the program links. Environment: KVLIFT, the tool in its build folder.
"""
import importlib.resources
import json
import os
import re
import subprocess
import unittest

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

KVLIFT = os.environ["KVLIFT"]
SBOM = os.path.join(os.path.dirname(os.path.dirname(KVLIFT)), "share", "kvlift.cdx.json")
SCHEMAS = importlib.resources.files("cyclonedx.schema") / "_res"


def schema(uri):
    """The schemas name one another by file."""
    text = (SCHEMAS / uri.rsplit("/", 1)[-1]).read_text(encoding="utf-8")
    return Resource.from_contents(json.loads(text), default_specification=DRAFT7)


def validator():
    return jsonschema.Draft7Validator(schema("bom-1.6.SNAPSHOT.schema.json").contents,
                                      registry=Registry(retrieve=schema))


class SbomTest(unittest.TestCase):
    def setUp(self):
        with open(SBOM, encoding="utf-8") as file:
            self.sbom = json.load(file)

    def test_valid(self):
        self.assertEqual([e.message for e in validator().iter_errors(self.sbom)], [])
        broken = json.loads(json.dumps(self.sbom))
        broken["components"][0]["licenses"] = [{"license": {"id": "No-Such-Licence"}}]
        self.assertTrue(list(validator().iter_errors(broken)))

    def test_versions(self):
        known = {c["name"]: c["version"] for c in self.sbom["components"]}
        self.assertTrue(all(re.match(r"^\d[\w.+~-]*$", v) for v in known.values()), known)
        self.assertRegex(known["onnx"], r"^1\.\d+\.\d+$")
        program = subprocess.run([KVLIFT, "version"], capture_output=True, text=True, check=True)
        self.assertEqual(self.sbom["metadata"]["component"]["version"], program.stdout.split()[1])

    def test_every_linked_library_has_a_component(self):
        dynamic = subprocess.run(["readelf", "--dynamic", KVLIFT], capture_output=True, text=True,
                                 check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        self.assertTrue(needed)
        known = tuple(p["value"] for c in self.sbom["components"] for p in c["properties"])
        sanitizer = re.compile(r"lib(a|ub|t)san\.")
        for library in needed:
            if not sanitizer.match(library):
                self.assertTrue(library.startswith(known), library)


if __name__ == "__main__":
    unittest.main()
