// Text cases of rewrites: testdata/rewrites/NAME.onnxtxt. Sections start with a line "# ---- NAME":
//
//   # ---- case       "key: value" lines: rule, options of a conversion, what it must say
//   # ---- before     ONNX text
//   # ---- keep       of attentions that stay as they are: code, node, text
//   # ---- after      ONNX text, made by the test with KVLIFT_UPDATE_CASES=1; or instead
//   # ---- refuse     "key: value" lines: code, node, text, and optionally value, also, status
//
// Keys and sections that are not known, that are missing or that occur twice are errors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rewrite/convert.h"

namespace kvlift {

struct Refusal {
  std::string code, node, text, value;
  std::vector<std::string> also;  // codes that other parts of the report must carry
  std::string status = "refused";
};

struct TextCase {
  std::string name;
  std::string path;
  std::vector<std::string> rules;  // that must have matched or refused
  ConvertOptions options;
  std::optional<std::string> mask;     // "causal+padding": what the attentions' masks are read as
  std::optional<std::string> uniform;  // a fragment of the reason; absent: positions per sequence
  std::vector<std::string> preconditions;  // codes of the manifest, all of them, in order
  std::optional<std::string> form;         // of the attentions: "op", "decomposed"
  std::optional<std::string> unproved;     // the code that makes the verdict inconclusive
  std::string before;
  std::optional<std::string> after;  // empty if it has yet to be made
  std::optional<Refusal> refuse;
  std::optional<Refusal> keep;  // why an attention stays
};

absl::StatusOr<TextCase> ParseCase(const std::string& path, const std::string& text);

// All cases of testdata/rewrites, sorted by name. Broken ones are errors that name the file.
std::vector<std::string> CaseFiles();
absl::StatusOr<TextCase> LoadCase(const std::string& path);

// The file's text with its `after` section replaced.
std::string WithAfter(const std::string& text, const std::string& after);

std::string ReadFile(const std::string& path);

}  // namespace kvlift
