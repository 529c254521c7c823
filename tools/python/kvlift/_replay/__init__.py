"""The parts of kvlift.replay. They need NumPy, and ONNX Runtime where models run."""
