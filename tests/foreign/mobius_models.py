"""Builds models with the exporter mobius-onnx at tiny size. Needs the packages of requirements.txt.

A kind is built with the first of a few configurations that its class accepts, so some models are not
valid: their shapes disagree, or they do not run. Weights are random numbers that depend on the name
of the weight alone.
"""
import hashlib
import re

SIZES = dict(vocab_size=96, max_position_embeddings=64, hidden_size=64, intermediate_size=128,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             hidden_act="silu", pad_token_id=0, rope_type="default")
# Kinds without groups ignore num_key_value_heads, and need as many as there are heads.
HEADS = dict(num_key_value_heads=4, query_pre_attn_scalar=16, rope_local_base_freq=10000.0)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
               n_shared_experts=1, shared_expert_intermediate_size=32, sliding_window=8)
LAYERS = dict(layer_types=["full_attention", "sliding_attention"])
LATENT = dict(kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16)
STATES = dict(state_size=8, mamba_d_state=8, mamba_d_conv=4, mamba_n_heads=4, mamba_d_head=16,
              conv_kernel=4, linear_num_value_heads=4, linear_num_key_heads=2,
              linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
              decoder_layers=2, encoder_layers=2, num_decoder_layers=2, num_encoder_layers=2)
SECTIONS = dict(mrope_section=[2, 3, 3])
CONFIGURATIONS = [
    SIZES | HEADS,
    SIZES | HEADS | EXPERTS,
    SIZES | HEADS | EXPERTS | LAYERS,
    SIZES | HEADS | EXPERTS | STATES | LATENT,
    SIZES | HEADS | EXPERTS | STATES | LATENT | SECTIONS,
    SIZES | HEADS | EXPERTS | STATES | LATENT | dict(layer_types=["full_attention", "linear_attention"]),
]
VISION = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
              image_size=28, patch_size=14, out_hidden_size=64, head_dim=16, image_token_id=5,
              num_position_embeddings=16, mm_tokens_per_image=4, mrope_section=[2, 3, 3],
              rope_theta=10000.0, position_embedding_size=16, pooling_kernel_size=1, hidden_act="gelu",
              fullatt_block_indexes=[0], deepstack_visual_indexes=[0], window_size=28,
              image_crop_size=28)
AUDIO = dict(d_model=32, attention_dim=32, attention_heads=2, num_blocks=2, linear_units=64,
             encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=64, num_mel_bins=16,
             max_source_positions=64, downsample_hidden_size=8, output_dim=64, n_window=8,
             n_window_infer=16, input_size=16, kernel_size=3, tp_num_blocks=1, audio_token_id=7,
             token_id=7, adaptor_num_blocks=1, adaptor_proj_dim=64, adaptor_ffn_dim=64,
             adaptor_num_heads=2)
# Kinds that no configuration of the list above suits: a word that their names contain, the class of
# their configuration (None: that of the registry), and its fields.
OWN_CONFIGURATIONS = [
    ("deepseek_v4", None, dict(
        num_attention_heads=4, num_key_value_heads=1, head_dim=16, q_lora_rank=8,
        qk_rope_head_dim=4, o_groups=2, o_lora_rank=8, num_local_experts=2, num_experts_per_tok=1,
        moe_intermediate_size=16, n_shared_experts=1, scoring_func="sqrtsoftplus",
        routed_scaling_factor=1.5, num_hash_layers=1, hc_mult=2, hc_sinkhorn_iters=2,
        swiglu_limit=10.0, rope_interleave=True, index_n_heads=2, index_head_dim=8, index_topk=4)),
    ("gemma3n", "Gemma3nConfig", dict(
        altup_num_inputs=2, laurel_rank=8, hidden_size_per_layer_input=16,
        layer_types=["sliding_attention", "full_attention"], sliding_window=8,
        rope_local_base_freq=10000.0)),
    ("mllama", "MllamaConfig", dict(cross_attention_layers=[1], image_token_id=5)),
    ("internvl", "VisionLanguageConfig", dict(image_token_id=5)),
    ("eagle3", "Eagle3Config", dict(
        draft_vocab_size=48, num_hidden_layers=1, layer_types=["full_attention"])),
    ("dflash", "DFlashConfig", dict(target_layer_ids=[0, 1])),
    ("assistant", "Gemma4AssistantConfig", dict(
        backbone_hidden_size=32, num_kv_shared_layers=2, global_head_dim=16,
        layer_types=["sliding_attention", "full_attention"], sliding_window=8)),
    ("qwen3_asr", None, SECTIONS),
    ("qwen3_forced_aligner", None, SECTIONS),
    ("qwen3_tts", None, SECTIONS | dict(vocab_size=2304)),
]
# Tasks of kinds for which the registry names one that does not build.
TASKS = {"qwen3_tts": "tts"}
# What the classes of some kinds ask of a configuration that is not a field of it.
ATTRIBUTES = dict(query_pre_attn_scalar=16, shared_intermediate_size=32, cross_attention_layers=[1],
                  attention_hidden_size=64, rope_local_base_freq=10000.0,
                  attn_logit_softcapping=50.0, final_logit_softcapping=30.0)

