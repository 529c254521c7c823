"""The named decoders: one or more for each row of the pattern catalogue."""
from decoders.decoder import Build
from decoders.spec import Spec

GROWING = Spec(layers=2)
FIXED = Spec(cache="S3", position_input="pos_s", mask=("M3",), mask_input=False, why="a buffer of fixed capacity, written by index")
ONE_TOKEN = FIXED.but(tokens=1, position_input="start_b", steps=(1,) * 6)


def build(spec):
    """(model, what a host has to know) of a Spec."""
    b = Build(spec)
    model = b.model()
    if "merge" in spec.noise:
        b.feeds["use_cache_branch"] = "flag_past"
    if spec.noise:
        from decoders.noise import disturb

        disturb(model, spec.noise, spec.seed, {c[k] for c in b.caches for k in ("input", "output")})
    return model, {
        "batch": spec.batch or spec.recorded_batch,
        "growing": b.growing,
        "capacity": None if b.growing else spec.capacity,
        "caches": b.caches,
        "feeds": b.feeds,
        "steps": spec.steps,
        "consts": b.consts,
    }


def grow(name, rows, **changes):
    return GROWING.but(name=name, rows=tuple(rows.split()), **changes)


def hold(name, rows, base=FIXED, **changes):
    return base.but(name=name, rows=tuple(rows.split()), **changes)


