"""Models from the Optimum exporter and its merge tool."""
import os, shutil
from registry import fixture, auto


def _spec(out, family, exporter, kv, q, d, **kw):
    caches, feeds, outs = auto(os.path.join(out, "raw.onnx"))
    s = dict(family=family, exporter=exporter, layers=len({c["layer"] for c in caches}), kv_heads=kv, q_heads=q, head_dim=d,
             growing=True, capacity=None, patterns=["C1"], mask=[], caches=caches, feeds=feeds, logits="logits", vocab=96,
             expect="convert", why="growing Concat caches, standard masks", features=[])
    s.update(kw)
    return s


def llama_model(seed=1, layers=2, **kw):
    from transformers import LlamaConfig, LlamaForCausalLM
    from hfutil import reinit
    return reinit(LlamaForCausalLM(LlamaConfig(
        vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=12, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, **kw)), seed)


@fixture("llama_optimum", env="optimum")
def f(out):
    from hfutil import optimum_decoder, versions
    optimum_decoder(llama_model(), out)
    return _spec(out, "llama", versions(True) + "; optimum-cli export onnx --task text-generation-with-past", 2, 4, 12,
                 mask=["M3"], features=["gqa", "rope"])


@fixture("gpt2_optimum", env="optimum")
def f(out):
    from transformers import GPT2Config, GPT2LMHeadModel
    from hfutil import reinit, optimum_decoder, versions
    m = reinit(GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=128, n_embd=48, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)), 2, emb=0.5)
    optimum_decoder(m, out)
    return _spec(out, "gpt2", versions(True) + "; optimum-cli export onnx --task text-generation-with-past", 4, 4, 12,
                 mask=["M3"], features=["mha", "learned-positions"])


@fixture("qwen2_optimum", env="optimum")
def f(out):
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from hfutil import reinit, optimum_decoder, versions
    m = reinit(Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)), 3)
    optimum_decoder(m, out, opset=17)
    return _spec(out, "qwen2", versions(True) + "; optimum-cli export onnx --task text-generation-with-past --opset 17", 2, 4, 16,
                 mask=["M3"], features=["gqa", "rope", "qkv-bias"])


@fixture("llama_optimum_merged", env="legacy")
def f(out):
    from hfutil import optimum_decoder, versions
    optimum_decoder(llama_model(seed=4), out, prefer=("decoder_model_merged.onnx",), extra=("--legacy",))
    return _spec(out, "llama", versions(True) + "; optimum-cli export onnx --task text-generation-with-past --legacy (decoder_model_merged.onnx)", 2, 4, 12,
                 patterns=["C11", "C1"], mask=["M2"], expect="partial", features=["gqa", "rope", "if-merged"],
                 steps=[5, 1, 1, 1, 1], drive=dict(notes="the past branch was traced with S=1 and carries no causal mask: it is only a decoder for S=1"),
                 why="growing caches inside the branches of one If; the past branch has no causal mask (traced with S=1)")


@fixture("llama_optimum_legacy", env="legacy")
def f(out):
    from hfutil import optimum_decoder, versions
    optimum_decoder(llama_model(seed=5), out, prefer=("model.onnx",))
    return _spec(out, "llama", versions(True) + "; optimum-cli export onnx --task text-generation-with-past", 2, 4, 12,
                 mask=["M2"], features=["gqa", "rope"])


@fixture("llama_optimum_prefill_only", env="optimum")
def f(out):
    from hfutil import optimum_decoder, versions
    optimum_decoder(llama_model(seed=6), out, task="text-generation")
    return _spec(out, "llama", versions(True) + "; optimum-cli export onnx --task text-generation", 2, 4, 12, patterns=[], growing=None, mask=["M3"],
                 expect="refuse", why="no past inputs at all: nothing to convert", steps=[5], features=["gqa", "no-cache"])


@fixture("llama_decoder_first_legacy", env="legacy")
def f(out):
    from hfutil import optimum_decoder, versions
    optimum_decoder(llama_model(seed=8), out, prefer=("decoder_model.onnx",), extra=("--legacy",))
    return _spec(out, "llama", versions(True) + "; optimum-cli export onnx --task text-generation-with-past --legacy (decoder_model.onnx)", 2, 4, 12, patterns=[],
                 growing=None, mask=["M1"], expect="refuse", why="prefill half of a pair: present outputs exist but no past inputs", steps=[5],
                 features=["gqa", "prefill-only"])


@fixture("gpt_oss_optimum", env="optimum")
def f(out):
    from transformers import GptOssConfig, GptOssForCausalLM
    from hfutil import reinit, optimum_decoder, versions
    m = reinit(GptOssForCausalLM(GptOssConfig(vocab_size=96, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               head_dim=12, sliding_window=6, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=128, rope_scaling=None,
               layer_types=["sliding_attention", "full_attention"], bos_token_id=1, eos_token_id=2, pad_token_id=0)), 15)
    optimum_decoder(m, out)
    return _spec(out, "gpt_oss", versions(True) + "; optimum-cli export onnx --task text-generation-with-past", 2, 4, 12, expect="partial", windows={"0": 6},
                 why="attention sinks have no Attention-24 form: only the cache update can be rewritten", features=["gqa", "rope", "sinks", "sliding", "moe"])
