"""Models from the onnxruntime-genai model builder (contrib GroupQueryAttention)."""
import os
from registry import fixture


@fixture("llama_genai_gqa", env="genai")
def f(out):
    from transformers import LlamaConfig, LlamaForCausalLM
    from hfutil import reinit, genai, dyn_spec
    m = reinit(LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)), 18)
    tool = genai(m, out)
    return dyn_spec(os.path.join(out, "raw.onnx"), "llama", tool, 2, 4, 16, patterns=["O2"], batch=1, mask=["M10"], expect="report", features=["gqa", "rope", "contrib-gqa"],
                    why="caches live inside com.microsoft GroupQueryAttention")


@fixture("llama_genai_gqa_int8")
def f(out):
    """The model above as the builder writes it with kv_cache_quant_scheme=int8_per_channel, its scales from what its caches held."""
    import glob
    import onnx
    from onnx import numpy_helper
    from gqa_caches import in_few_bits
    from hfutil import dyn_spec
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "llama_genai_gqa")
    presents = {}
    for path in glob.glob(os.path.join(source, "steps", "04", "output_*.pb")):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(open(path, "rb").read())
        presents[tensor.name] = numpy_helper.to_array(tensor)
    model = in_few_bits(onnx.load(os.path.join(source, "model.onnx")), presents, 8, True)
    onnx.save(model, os.path.join(out, "raw.onnx"))
    return dyn_spec(os.path.join(out, "raw.onnx"), "llama", "onnxruntime-genai 0.18.0 model builder, caches in int8 by gqa_caches.py", 2, 4, 16,
                    patterns=["O2"], batch=1, mask=["M10"], expect="report", features=["gqa", "rope", "contrib-gqa", "quantized-cache"],
                    why="GroupQueryAttention over int8 caches with constant scales by channel")