CONCATS = [
    grow("concat_bnsd_range_positions", "C1 M3"),
    grow("concat_position_ids_m1_opset14", "C1 M1", mask=("M1",), position_input="ids", opset=14, symbols="formula"),
    grow("concat_m2_scatter_mask", "C1 M2", mask=("M2",), scale="both", nan_guard=False, symbols="independent"),
    grow("concat_m4_inf_guard_fp16", "C1 M3 M4", dtype="float16", low="inf", nan_guard=True, softmax_cast=True, opset=18, scale="both"),
    grow("concat_modelopt_names_no_mask", "C13", names="modelopt", mask_input=False, mask=("trilu_shifted",), opset=19, position_input="ids"),
    grow("concat_bsnd", "C9", cache="C9", position_input="ids"),
    grow("concat_sbnd_chatglm", "C9 M3", cache="C9_first", position_input="ids", positions="rope_partial", low="ten_thousand"),
    grow("concat_key_transposed_mpt_alibi", "C5b", cache="C5b", kv_heads=4, positions="none", bias="alibi_keys", family="mpt", norm="layer"),
    grow("concat_bloom_folded_heads", "C5 M2", cache="C5", kv_heads=4, positions="none", bias="alibi_mask", mask=("M2",), family="bloom"),
    grow("concat_bloom_alibi_mask", "C1 M11", kv_heads=4, positions="none", bias="alibi_mask", mask=("M3",), family="bloom", norm="layer"),
    grow("concat_packed_heads", "C6", cache="C6", kv_heads=4, q_heads=4, positions="learned", position_input="ids", family="gpt_bigcode"),
    grow("concat_packed_multi_query", "C6", cache="C6_one", kv_heads=1, repeat="broadcast", positions="learned", position_input="ids", family="gpt_bigcode"),
    grow("concat_stacked_gather", "C7 M7", cache="C7", kv_heads=4, positions="learned", position_input="ids", mask=("M7",), scale="after_pow", family="gpt2", low="ten_thousand"),
    grow("concat_stacked_split", "C7 M7", cache="C7_split", kv_heads=4, positions="learned", position_input="ids", mask=("M7_uint8",), opset=12, family="gpt2", ids_dtype="int32"),
    grow("concat_stacked_slice_gqa", "C7", cache="C7_slice", position_input="ids"),
    grow("concat_stacked_appended_whole", "C7", cache="C7_whole", position_input="ids"),
    grow("concat_all_layers_bsnd_host_mask", "C8", cache="C8", position_input="ids", mask=("host_float",), mask_input=False, family="mnn"),
    grow("concat_all_layers_bnsd", "C8", cache="C8_heads", position_input="ids"),
    grow("concat_all_layers_flat", "C8", cache="C8_flat", position_input="ids", layers=3),
    grow("concat_window_and_full", "C2 M3", cache="C2", mask=("kept_window", "M3"), symbols="independent", family="gemma3", qk_norm="after", layers=2),
    grow("concat_window_only_positions", "C2", cache="C2", mask=("kept_window",), mask_input=False, length_from="position", position_input="ids", symbols="independent", family="mistral"),
    grow("concat_sliding_mask_padding", "C1 M11", mask=("M3_sliding",), position_input="ids", family="phi3", shape_style="slice"),
    grow("concat_sliding_every_other_layer", "C1 M3", mask=("M3_sliding", "M3"), layers=3, softcap=20.0, scale="q_linear", family="gemma2", opset=18),
    grow("concat_m2_sliding", "M2", mask=("M2_sliding",), position_input="ids", family="mistral"),
    grow("concat_flat_mask_lookup", "M3", mask=("M3_flat",), position_input="ids", opset=18, constants="node"),
    grow("concat_gathernd_mask_lookup", "M3", mask=("M3_nd",), position_input="ids", opset=18, shape_style="attr"),
    grow("concat_t5_relative_bias", "M3", bias="t5", positions="none", scale="none", family="t5", kv_heads=4, head=8, expect="convert"),
    grow("concat_t5_relative_bias_square", "M3", bias="t5_square", positions="none", scale="none", family="t5", kv_heads=4),
    grow("concat_alibi_distance", "M11", bias="alibi_distance", positions="none", kv_heads=4, mask_input=False, mask=("trilu_shifted",), opset=18),
    grow("concat_alibi_absolute", "M11", bias="alibi_abs", positions="none", kv_heads=4, position_input="", family="jais"),
    grow("concat_alibi_constant_table", "M11", bias="alibi_table", positions="none", kv_heads=4, mask_input=False, mask=("trilu",), family="baichuan2", scale="after_div"),
    grow("concat_cross_attention", "C1 M3", cross="inputs", kv_heads=4, positions="learned", family="bart", scale="q_linear", norm="layer", why="self-attention caches grow, cross caches are read only"),
    grow("concat_cross_attention_t5", "C1 M3", cross="inputs", kv_heads=4, positions="none", bias="t5", scale="none", family="t5", why="relative bias, cross caches are read only"),
    grow("concat_cross_attention_passed_on", "C1", cross="present", kv_heads=4, positions="learned2", family="whisper", mask_input=False, mask=("M3",), why="cross caches are handed through"),
    grow("concat_learned_offset_opt", "C1", positions="learned2", position_input="mask", kv_heads=4, scale="q_linear", norm="layer", family="opt", mask=("M3",)),
    grow("concat_merged_heads_mha_op", "C3 M1", cache="C3", position_input="ids", kv_heads=2, mask=("M1",), opset=17, family="genai", check=False),
    grow("concat_beam_gather", "C15", cache="C15", position_input="ids"),
    grow("concat_pre_sliced_past", "C4", cache="C4", position_input="ids", mask=("host_bool",), mask_input=False, expect="report", why="the past is cut to a length that the host gives"),
    grow("concat_pad_add", "C14", cache="C14", tokens=1, steps=(1,) * 6, position_input="ids", expect="report", why="a zero slot is appended and filled by an addition"),
    grow("concat_quantised_cache", "C10", cache="C10", position_input="ids", expect="report", why="the cache holds quantised rows", corpus=False),
    grow("concat_per_head_caches", "C12", cache="C12_heads", position_input="ids", batch=0, family="qnn", expect="report", why="one cache for each head"),
    grow("concat_new_rows_out", "C12", cache="C12", position_input="ids", mask=("host_float",), mask_input=False, family="qnn", expect="report", why="only the new rows come out; the host keeps the cache"),
    grow("concat_latent_mla", "C1", cache="latent", kv_heads=4, position_input="ids", positions="learned", family="deepseek", expect="report", why="a compressed cache; keys and values are rebuilt behind it"),
    grow("concat_mla_decompressed", "C1", kv_heads=4, head=12, v_head=8, position_input="ids", family="deepseek", why="keys wider than values"),
    grow("concat_shared_kv_layers", "C1", cache="shared", layers=4, position_input="ids", family="gemma3n", why="odd layers read the cache of the layer before"),
    grow("concat_mqa_broadcast", "C1", kv_heads=1, repeat="broadcast", position_input="ids", family="falcon"),
    grow("concat_fused_matmul", "C1", qk="fused_matmul", scale="fused", position_input="ids", check=False, family="ort optimised"),
    grow("concat_einsum_bsnd", "C9", cache="C9", kv_heads=4, qk="einsum", scale="q_before", position_input="ids", family="keras", opset=13),
    grow("concat_fused_transpose_bsnd", "C9", cache="C9", kv_heads=4, qk="fused", position_input="ids"),
    grow("concat_by_head", "C1", qk="heads", position_input="ids", family="qnn", expect="report", why="one small attention per head"),
    grow("concat_sinks", "C1", sinks=True, position_input="ids", expect="partial", family="gpt_oss", opset=18, why="attention sinks have no Attention-24 form: only the cache update can be rewritten"),
    grow("concat_prefix_mask", "M3", mask=("prefix",), mask_input=False, position_input="ids", why="the first tokens see each other"),
    grow("concat_chunked_attention", "M3", mask=("blocks", "M3"), mask_input=True, position_input="ids", family="llama4"),
    grow("concat_first_tokens_and_window", "M3", mask=("first_and_window",), mask_input=False, position_input="ids"),
    grow("concat_dilated", "M3", mask=("dilated",), mask_input=False, position_input="ids"),
    grow("concat_host_bool_select", "M3", mask=("host_select",), mask_input=False, position_input="ids"),
    grow("concat_top_left_causal", "M5", mask=("M5",), mask_input=False, position_input="ids", low="inf", expect="report", why="is_causal aligned top-left behind a past: kept as it is, or refused", corpus=False),
    grow("concat_attention_op_opset23", "O1", qk="op", opset=23, norm="fused_rms", positions="rope_op", position_input="", mask=("M3",)),
    grow("concat_attention_op_top_left", "O1", qk="op", opset=23, mask=("op_causal",), mask_input=False, position_input="ids", expect="report", why="is_causal=1 without past is aligned top-left: kept as it is, or refused", corpus=False),
    grow("concat_merged_branches", "C11", cache="C1", position_input="ids", mask=("M3",), noise=("merge",), expect="partial", why="growing caches inside the branches of one If"),
    grow("concat_static_batch_names_random", "C1", batch=1, noise=("names", "order", "identity", "casts"), position_input="ids"),
    grow("concat_rope_pairs_codegen", "C1", positions="rope_pairs", position_input="ids", kv_heads=4, family="gptj", shape_style="attr"),
    grow("concat_embeds_mrope", "C1", ids="inputs_embeds", position_input="ids3", family="qwen2_vl"),
    grow("concat_opset11", "C1", opset=11, position_input="ids"),
    grow("concat_wrong_head_order", "C1", repeat="wrong_tile", position_input="ids", expect="report", why="heads repeat as h0 h1 h0 h1, which is not grouped attention"),
]

