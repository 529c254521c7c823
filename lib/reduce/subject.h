// The subject that `reduce` makes smaller: a model, or a source and its conversion.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"

namespace kvlift {

struct Subject {
  // The other side of a pair.
  struct Conversion {
    Model model;
    Manifest relation;  // relates it to `model` of the subject
  };

  Model model;  // of a pair, the source
  std::optional<Conversion> conversion;

  bool is_pair() const { return conversion.has_value(); }
};

// Sums over both models of a pair.
struct SubjectSize {
  int64_t nodes = 0;    // of the main graphs and the bodies of their nodes
  int64_t outputs = 0;  // of the main graphs
  int64_t bytes = 0;    // of the models with all their weights
};
SubjectSize SizeOf(const Subject& subject);

// Returns `model` with another graph. Spans in `proto` stay valid, as the result keeps the weights
// of `model` alive.
Model WithProto(const Model& model, onnx::ModelProto proto);

// Returns the model with all external data as part of it, so that it is one file. Tensors whose
// data file does not exist stay references. OutOfRange if more than 1 GiB would have to be copied.
absl::StatusOr<Model> WithoutFiles(const Model& model);

}  // namespace kvlift
