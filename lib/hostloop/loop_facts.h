// What a host has to know to drive a converted model step by step: the facts that a generated loop
// starts from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Letters: B sequences, S new tokens, T = P + S, M slots, P past; '\0' is a size of its own.
struct LoopAxis {
  char letter = '\0';
  int64_t value = 1;  // the size, or rows per sequence of letter B
};

struct LoopCache {
  std::string past, present;
  int32_t type = 0;
  std::vector<LoopAxis> axes;
  bool in_place = false;  // nothing reads the past after the write
};

struct LoopInput {
  std::string name;
  // What the host gives: "tokens", "positions", "last", "total", "new", "order", "has_past",
  // "no_past", "ones", "zeros", "mask" (true or 0 where a key is visible), "hidden" (its opposite),
  // "tree" (the
  // new tokens that each new token sees: those up to itself), "given" (by who calls).
  std::string meaning;
  std::vector<std::string> instead;  // what it may mean, too
  int32_t type = 0;
  std::vector<LoopAxis> axes;
  bool added = false;  // a float mask: 0 where a key is visible, else the lowest number
};

struct LoopFacts {
  std::string model;  // path, as the user gave it
  std::optional<int64_t> batch, tokens, capacity;
  std::optional<int64_t> new_with_past;  // most tokens of a step that has a past
  std::optional<int64_t> chunk;          // most tokens of any step: what rings leave beside windows
  bool uniform = false;
  bool circular = false;
  std::string logits;  // the output with a row of scores per token
  std::vector<LoopCache> caches;
  std::vector<LoopInput> inputs;  // in the model's order
};

// Reads the interface of a converted model. FailedPrecondition names an input or a cache whose
// shape or type cannot be made.
absl::StatusOr<LoopFacts> ReadLoopFacts(const Graph& model, const Manifest& manifest);

// The loop's source text, for Python with onnxruntime and numpy.
std::string PythonLoop(const LoopFacts& facts);
// The same with a second model that drafts trees of tokens. Needs what WhyNotSpeculative asks for.
std::string SpeculativeLoop(const LoopFacts& facts);
// What the model lacks to verify trees of tokens; empty if nothing.
std::string WhyNotSpeculative(const LoopFacts& facts);
// The same for C++17 with onnxruntime_cxx_api.h.
std::string CppLoop(const LoopFacts& facts);

}  // namespace kvlift