OPERATORS = [
    grow("op_attention23_past_mask", "O1", cache="O1", opset=23, mask=("M3",), position_input="ids", expect="convert", why="Attention-23 with past and present"),
    grow("op_attention24_past_causal", "O1", cache="O1", opset=24, mask=("none",), mask_input=False, position_input="ids", expect="convert", why="Attention-24 with past and present, is_causal"),
    grow("op_attention23_softcap", "O1", cache="O1", opset=23, mask=("M3_sliding", "M3"), softcap=20.0, norm="fused_rms", why="Attention-23 with past and present"),
    grow("op_gqa", "O2 M10", cache="O2", position_input="ids", check=False, recorded_batch=1, mask=("none",), expect="report", why="caches live inside GroupQueryAttention"),
    grow("op_gqa_rotary_packed", "O2 M10", cache="O2", positions="none", head=16, features=("rotary", "packed"), check=False, recorded_batch=1, mask=("none",), expect="report", why="caches live inside GroupQueryAttention, rotary inside"),
    grow("op_gqa_local_window", "O2 M10", cache="O2", positions="none", head=16, features=("rotary", "local"), check=False, recorded_batch=1, mask=("none",), expect="report", why="caches live inside GroupQueryAttention, with a window"),
    grow("op_gqa_shared_buffer", "O2", cache="O2_shared", positions="none", head=16, features=("rotary",), check=False, recorded_batch=1, mask=("none",), position_input="start", expect="report", why="GroupQueryAttention over a shared buffer"),
    grow("op_mha_past_bias", "O3", cache="O3", kv_heads=4, position_input="ids", check=False, expect="report", why="MultiHeadAttention with past and present"),
    grow("op_mha_past_causal", "O3", cache="O3", kv_heads=4, position_input="ids", check=False, mask=("none",), mask_input=False, expect="report", why="MultiHeadAttention with past and present, unidirectional"),
    grow("op_attention_stacked_past", "O4", cache="O4", kv_heads=4, positions="learned", position_input="ids", check=False, mask=("none",), mask_input=False, expect="report", family="gpt2", why="com.microsoft Attention with a stacked past"),
    grow("hybrid_conv_states", "O7", cache="O7", position_input="ids", layers=3, expect="report", family="lfm2", why="states of convolutions beside keys and values"),
    grow("moe_scatter_routing", "C1", features=("moe",), position_input="ids", family="qwen3_moe", why="routers scatter into zeros; caches are plain"),
    grow("prefill_only", "C11", cache="prefill", expect="refuse", mask=("M3",), steps=(5,), why="presents come out, no past goes in"),
    grow("no_cache_mask_scatter", "M2", cache="no_cache", expect="refuse", mask=("M2",), steps=(5,), why="a scatter draws the mask; there is no cache"),
    grow("recurrent_state", "O7", cache="recurrent", expect="refuse", mask=("trilu",), mask_input=False, positions="none", steps=(1,) * 5, why="a state that fades is no cache of tokens"),
    grow("optimised_extended", "C1", optimise="extended", position_input="ids", check=False, family="ort optimised", scale="after_mul"),
    grow("optimised_extended_ts", "C1 M1", optimise="extended", mask=("M1",), opset=14, position_input="ids", check=False, family="ort optimised", kv_heads=4, norm="layer"),
    grow("optimised_basic", "C1 M3", optimise="basic", mask=("M3_flat",), opset=18, shape_style="attr", family="ort optimised"),
    hold("optimised_static", "S1", cache="S1", optimise="extended", check=False, family="ort optimised"),
    hold("optimised_static_put", "S9", cache="S9", optimise="basic", opset=18, family="ort optimised"),
    hold("optimised_static_slice", "S5", cache="S5", optimise="basic", position_input="start", family="ort optimised"),
]