def fill(model):
    import numpy as np
    import onnx_ir as ir
    for name, value in model.graph.initializers.items():
        if value.const_value is not None:
            continue
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        dims = [int(d) for d in value.shape]
        scale = 0.2 if len(dims) > 1 else 0.1
        numbers = np.random.default_rng(seed).normal(0, scale, dims)
        if len(dims) == 1 and name.endswith("weight"):
            numbers += 1  # of a norm
        value.const_value = ir.tensor(numbers.astype(value.dtype.numpy()), name=name)


def own_configuration(kind):
    """The class and the fields that OWN_CONFIGURATIONS give a kind: None and {} without any."""
    for word, name, sizes in OWN_CONFIGURATIONS:
        if word in kind.lower():
            return name, sizes
    return None, {}


def build(kind, task, provider, dtype, sizes, vision, attributes):
    import dataclasses
    import mobius
    import onnx_ir as ir
    from mobius import _configs
    from mobius._configs._sub_configs import AudioConfig, VisionConfig
    from mobius._registry import registry
    own_class, own_sizes = own_configuration(kind)
    maker = registry.get_config_class(kind) or mobius.ArchitectureConfig
    if own_class:
        maker = getattr(_configs, own_class)
    sizes = sizes | own_sizes
    fields = {f.name for f in dataclasses.fields(maker)}
    given = {k: v for k, v in sizes.items() if k in fields}
    if dtype != "float32":
        given["dtype"] = ir.DataType[dtype.upper()]
    if vision and "vision" in fields:
        given["vision"] = VisionConfig(**VISION)
    if "audio" in fields and any(word in kind for word in ("asr", "aligner")):
        given["audio"] = AudioConfig(**AUDIO)
    config = maker(**given)
    for name, value in attributes.items():
        object.__setattr__(config, name, value)
    module = registry.get_registration(kind).module_class(config)
    return mobius.build_from_module(module, config, task, execution_provider=provider)


def configurations_of(kind):
    """Yields (sizes, vision), the ones that suit most kinds first."""
    sections = any(word in kind for word in ("vl", "omni", "qwen3_5"))
    for vision in (False, True):
        for sizes in ([SIZES | HEADS | SECTIONS] if sections else []) + CONFIGURATIONS:
            yield sizes, vision


def package_of(kind, configuration, task, provider="default", dtype="float32"):
    """Returns the models of a kind, with random weights, by component. `task` is one of the
    exporter's tasks, or the name of one. Raises what the exporter raises."""
    sizes, vision = configuration
    attributes = {}
    while True:
        try:
            package = build(kind, task, provider, dtype, sizes, vision, attributes)
            break
        except (AttributeError, TypeError) as error:
            missing = re.search(r"no attribute '(\w+)'", str(error))
            if not missing or missing.group(1) in attributes or missing.group(1) not in ATTRIBUTES:
                raise
            attributes[missing.group(1)] = ATTRIBUTES[missing.group(1)]
    for model in package.values():
        fill(model)
    return package
