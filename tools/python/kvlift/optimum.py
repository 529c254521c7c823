"""Converts what Optimum exports: one call behind `main_export`.

    main_export("folder", output="exported", task="text-generation-with-past")
    kvlift.optimum.convert_export("exported")
"""

import os
import pathlib
from typing import Any, List, Optional, Sequence, Union

import kvlift

from ._pipelines import verified

# What Optimum calls the files of a decoder; the first that is there is converted.
NAMES = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
SUFFIX = "_kvlift"


def convert_export(folder: Union[str, "os.PathLike[str]"], *,
                   files: Optional[Sequence[str]] = None, force: bool = False,
                   external: str = "auto", **options: Any) -> List[pathlib.Path]:
    """Converts and verifies the decoders in the folder of an export; returns the new models.

    NAME.onnx becomes NAME_kvlift.onnx beside it, with its manifest; weights in files of external
    data are shared. Nothing is written where one of them is not converted and verified: that raises
    kvlift.Error. `files` are names in the folder, by default the first of NAMES that is there.
    `force` and `external` are those of `Conversion.save`, and the other options those of
    `kvlift.convert`; `accept` is "proved" unless it is given.
    """
    home = pathlib.Path(folder)
    if isinstance(files, str):
        files = [files]
    names = list(files) if files is not None else [n for n in NAMES if (home / n).is_file()][:1]
    if not names:
        raise kvlift.Error(f"{home}: no decoder here, such as {NAMES[0]}")
    made = {}
    for name in names:
        source = home / name
        if pathlib.Path(name).is_absolute() or ".." in pathlib.Path(name).parts:
            raise kvlift.Error(f"{name}: is no name in the folder {home}")
        made[source.with_name(source.stem + SUFFIX + source.suffix)] = verified(source, **options)
    for dry_run in (True, False):
        for path, result in made.items():
            result.save(path, force=force, external=external, dry_run=dry_run)
    return list(made)
