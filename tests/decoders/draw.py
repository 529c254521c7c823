"""A decoder at random: all dimensions of choice at once, as far as they go together."""

import numpy as np

from decoders.masks import NEEDS_INPUT, READS_INPUT
from decoders.spec import Spec

GROWING = {
    "C1": 8,
    "C5b": 1,
    "C6": 1,
    "C7": 1,
    "C7_split": 1,
    "C7_slice": 1,
    "C7_whole": 1,
    "C8": 1,
    "C8_heads": 1,
    "C8_flat": 1,
    "C9": 2,
    "C9_first": 1,
    "C10": 1,
    "C12_plain": 1,
    "C12_heads": 1,
    "C15": 1,
    "latent": 1,
    "shared": 1,
    "C5": 1,
    "O1": 1,
    "O2": 1,
    "O3": 1,
    "O4": 1,
    "miss_reversed": 1,
    "miss_decayed": 1,
    "miss_past_read": 1,
    "miss_keys_computed": 1,
    "miss_swapped": 1,
}
SHARED_START = {
    "S1": 2,
    "S2": 1,
    "S3": 2,
    "S4": 1,
    "S5": 2,
    "S5_bsnd": 1,
    "S9": 3,
    "S9_bsnd": 1,
    "S9_add": 1,
    "S9_expand": 1,
    "S10": 2,
    "S10_bsnd": 1,
    "S11": 1,
    "S11_whole": 1,
    "S13": 1,
    "S14": 1,
    "S15": 1,
    "R4": 2,
    "R4_bsnd": 1,
    "R7": 1,
    "R8": 2,
    "R8_bsnd": 1,
    "flat_rows": 1,
    "one_for_all": 1,
    "latent_fixed": 1,
    "miss_reduction": 1,
    "miss_stride": 1,
    "miss_reversed_slots": 1,
    "miss_offset_value": 1,
    "miss_decayed_buffer": 1,
    "miss_second_write": 1,
    "miss_negative": 1,
}
OWN_START = {"S8": 2, "S12": 1, "S12_plain": 1, "S17": 2, "S17_bsnd": 1, "flat_rows": 1}
ONE_TOKEN = {"S6": 2, "S7": 1, "S17": 1, "R5": 2, "R5_bsnd": 1, "R6": 1, "R6_equal": 1, "S8": 1}
NEEDS_RANGE_START = {
    "S5",
    "S5_bsnd",
    "S10",
    "S10_bsnd",
    "R4",
    "R4_bsnd",
    "R7",
    "R8",
    "R8_bsnd",
    "S14",
}
GROWING_MASKS = [
    "M1",
    "M2",
    "M2_sliding",
    "M3",
    "M3",
    "M3_flat",
    "M3_nd",
    "M3_sliding",
    "M5",
    "M6",
    "M7",
    "M7_uint8",
    "M8",
    "M8_sliding",
    "M10",
    "host_float",
    "host_bool",
    "host_select",
    "blocks",
    "dilated",
    "first_and_window",
    "none",
    "trilu",
    "trilu_shifted",
]
FIXED_MASKS = [
    "M2",
    "M3",
    "M3",
    "M3_sliding",
    "M6",
    "M8",
    "M8_sliding",
    "host_float",
    "host_bool",
    "blocks",
    "dilated",
]
BATCH_MASKS = ["M3", "M3_sliding", "M8", "M8_sliding", "M6_batch", "blocks"]
SCALES = [
    "after_mul",
    "after_mul_left",
    "after_div",
    "after_pow",
    "q_before",
    "q_linear",
    "k_before",
    "both",
    "both_div",
    "run_time",
    "none",
]
# Operators of com.microsoft that carry the past themselves.
FUSED = ("O2", "O3", "O4")
REPEATS = ["expand", "expand_where", "tile", "concat", "interleave", "gather", "wrong_tile"]


