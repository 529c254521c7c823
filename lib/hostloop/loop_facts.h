// The facts that a host needs to run a converted model step by step, and the source text of loops
// that do so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Letters: B sequences, S new tokens, P past tokens of the longest sequence, T = P + S, M slots. A
// '\0' means an axis of fixed size.
struct LoopAxis {
  char letter = '\0';
  int64_t value = 1;  // for '\0' the size; for 'B' the rows per sequence; else 1
};

// One cache of the model.
struct LoopCache {
  // The names of its input and output.
  std::string past, present;
  // TensorProto::DataType.
  int32_t type = 0;
  std::vector<LoopAxis> axes;
  bool in_place = false;  // no node reads the past after it is written
};

struct LoopInput {
  std::string name;
  // The value that the host feeds: "tokens" (token ids), "positions" (P + s for token s), "last"
  // (the position of the last token), "total" (P plus the tokens that are not padding), "new" (the
  // number of those tokens), "order" (the index of each sequence), "has_past" or "no_past" (a
  // flag), "ones", "zeros", "mask" (true, 1 or an added 0 where a key is visible), "hidden" (the
  // opposite), "tree" (the new tokens that each new token sees: those up to itself), or "given"
  // (the caller decides).
  std::string meaning;
  std::vector<std::string> instead;  // other meanings that the model's graph allows
  // TensorProto::DataType.
  int32_t type = 0;
  std::vector<LoopAxis> axes;
  // True for a float mask that is added: 0 where a key is visible, else the lowest number.
  bool added = false;
};

// The facts of a model that a loop is made from.
struct LoopFacts {
  std::string model;  // its path as the user gave it
  // B, S and M; nullopt where the model does not fix them.
  std::optional<int64_t> batch, tokens, capacity;
  // The largest number of tokens of a step that has a past; nullopt for any number.
  std::optional<int64_t> new_with_past;
  // The largest number of tokens of any step, which is the slots of a ring minus its window;
  // nullopt for any number.
  std::optional<int64_t> chunk;
  // True if all sequences of a batch must have the same length.
  bool uniform = false;
  // True if the rows of all caches wrap around the end of their buffers.
  bool circular = false;
  std::string logits;  // the output with a row of scores per token
  std::vector<LoopCache> caches;
  std::vector<LoopInput> inputs;  // in the model's order
};

// Reads the interface of a converted model. Returns FailedPrecondition, naming an input or a cache,
// if the host cannot make a tensor of its shape or type (bfloat16, or less than 8 bits), and the
// errors of ReadInterface.
absl::StatusOr<LoopFacts> ReadLoopFacts(const Graph& model, const Manifest& manifest);

// Returns the loop as Python source for onnxruntime and numpy.
std::string PythonLoop(const LoopFacts& facts);
// Returns a Python loop for speculative decoding, in which a second model drafts trees of tokens.
// Requires that WhyNotSpeculative returns an empty string.
std::string SpeculativeLoop(const LoopFacts& facts);
// Returns what the model lacks to verify trees of tokens; empty if it lacks nothing.
std::string WhyNotSpeculative(const LoopFacts& facts);
// Returns the loop as C++17 source for onnxruntime_cxx_api.h.
std::string CppLoop(const LoopFacts& facts);

}  // namespace kvlift
