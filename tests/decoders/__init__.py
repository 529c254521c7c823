"""Small decoders in the idioms of many exporters, built with onnx.helper."""
