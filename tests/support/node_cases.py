"""Writes ONNX's official node tests of the operators that decoders use: python node_cases.py DIR.

Each case is DIR/node/CASE/model.onnx with test_data_set_0/{input,output}_K.pb. What is there already
and complete is kept: DIR/complete names the versions and the script that wrote it.
"""

import hashlib
import pathlib
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

OPERATORS = set("""
Abs Add And ArgMax ArgMin Attention BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
CastLike Ceil Celu Clip Concat Constant ConstantOfShape Conv Cos CumSum DequantizeLinear Div
DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements
GatherND Gelu Gemm Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax Identity
If IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop MatMul
MatMulInteger Max Mean Min Mish Mod Mul Neg NonZero Not OneHot OptionalGetElement OptionalHasElement
Or PRelu Pad Pow QLinearMatMul QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceL2
ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
Relu Reshape RotaryEmbedding Round Scan ScatterElements ScatterND Selu SequenceInsert SequenceMap
Shape Shrink Sigmoid Sign Sin Size Slice Softmax Softplus Softsign Split SplitToSequence Sqrt
Squeeze Sub Sum Swish Tan Tanh TensorScatter Tile TopK Transpose Trilu Unsqueeze Where Xor
""".split())


def proto(value, info):
    if isinstance(value, TensorProto):
        return value
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write(case, folder):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(case.model, folder / "model.onnx")
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for i, (value, info) in enumerate(zip(values, infos, strict=True)):
            (data / f"{kind}_{i}.pb").write_bytes(proto(value, info).SerializeToString())


def cases():
    from onnx.backend.test import loader  # generates all data, which takes seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    # An expanded case has the function body of the operator of the case before it.
    plain = {c.name: c.model.graph.node[0].op_type for c in found if "_expanded" not in c.name}
    return [c for c in found if plain.get(c.name.split("_expanded")[0]) in OPERATORS]


def main():
    root = pathlib.Path(sys.argv[1])
    script = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    wanted = f"onnx {onnx.__version__} numpy {np.__version__} script {script}\n"
    mark = root / "complete"
    if mark.exists() and mark.read_text() == wanted:
        return
    shutil.rmtree(root, ignore_errors=True)
    for case in cases():
        write(case, root / "node" / case.name)
    mark.write_text(wanted)


if __name__ == "__main__":
    main()