class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def one(self, choices):
        if isinstance(choices, dict):
            weights = np.array(list(choices.values()), float)
            return str(self.rng.choice(list(choices), p=weights / weights.sum()))
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share):
        return bool(self.rng.random() < share)


def attention(d, opset, fp16):
    changes = {
        "scale": d.one(SCALES),
        "repeat": d.one(REPEATS),
        "qk": d.one(["transpose"] * 5 + ["three", "einsum", "fused", "heads"]),
        "softcap": d.one([0.0, 0.0, 0.0, 15.0]),
        "sinks": d.chance(0.06),
        "softmax_cast": fp16 or d.chance(0.1),
        "dropout": d.chance(0.1),
        "qk_norm": d.one(["", "", "before", "after"]),
        "low": d.one(["min", "min", "inf", "ten_thousand"]),
    }
    if opset < 12 and changes["qk"] == "einsum":
        changes["qk"] = "three"
    if changes["sinks"] and opset < 13:
        changes["sinks"] = False
    changes["nan_guard"] = changes["low"] == "inf" and d.chance(0.5)
    return changes


def heads(d, cache):
    q = d.one([2, 4])
    kv = (
        q
        if cache in ("C5", "R8_bsnd", "latent", "latent_fixed", "O3", "O4") or d.chance(0.3)
        else d.one([1, 2])
    )
    return {"q_heads": q, "kv_heads": kv, "head": d.one([4, 8]), "hidden": d.one([16, 24])}


def grown(d, opset):
    cache = d.one(GROWING)
    mask = d.one(GROWING_MASKS)
    if cache == "O1":
        opset, mask = d.one([23, 24]), d.one(["M3", "none", "M3_sliding"])
    changes = {
        "cache": cache,
        "position_input": d.one(["", "ids", "ids", "ids3"]),
        "length_from": d.one(["past", "past", "past_value"]),
        "names": d.one(["optimum", "optimum", "plain", "modelopt", "opaque", "winml"]),
        "symbols": d.one(["shared", "formula", "independent"]),
        "bias": d.one(
            [""] * 6
            + ["alibi_keys", "alibi_distance", "alibi_abs", "alibi_table", "t5", "t5_square"]
        ),
        "steps": (4, 1, 1, 3, 1),
    }
    if cache == "O1":
        changes["bias"] = ""
    if cache in FUSED:
        opset = d.one([15, 17, 20])
        mask = d.one(["M3", "none", "M3_sliding", "host_float"]) if cache == "O3" else "none"
        features = ["raw_mask"] if cache == "O4" else ["flat", "local", "rotary", "packed"]
        changes |= {
            "bias": "",
            "features": () if cache == "O3" else tuple(f for f in features if d.chance(0.5)),
            "check": False,
        }
    if cache in ("C8", "C8_heads", "C8_flat"):
        changes["length_from"] = "past"
    masks = (mask,) if d.chance(0.8) or cache in ("O2", "O4") else (mask, "M3")
    return changes, opset, masks


def held(d):
    """A buffer of fixed capacity: one start for all, one per sequence, or single tokens."""
    kind = d.one(["shared", "shared", "own", "token"])
    if kind == "shared":
        cache = d.one(SHARED_START)
        start = (
            d.one(["start", "start1"])
            if cache in NEEDS_RANGE_START
            else d.one(["pos_s", "pos_s", "start", "start1"])
        )
        if cache == "S14":
            start = "start"
        masks = [m for m in FIXED_MASKS if m not in ("M2",) or start == "pos_s"]
        changes = {"position_input": start, "steps": (4, 1, 1, 3, 1)}
    elif kind == "own":
        cache, masks = d.one(OWN_START), BATCH_MASKS
        changes = {
            "position_input": (
                "pos_bs" if cache in ("S12",) else d.one(["pos_bs", "start_b", "start_b1"])
            ),
            "steps": (4, 1, 1, 3, 1),
        }
    else:
        cache, masks = d.one(ONE_TOKEN), BATCH_MASKS
        changes = {"position_input": d.one(["start_b", "start_b1"]), "tokens": 1, "steps": (1,) * 5}
    mask = d.one(masks)
    return changes | {
        "cache": cache,
        "capacity": 16,
        "bias": d.one(["", "", "", "", "alibi_distance", "t5"]),
    }, (mask,)


