"""Models from torch.onnx.export (TorchScript and dynamo) of transformers models."""
import os
from registry import fixture
from models_optimum import llama_model


@fixture("llama_dynamic_ts")
def f(out):
    from hfutil import export_dyn, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    export_dyn(llama_model(seed=9, attn_implementation="eager"), raw, 2, 12, False, 17)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=False, opset_version=17), DynamicCache wrapper", 2, 4, 12, features=["gqa", "rope"])


@fixture("llama_dynamic_dynamo")
def f(out):
    from hfutil import export_dyn, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    export_dyn(llama_model(seed=10), raw, 2, 12, True, 20)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=True, opset_version=20), DynamicCache wrapper", 2, 4, 12, features=["gqa", "rope"])


@fixture("llama_dynamic_dynamo_fp16")
def f(out):
    import torch
    from hfutil import export_dyn, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    export_dyn(llama_model(seed=11).half(), raw, 2, 12, True, 18, dtype=torch.float16)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=True, opset_version=18) of model.half()", 2, 4, 12, features=["gqa", "rope", "fp16"])


@fixture("llama_attention_opset23")
def f(out):
    from hfutil import export_dyn, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    export_dyn(llama_model(seed=12), raw, 2, 12, True, 23)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=True, opset_version=23)", 2, 4, 12, patterns=["C1", "O1"],
                    features=["gqa", "rope", "attention-op"], why="Attention-23 fed by Concat caches")


@fixture("llama_static_dynamo")
def f(out):
    from hfutil import export_static, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    caches, feeds = export_static(llama_model(seed=13), raw, 32, 2, 12, True, 18)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=True, opset_version=18), StaticCache wrapper", 2, 4, 12, growing=False, capacity=32,
                    patterns=["S9"], caches=caches, feeds=feeds, features=["gqa", "rope", "static-cache"], why="StaticCache written by index_copy_")


@fixture("llama_static_ts")
def f(out):
    from hfutil import export_static, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    caches, feeds = export_static(llama_model(seed=14, attn_implementation="eager"), raw, 32, 2, 12, False, 17)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=False, opset_version=17), StaticCache wrapper", 2, 4, 12, growing=False, capacity=32,
                    patterns=["S1"], caches=caches, feeds=feeds, features=["gqa", "rope", "static-cache"], why="StaticCache written by index_copy_")


@fixture("llama_dynamic_mask_scatter_ts", env="mid")
def f(out):
    from hfutil import export_dyn, dyn_spec, versions, dyn_wrapper_446
    raw = os.path.join(out, "raw.onnx")
    export_dyn(llama_model(seed=16, attn_implementation="eager"), raw, 2, 12, False, 16, wrapper=dyn_wrapper_446)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=False, opset_version=16), DynamicCache wrapper", 2, 4, 12, mask=["M2"],
                    features=["gqa", "rope", "mask-scatter"], why="growing Concat caches; the mask is filled by ScatterND (a false positive for scatter matching)")


@fixture("llama_dynamo_native_cache")
def f(out):
    from hfutil import export_native, dyn_spec, versions
    raw = os.path.join(out, "raw.onnx")
    caches, logits = export_native(llama_model(seed=19), raw, 2, 12, 18)
    return dyn_spec(raw, "llama", versions() + "; torch.onnx.export(dynamo=True, opset_version=18) with a DynamicCache argument", 2, 4, 12, caches=caches, logits=logits, layers=2,
                    features=["gqa", "rope", "exporter-names"], why="growing Concat caches; output names are those of internal nodes")
