#include "onnxio/files/file_type.h"

#include "absl/strings/match.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

struct Magic {
  absl::string_view prefix;
  const char* what;
};

// Files that are often passed as a model. A ModelProto cannot begin with any of these prefixes.
constexpr Magic kMagics[] = {
    {"PK\x03\x04",
     "a zip archive (a PyTorch .pt or .bin file, or a zipped model): unpack or "
     "export it to ONNX"},
    {"GGUF", "a GGUF file of llama.cpp, not ONNX"},
    {"\x89HDF\r\n", "an HDF5 file (Keras), not ONNX"},
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer: the model itself was not "
     "downloaded (git lfs pull)"},
    {"\x1f\x8b", "gzip-compressed: decompress it first"},
    {"\x80\x02", "a Python pickle, not ONNX"},
    {"\x80\x04", "a Python pickle, not ONNX"},
    {"\x7f"
     "ELF",
     "a program or library, not ONNX"},
    {"ORTM", "an ONNX Runtime .ort file, not ONNX"},
    {"<", "XML or HTML, not ONNX"},
    {"{", "JSON, not ONNX"},
};

}  // namespace

std::optional<std::string> DescribeOtherFileType(absl::string_view bytes) {
  if (bytes.empty()) return "the file is empty";
  for (const Magic& magic : kMagics) {
    if (absl::StartsWith(bytes, magic.prefix)) return fmt::format("this is {}", magic.what);
  }
  if (bytes.size() > 8 && bytes.substr(4, 4) == "ORTM") {
    return "this is an ONNX Runtime .ort file, not ONNX";
  }
  if (bytes.size() > 8 && bytes.substr(4, 4) == "TFL3") return "this is a TFLite file, not ONNX";
  if (bytes.size() > 9 && bytes[8] == '{' &&
      bytes.substr(1, 7).find('\0') != absl::string_view::npos) {
    return "this is a safetensors file, not ONNX";
  }
  if (absl::StartsWith(bytes, "ir_version:")) {
    return "this is protobuf text, which is not read; ONNX text has the ending .onnxtxt";
  }
  return std::nullopt;
}

}  // namespace kvlift
