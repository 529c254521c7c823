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
