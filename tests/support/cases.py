"""Models of testdata in ONNX Runtime. Environment: KVLIFT_ROOT, the repository."""
import os

import onnx
import onnx.parser
import onnxruntime as ort
from support.case_text import text_of_case

DATA = os.path.join(os.environ["KVLIFT_ROOT"], "testdata")


def source_of_case(name, folder):
    """Writes the source of a text case to a file in the folder."""
    path = os.path.join(folder, name + ".onnx")
    onnx.save(onnx.parser.parse_model(text_of_case(name)), path)
    return path


def session(path):
    """Returns a session with one thread, since these models are too small for more."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
