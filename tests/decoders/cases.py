"""The named decoders of cases.txt: one or more for each row of the pattern catalogue."""

import os
from dataclasses import fields

from decoders.decoder import Build
from decoders.noise import disturb
from decoders.spec import Spec

FIXED = Spec(cache="S3", position_input="pos_s", mask_input=False)
BASES = {
    "growing": Spec(),
    "fixed": FIXED,
    "token": FIXED.but(tokens=1, position_input="start_b", steps=(1,) * 6),
}
TYPES = {f.name: type(f.default) for f in fields(Spec)}


def build(spec):
    """(model, what a host has to know) of a Spec."""
    b = Build(spec)
    model = b.model()
    if "merge" in spec.noise:
        b.feeds["use_cache_branch"] = "flag_past"
    disturb(model, spec.noise, spec.seed)
    return model, {
        "batch": spec.batch or spec.recorded_batch,
        "growing": b.growing,
        "capacity": None if b.growing else spec.capacity,
        "caches": b.caches,
        "feeds": b.feeds,
        "steps": spec.steps,
        "consts": b.consts,
    }


def setting(key, text):
    """The value of one field as cases.txt writes it: yes, no, -, a+b, or as it is."""
    kind = TYPES[key]
    if kind is bool:
        return text == "yes"
    if kind is tuple:
        parts = () if text == "-" else tuple(text.split("+"))
        return tuple(int(p) for p in parts) if key == "steps" else parts
    return kind("" if text == "-" else text)


def read(path):
    """The Specs of a file in the form of cases.txt."""
    specs = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if line.startswith("#") or not words:
                continue
            if not line.startswith(" "):
                name, base, *rows = words
                specs.append(BASES[base].but(name=name, rows=tuple(rows)))
                continue
            if words[0].endswith(":"):
                changes = {"expect": words[0][:-1], "why": " ".join(words[1:])}
            else:
                pairs = (word.split("=", 1) for word in words)
                changes = {key: setting(key, text) for key, text in pairs}
            specs[-1] = specs[-1].but(**changes)
    return specs


CASES = read(os.path.join(os.path.dirname(__file__), "cases.txt"))
