// Parses and prints ONNX text.
#include <algorithm>

#include "fmt/format.h"
#include "onnx/defs/parser.h"
#include "onnx/defs/printer.h"
#include "onnxio/files/guard.h"
#include "onnxio/files/limits.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

// Returns the deepest nesting of brackets outside of strings and comments. ONNX's parser recurses
// at least once per level.
int BracketDepth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '(' || c == '[' || c == '<') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ')' || c == ']' || c == '>') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<onnx::ModelProto> ParseModelText(const std::string& text) {
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("ONNX text with a NUL character at byte {}", nul));
  }
  if (BracketDepth(text) > kMaxTextNesting) {
    return absl::OutOfRangeError(
        fmt::format("ONNX text nested more than {} levels deep", kMaxTextNesting));
  }
  onnx::ModelProto model;
  std::string error;
  const absl::Status status = Guard("cannot parse ONNX text", [&] {
    onnx::OnnxParser parser(text.c_str());
    const auto parsed = parser.Parse(model);
    if (!parsed.IsOK()) {
      error = parsed.ErrorMessage();
    } else if (!parser.EndOfInput()) {
      error = "unexpected text after the model";
    }
  });
  if (!status.ok()) return status;
  if (!error.empty()) {
    return absl::InvalidArgumentError(fmt::format("cannot parse ONNX text: {}", FirstLines(error)));
  }
  return model;
}

std::string PrintModelText(const onnx::ModelProto& model) {
  std::string text;
  const absl::Status status =
      Guard("cannot print the model", [&] { text = onnx::ProtoToString(model); });
  return status.ok() ? text : fmt::format("# {}\n", std::string(status.message()));
}

}  // namespace kvlift