SCATTERS = [
    hold("static_index_copy_ts", "S1 M6", cache="S1", mask=("M6",)),
    hold("static_index_copy_ts_bsnd", "S2", cache="S2"),
    hold("static_index_put_ts", "S3 M3", cache="S3", low="inf"),
    hold("static_index_put_ts_bsnd", "S4 M9", cache="S4", mask=("M3",), mask_input=True),
    hold("static_slice_assign_scalar", "S5", cache="S5", position_input="start"),
    hold("static_slice_assign_one", "S5", cache="S5_bsnd", position_input="start1", kv_heads=4, qk="fused"),
    hold("static_per_batch_bsnd", "S6", ONE_TOKEN, cache="S6"),
    hold("static_per_batch_bnsd", "S7", ONE_TOKEN, cache="S7"),
    hold("static_scatter_per_token", "S8", cache="S8", position_input="pos_bs", expect="partial", why="free positions per token: contiguous by contract only"),
    hold("static_index_put_dynamo", "S9 M4", cache="S9", low="inf", nan_guard=True, opset=18),
    hold("static_index_put_dynamo_bsnd_expand", "S9", cache="S9_expand", opset=18, shape_style="attr"),
    hold("static_index_put_start", "S9 M8", cache="S9", position_input="start1", mask=("M8",), opset=18),
    hold("static_hybrid_add_zero", "S9 R3", cache="S9_add", mask=("M8_sliding", "M8"), position_input="start"),
    hold("static_slice_scatter", "S10", cache="S10", position_input="start", opset=18),
    hold("static_slice_scatter_bsnd", "S10", cache="S10_bsnd", position_input="start1", opset=18),
    hold("static_three_coordinates", "S11", cache="S11_whole", positions="learned", kv_heads=4, family="bart"),
    hold("static_new_tokens_out", "S11", cache="S11", positions="learned", kv_heads=4, family="bart", expect="report", why="only the new rows come out; the host keeps the cache"),
    hold("static_ctx_scatter_function", "S12", cache="S12", position_input="pos_bs", expect="report", opset=17, why="a model-local function scatters, attention reads a gathered copy"),
    hold("static_ctx_scatter_inline", "S12", cache="S12_plain", position_input="pos_bs", expect="partial", why="free positions per token: contiguous by contract only"),
    hold("static_ring_modulo", "S13", cache="S13", position_input="pos_s", expect="report", why="slots modulo the capacity: circular, or linear below the capacity"),
    hold("static_jax_clamp", "S14", cache="S14", position_input="start", opset=18, expect="partial", why="the clamp shifts an overflowing write", batch=2),
    hold("static_keras_one_buffer", "S15", cache="S15", position_input="pos_s", ids_dtype="int32", family="keras", kv_heads=4),
    hold("static_mobius_reverse", "S16", cache="S16", position_input="start", batch=1, why="a TensorScatter lowered for batch one"),
    hold("static_onnxsim_reverse", "S17", cache="S17", position_input="start_b", mask=("M8",), why="a TensorScatter lowered to ScatterElements"),
    hold("static_onnxsim_reverse_bsnd", "S17", cache="S17_bsnd", position_input="start_b1", mask=("M3",), why="a TensorScatter lowered to ScatterElements"),
    hold("static_flat_rows", "S17", cache="flat_rows", position_input="start_b", why="rows of the flattened buffer, w + s in each"),
    hold("static_flat_rows_shared", "S17", cache="flat_rows", position_input="start", mask=("M8",), why="rows of the flattened buffer, one start for all"),
    hold("static_one_buffer_all_layers", "C8 S9", cache="one_for_all", expect="report", why="one buffer for all layers, put together again from its parts"),
    hold("static_latent_mla", "S9", cache="latent_fixed", kv_heads=4, positions="learned", expect="report", family="deepseek", why="compressed caches; keys and values are rebuilt behind them"),
    hold("static_paged", "S3", cache="paged", batch=1, position_input="pos_s", expect="refuse", why="a scatter through a block table is no TensorScatter"),
    hold("fifo_shift_in_step", "R1 M9", cache="R1", position_input="pos_bs", mask=("host_fifo",), tokens=1, steps=(1,) * 6, expect="refuse", why="the buffer shifts: valid rows sit at its end"),
    hold("roll_and_write_last", "R2", cache="R2", position_input="pos_bs", mask=("host_fifo",), tokens=1, steps=(1,) * 6, expect="refuse", why="the buffer rolls: valid rows sit at its end"),
    hold("window_shifted_when_full", "R3", cache="R3", position_input="pos_s", tokens=1, steps=(1,) * 6, capacity=8, mask=("clipped",), expect="report", why="the buffer starts to shift once it is full"),
    hold("splice_scalar", "R4", cache="R4", position_input="start"),
    hold("splice_one_bsnd", "R4", cache="R4_bsnd", position_input="start1", constants="node"),
    hold("one_hot_select", "R5", ONE_TOKEN, cache="R5"),
    hold("one_hot_select_bsnd", "R5", ONE_TOKEN, cache="R5_bsnd", position_input="start"),
    hold("one_hot_blend", "R6", ONE_TOKEN, cache="R6", expect="partial", why="equal to a write only while the cache is finite"),
    hold("one_hot_blend_equal", "R6", ONE_TOKEN, cache="R6_equal", position_input="start1", expect="partial", why="equal to a write only while the cache is finite"),
    hold("pad_and_add", "R7", cache="R7", position_input="start", expect="report", why="equal to a write only where the slots are zero"),
    hold("read_back_prefix", "R8", cache="R8", position_input="start"),
    hold("read_back_prefix_bsnd", "R8", cache="R8_bsnd", position_input="start1", positions="rope_pairs", kv_heads=4),
    hold("static_sliding", "S3", cache="S3", mask=("M3_sliding",), window=5),
    hold("static_alibi", "M11", cache="S9", bias="alibi_distance", positions="none", kv_heads=4, position_input="pos_s"),
    hold("static_t5_bias", "M3", cache="S9", bias="t5", positions="none", scale="none", kv_heads=4, cross="inputs", family="t5"),
    hold("static_host_mask", "M9", cache="S3", mask=("host_float",)),
    hold("static_mask_only_left_aligned", "M9", ONE_TOKEN, cache="S6", mask=("M9",), mask_input=True),
    hold("static_fp16", "S9", cache="S9", dtype="float16", softmax_cast=True, opset=18),
    hold("static_random_names", "S1", cache="S1", noise=("names", "order", "identity", "casts", "infos")),
    hold("already_tensor_scatter", "O8", cache="O8", position_input="start_b", opset=24, mask=("M8",), expect="report", why="written by TensorScatter already"),
]

