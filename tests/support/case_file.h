// Text cases of rewrites: testdata/rewrites/NAME.onnxtxt. A section starts with "# ---- NAME":
//
//   # ---- case       "key: value" lines: rule, options of the conversion, expectations
//   # ---- before     ONNX text of the source; or, with a key `base` that names another case,
//   # ---- edits      how the source differs from that case's (support/case_edits.h); absent: it
//                     does not
//   # ---- keep       attentions that stay: code, node, text
//   # ---- after      ONNX text, made by the test with KVLIFT_UPDATE_CASES=1; or instead
//   # ---- refuse     "key: value" lines: code, node, text, and optionally value, also, status
//
// Unknown, missing and repeated keys and sections are errors. A base is in the same folder and has
// a section `before` itself, so that two files are all that a reader has to look at.
// support/case_text.py prints the source of a case with a base.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rewrite/convert/convert.h"

namespace kvlift {

// The finding that a case expects. Empty fields are not compared.
struct Refusal {
  std::string code, node, text, value;
  std::vector<std::string> also;  // codes that other parts of the report must have
  std::string status = "refused";
};

struct TextCase {
  std::string name;
  std::string path;
  std::vector<std::string> rules;  // rules that must have matched or refused
  ConvertOptions options;
  std::optional<std::string> mask;  // how the attentions' masks are read, such as "causal+padding"
  // A fragment of the reason why all sequences share one length; nullopt: each has its own.
  std::optional<std::string> uniform;
  std::vector<std::string> preconditions;  // codes in the manifest, all of them, in order
  std::optional<std::string> form;         // of the attentions: "op" or "decomposed"
  std::optional<std::string> unproved;     // the code that makes the verdict inconclusive
  std::string before;                      // the source, the edits applied
  std::optional<std::string> after;        // empty if it is not made yet
  std::optional<Refusal> refuse;
  std::optional<Refusal> keep;  // why an attention stays
};

// Returns InvalidArgument for a case that is not well formed.
absl::StatusOr<TextCase> ParseCase(const std::string& path, const std::string& text);

// Returns the paths of all cases of testdata/rewrites, sorted by name.
std::vector<std::string> CaseFiles();
// Reads and parses one case. Errors name the file.
absl::StatusOr<TextCase> LoadCase(const std::string& path);

// Returns the file's text with its `after` section replaced.
std::string WithAfter(const std::string& text, const std::string& after);

std::string ReadFile(const std::string& path);

}  // namespace kvlift