def random_spec(seed):
    d = Draw(seed)
    opset = d.one([11, 12, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23])
    fp16 = d.chance(0.12)
    if d.chance(0.55):
        changes, opset, masks = grown(d, opset)
    else:
        changes, masks = held(d)
    cache = changes["cache"]
    if opset < 14 and {"M5", "trilu", "trilu_shifted"} & set(masks):
        opset = 14
    if changes["bias"].startswith("t5") or cache == "S14":
        opset = max(opset, 12)
    if cache == "C10":
        opset, fp16 = max(opset, 13), False
    if cache == "miss_reduction":
        opset = max(opset, 16)
    if cache == "S12":
        opset = max(opset, 13)
    can_read = all(m in READS_INPUT for m in masks)
    changes["mask_input"] = bool(set(masks) & NEEDS_INPUT) or can_read and d.chance(0.6)
    changes |= heads(d, cache)
    changes |= attention(d, opset, fp16)
    if cache == "O1" or cache in FUSED:
        changes |= {"scale": d.one(["after_mul", "q_linear"]), "sinks": False}
    if cache in FUSED:
        changes["softcap"] = 0.0
    if cache == "O2":  # what ONNX Runtime takes
        changes |= {"mask_input": True, "head": 16, "recorded_batch": 1}
    if cache == "O4":
        changes["mask_input"] = "raw_mask" in changes["features"]
    if "capacity" in changes and changes["low"] == "ten_thousand":
        changes["low"] = "min"  # behind -10000 even the original reads stale slots
    if changes["low"] == "inf" and any(m.startswith(("M2", "M7")) for m in masks):
        changes |= {"low": "min", "nan_guard": False}  # these multiply: 0 times infinity
    if changes["qk"] == "heads" and changes["bias"]:
        changes["qk"] = "transpose"  # a bias has all heads
    if changes["bias"] or "rotary" in changes.get("features", ()):
        positions = "none"
    else:
        positions = d.one(
            [
                "rope",
                "rope",
                "rope_table",
                "rope_partial",
                "rope_pairs",
                "learned",
                "learned2",
                "none",
            ]
        )
    if not changes["kv_heads"] == changes["q_heads"] and changes["kv_heads"] == 1 and d.chance(0.5):
        changes["repeat"] = "broadcast"
    noise = tuple(
        n
        for n, share in (
            ("identity", 0.25),
            ("casts", 0.15),
            ("dead", 0.1),
            ("constants", 0.2),
            ("names", 0.4),
            ("order", 0.3),
            ("infos", 0.3),
        )
        if d.chance(share)
    )
    if cache == "C1" and opset >= 13 and d.chance(0.08) and changes["length_from"] == "past":
        noise = ("merge",)
    return Spec(
        name=f"seed {seed}",
        layers=d.one([1, 2]),
        vocab=24,
        seed=seed,
        opset=opset,
        dtype="float16" if fp16 else "float32",
        mask=masks,
        positions=positions,
        constants=d.one(["initializer", "node"]),
        shape_style=d.one(["gather", "gather1", "slice", "attr"]),
        ids_dtype=d.one(["int64", "int64", "int32"]),
        batch=1 if cache == "paged" else d.one([0, 0, 0, 2 if cache != "O2" else 0]),
        noise=noise,
        norm=d.one(["rms", "layer"]),
        cross=d.one(["", "", "", "", "inputs", "present"]) if cache != "O2" else "",
        ids=d.one(["input_ids"] * 5 + ["inputs_embeds"]),
        **changes,
    )