MISSES = [
    grow("miss_reversed_concat", "C1", cache="miss_reversed", position_input="ids", expect="refuse", why="new tokens in front of the past"),
    grow("miss_decayed_past", "C1", cache="miss_decayed", position_input="ids", expect="refuse", why="the past is scaled at every step"),
    grow("miss_past_read_again", "C1", cache="miss_past_read", position_input="ids", expect="report", why="the old values are read again: a copy is kept, or a refusal"),
    grow("miss_keys_computed", "C1", cache="miss_keys_computed", position_input="ids", expect="report", why="a Tanh stands between the keys' cache and the attention"),
    grow("miss_appended_twice", "C1", cache="miss_twice", position_input="ids", mask=("none",), mask_input=False, expect="refuse", why="every token takes two rows"),
    grow("miss_present_swapped", "C1", cache="miss_swapped", position_input="ids", kv_heads=4, expect="convert", why="the names mislead: keys come out under the name of values; the host pairs them right"),
    hold("miss_scatter_adds", "S8", cache="miss_reduction", opset=18, expect="refuse", why="rows are added to what stands there"),
    hold("miss_strided_slots", "S9", cache="miss_stride", expect="refuse", why="slots are not contiguous", mask=("none",)),
    hold("miss_slots_from_the_end", "S9", cache="miss_reversed_slots", expect="refuse", why="the buffer is filled backwards", mask=("backwards",)),
    hold("miss_heads_rolled", "S9", cache="miss_offset_value", expect="refuse", why="heads move at every step"),
    hold("miss_decayed_buffer", "S9", cache="miss_decayed_buffer", expect="refuse", why="old rows fade"),
    hold("miss_second_write", "S9", cache="miss_second_write", expect="refuse", why="slot 0 is overwritten at every step"),
    hold("miss_negative_slots", "S9", cache="miss_negative", expect="report", why="slots counted from the end, legal for ScatterND: position minus capacity"),
]

CASES = [*CONCATS, *OPERATORS, *SCATTERS, *MISSES]
