"""A pass for Olive that converts the caches of a decoder and verifies the result.

    olive.run({..., "passes": {"caches": {"type": "KvLift", "target": "ort"}}},
              package_config=kvlift.olive.package_config())

Needs the package olive-ai.
"""

import json
import pathlib
from typing import Any, Dict, Type

from ._pipelines import verified

try:
    import onnx
    from olive.hardware import AcceleratorSpec
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.onnx.common import get_external_data_config, model_proto_to_olive_model
    from olive.passes.pass_config import BasePassConfig, PassConfigParam
except ImportError as error:
    raise ImportError(f"kvlift.olive needs Olive: pip install olive-ai ({error})") from error


def package_config() -> Dict[str, Any]:
    """Returns Olive's own list of passes with the pass KvLift in it, for `olive.run`."""
    with open(OlivePackageConfig.get_default_config_path(), encoding="utf-8") as file:
        listed = json.load(file)
    anything = ["*"]
    listed["passes"]["KvLift"] = {
        "module_path": "kvlift.olive.KvLift", "supported_providers": anything,
        "supported_accelerators": anything, "supported_precisions": anything,
        "supported_algorithms": [], "supported_quantization_encodings": []}
    return listed


class KvLift(Pass):
    """Converts the caches of a decoder to TensorScatter and Attention, and verifies the result.

    A model that is not converted and verified fails the pass. The manifest lies beside the model,
    and is one of its additional files.
    """

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> Dict[str, PassConfigParam]:
        return {
            "target": PassConfigParam(type_=str, default_value="ort",
                                      description="The runtime, as for kvlift convert --target."),
            "accept": PassConfigParam(type_=str, default_value="proved",
                                      description='"proved", or "tested" where plans are enough.'),
            "options": PassConfigParam(type_=dict, default_value={},
                                       description="More options of kvlift.convert."),
            **get_external_data_config(),
        }

    def _run_for_config(self, model: ONNXModelHandler, config: Type[BasePassConfig],
                        output_model_path: str) -> ONNXModelHandler:
        if not isinstance(model, ONNXModelHandler):
            raise ValueError("KvLift takes models in ONNX")
        result = verified(model.model_path, target=config.target, accept=config.accept,
                          **config.options)
        path = pathlib.Path(resolve_onnx_path(output_model_path))
        # Olive keeps each model in a folder of its own, so the weights go with it.
        converted = onnx.load_model_from_string(result.model.to_bytes())
        onnx.load_external_data_for_model(converted, str(pathlib.Path(model.model_path).parent))
        made = model_proto_to_olive_model(converted, path, config, force_model_dir=True)
        manifest = path.with_suffix(".kv.json")
        manifest.write_text(json.dumps(result.manifest, indent=2) + "\n", encoding="utf-8")
        made.model_attributes = {
            **(model.model_attributes or {}),
            "additional_files": sorted({*(model.model_attributes or {}).get("additional_files", []),
                                        str(manifest)})}
        return made
