#!/usr/bin/env python3
"""Records what ONNX Runtime computes: one file NAME.onnx per case, for exec_conformance_test.

  make.py [NAME_PART...]     writes the cases whose name contains a part (all without arguments)

A case is a one-node model. Its inputs are graph inputs with a default (an initializer of the same
name); what ONNX Runtime returned is stored as initializers "expected/OUTPUT".
"""
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MS = "com.microsoft"
RNG = np.random.default_rng(7)
CASES = []


def case(function):
    """Registers a maker of cases; it calls record()."""
    CASES.append(function)
    return function


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def infer(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


def one_node(op, inputs, outputs, domain, opset, constants, attributes):
    """The model of one node, the feeds, and the names of its outputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    outs = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(op, names, outs, domain=domain, **attributes)
    tensors = [numpy_helper.from_array(np.asarray(x), n) for x, n in zip(inputs, names) if n]
    fed = [i for i, n in enumerate(names) if n and i not in constants]
    infos = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors
             if int(t.name[1:]) in fed]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=o) for o in outs if o],
                              initializer=[t for t in tensors if int(t.name[1:]) not in fed])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=min(10, 3 if opset < 9 else 10))
    return model, {f"x{i}": np.asarray(inputs[i]) for i in fed}, outs


def record(name, op, inputs, outputs=1, domain="", opset=21, constants=(), keep=None, like=None,
           **attributes):
    """inputs: arrays, None where omitted; `constants`: indices of weights. `keep` maps an output
    index to an index expression: the rest of that output is not defined. `like`: other inputs of
    the same meaning, for forms that ONNX Runtime has no CPU kernel for."""
    wanted = sys.argv[1:]
    if wanted and not any(part in name for part in wanted):
        return
    form = (domain, opset, constants, attributes)
    model, feeds, outs = one_node(op, inputs, outputs, *form)
    results = infer(*one_node(op, like or inputs, outputs, *form)[:2])
    for o, value in zip([o for o in outs if o], results):
        index = (keep or {}).get(outs.index(o))
        if index is not None:  # undefined elements are NaN (floats): the test skips them
            masked = np.full_like(value, np.nan)
            masked[index] = value[index]
            value = masked
        model.graph.initializer.append(numpy_helper.from_array(value, "expected/" + o))
        info = next(i for i in model.graph.output if i.name == o)
        info.CopyFrom(helper.make_tensor_value_info(
            o, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    for n, value in feeds.items():
        model.graph.initializer.append(numpy_helper.from_array(value, n))
    onnx.save(model, os.path.join(HERE, name + ".onnx"))
    print(name)


def gqa(name, B=1, S=1, past=3, N=4, Nk=2, D=16, rotary=0, shared=0, packed=False, lengths=None,
        positions=None, bias=None, sink=False, **attributes):
    """lengths: valid tokens by batch entry, new ones included."""
    total = past + S
    lengths = np.array(lengths if lengths is not None else [total] * B)
    capacity = shared or past
    q, k, v = normal(B, S, N * D), normal(B, S, Nk * D), normal(B, S, Nk * D)
    pk, pv = normal(B, Nk, capacity, D), normal(B, Nk, capacity, D)
    for b in range(B):
        valid = 0 if past == 0 else lengths[b] - S
        pk[b, :, valid:] = 0
        pv[b, :, valid:] = 0
    inputs = [q, k, v, pk, pv]
    if packed:
        inputs = [np.concatenate([q, k, v], 2), None, None, pk, pv]
    if capacity == 0:
        inputs[3:5] = [None, None]
    inputs += [(lengths - 1).astype(np.int32), np.array(total, np.int32)]
    inputs += [normal(32, rotary // 2), normal(32, rotary // 2)] if rotary else [None, None]
    inputs += [positions, bias, normal(N) if sink else None]
    while inputs[-1] is None:
        inputs.pop()
    keep = None
    if past == 0 and len(set(lengths)) > 1:  # rows of padding are not defined
        keep = {0: np.arange(S)[None, :] < lengths[:, None]}
    record("gqa_" + name, "GroupQueryAttention", inputs, 3, MS, keep=keep, num_heads=N,
           kv_num_heads=Nk, **({"do_rotary": 1} if rotary else {}), **attributes)


@case
def group_query_attention():
    gqa("decode")
    gqa("prompt", S=5, past=0)
    gqa("prompt_ragged", B=2, S=5, past=0, lengths=[3, 5])
    gqa("chunk", S=4)
    gqa("decode_ragged", B=3, past=5, lengths=[3, 6, 2])
    gqa("shared_decode", B=2, past=3, shared=9)
    gqa("shared_ragged", B=2, past=5, shared=9, lengths=[2, 6])
    gqa("shared_prompt", S=4, past=0, shared=9)
    gqa("shared_chunk", S=3, past=4, shared=9)
    gqa("packed", packed=True)
    gqa("packed_prompt", S=4, past=0, packed=True, rotary=16)
    gqa("rotary_decode", B=2, past=5, lengths=[4, 6], rotary=16)
    gqa("rotary_prompt_ragged", B=2, S=5, past=0, lengths=[3, 5], rotary=16)
    gqa("rotary_chunk", S=3, rotary=16)
    gqa("rotary_partial", D=32, rotary=16)
    gqa("rotary_interleaved", S=3, rotary=16, rotary_interleaved=1)
    gqa("positions_decode", B=2, positions=np.array([[7], [2]], np.int64), rotary=16)
    gqa("positions_prompt", S=4, past=0, positions=np.array([[3, 5, 6, 9]], np.int64), rotary=16)
    gqa("positions_chunk", S=3, positions=np.array([[3, 5, 9]], np.int64), rotary=16)
    gqa("window_decode", past=9, local_window_size=4)
    gqa("window_prompt", S=7, past=0, local_window_size=3)
    gqa("window_chunk", S=4, past=5, local_window_size=3)
    gqa("softcap", S=3, softcap=2.0)
    gqa("scale", S=3, scale=0.7)
    gqa("smooth", S=3, smooth_softmax=1)
    gqa("sink", S=3, sink=True)
    gqa("sink_window", S=4, past=4, sink=True, local_window_size=2)
    gqa("bias", S=3, bias=normal(1, 4, 3, 6))
    gqa("bias_broadcast", S=1, B=2, bias=normal(1, 1, 1, 4))
    gqa("bias_softcap", S=3, bias=normal(1, 4, 3, 6), softcap=1.5)
    gqa("bias_window", S=3, past=5, bias=normal(1, 4, 3, 8), local_window_size=3)
    gqa("one_group", N=3, Nk=3, S=2, past=0)
    gqa("not_causal", S=4, past=0, causal=0)


def mha(name, B=2, S=3, L=None, past=0, N=2, D=8, Dv=None, form="3d", bias=False, mask=None,
        scores=None, outputs=1, **attributes):
    L = S if L is None else L
    Dv = Dv or D
    like = None
    if form == "packed_qkv":
        x = normal(B, S, N, 3, D)
        inputs = [x, None, None]
        like = [x[:, :, :, i].reshape(B, S, N * D) for i in range(3)]
    elif form == "packed_kv":
        inputs = [normal(B, S, N * D), normal(B, L, N, 2, D), None]
        like = inputs[:1] + [inputs[1][:, :, :, i].reshape(B, L, N * D) for i in range(2)]
    elif form == "4d":
        inputs = [normal(B, S, N * D), normal(B, N, L, D), normal(B, N, L, Dv)]
    else:
        inputs = [normal(B, S, N * D), normal(B, L, N * D), normal(B, L, N * Dv)]
    inputs += [normal(2 * N * D + N * Dv) if bias else None, mask, scores]
    if past:
        inputs += [normal(B, N, past, D), normal(B, N, past, Dv)]
    while inputs[-1] is None:
        inputs.pop()
    record("mha_" + name, "MultiHeadAttention", inputs, outputs, MS, like=like, num_heads=N,
           **attributes)


@case
def multi_head_attention():
    i32 = np.int32
    mha("plain")
    mha("cross", L=5)
    mha("causal", unidirectional=1)
    mha("past", past=4, outputs=3)
    mha("past_causal", past=4, outputs=3, unidirectional=1)
    mha("past_one", S=1, past=4, outputs=3, bias=True)
    mha("present_only", outputs=3)
    mha("bias", bias=True)
    mha("value_size", Dv=4, L=5, bias=True)
    mha("4d", L=5, form="4d")
    mha("packed_kv", L=5, form="packed_kv")
    mha("packed_qkv", form="packed_qkv")
    mha("scale", scale=0.3)
    mha("mask_lengths", L=5, mask=np.array([3, 5], i32))
    mha("mask_2d", L=5, mask=np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], i32))
    mha("mask_2d_total", past=2, outputs=3, unidirectional=1,
        mask=np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]], i32))
    mha("mask_row_of_nothing", L=4, mask=np.array([[0, 0, 0, 0], [0, 1, 1, 1]], i32))
    mha("mask_causal_left_padding", unidirectional=1, mask=np.array([[0, 0, 1], [0, 1, 1]], i32))
    mha("mask_3d", L=5, mask=RNG.integers(0, 2, (2, 3, 5)).astype(i32))
    mha("mask_filter", L=4, mask=np.array([[0, 0, 1, 1], [0, 1, 1, 1]], i32),
        mask_filter_value=-2.0)
    mha("scores", L=5, scores=normal(2, 2, 3, 5))
    mha("scores_broadcast", past=2, outputs=3, scores=normal(1, 1, 3, 5))
    mha("scores_mask", L=5, scores=normal(1, 2, 3, 5), mask=np.array([3, 5], i32))


def attention(name, B=2, S=3, past=None, N=2, D=8, Din=12, values=None, bias=True, mask=None,
              scores=None, outputs=1, **attributes):
    hidden, wide = N * D, (values or N * D)
    width = 2 * hidden + wide
    inputs = [normal(B, S, Din), normal(Din, width) * 0.3, normal(width) if bias else None, mask]
    inputs += [None if past is None else normal(2, B, N, past, D), scores]
    while inputs[-1] is None:
        inputs.pop()
    if values:
        attributes["qkv_hidden_sizes"] = [hidden, hidden, wide]
    record("attention_" + name, "Attention", inputs, outputs, MS, constants=(1, 2), num_heads=N,
           **attributes)


@case
def projected_attention():
    i32 = np.int32
    attention("plain")
    attention("causal", unidirectional=1)
    attention("past", past=4, outputs=2, unidirectional=1)
    attention("past_empty", past=0, outputs=2, unidirectional=1)
    attention("past_one", S=1, past=4, outputs=2, unidirectional=1)
    attention("present_only", outputs=2)
    attention("values", values=8)
    attention("mask_lengths", mask=np.array([2, 3], i32))
    attention("mask_ends", mask=np.array([3, 2, 1, 0], i32))
    attention("mask_2d", mask=np.array([[1, 1, 0], [0, 1, 1]], i32))
    attention("mask_2d_past", past=2, outputs=2, unidirectional=1,
              mask=np.array([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1]], i32))
    attention("mask_3d", mask=RNG.integers(0, 2, (2, 3, 3)).astype(i32))
    attention("scale", scale=0.25)
    attention("scores", scores=normal(1, 2, 3, 3), unidirectional=1)


if __name__ == "__main__":
    for make in CASES:
        RNG = np.random.default_rng(7)
        make()
