"""Recorded inputs and outputs of real models: testdata/models/NAME/steps.

Environment: KVLIFT_ROOT, the repository.
"""
import glob
import json
import os

import onnx
from onnx import numpy_helper

MODELS = os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "models")


def metas():
    """Yields the meta.json of each model."""
    for path in sorted(glob.glob(os.path.join(MODELS, "*", "meta.json"))):
        with open(path, encoding="utf-8") as file:
            yield json.load(file)


def tensors(pattern):
    """Returns the tensors of the files that match, by name."""
    result = {}
    for path in sorted(glob.glob(pattern)):
        tensor = onnx.TensorProto()
        with open(path, "rb") as file:
            tensor.ParseFromString(file.read())
        result[tensor.name] = numpy_helper.to_array(tensor)
    return result


def steps_of(name):
    """Yields the inputs and outputs of each recorded step."""
    for step in sorted(glob.glob(os.path.join(MODELS, name, "steps", "*"))):
        yield tensors(os.path.join(step, "input_*.pb")), tensors(os.path.join(step, "output_*.pb"))
