// Where the value of a graph input flows to: what it is used for tells what it means.
//
// Bodies of If and the like are looked into; names are unique over all of a model's scopes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// What an operand of an operator stands for, as a sum of the past's length and the new tokens.
enum class Length { kPast, kLast, kTotal };  // P, P+S-1, P+S

class Flow {
 public:
  explicit Flow(const onnx::ModelProto& model);

  // The widest table of weights that the input indexes through casts and reshapes; no rows if none.
  struct Table {
    int64_t rows = 0, width = 0;
  };
  Table TableOf(const std::string& input) const;
  // Says where something is written or cut, or is turned by sine and cosine.
  bool IsPosition(const std::string& input) const;
  // Reaches a softmax's operand, or a mask's place, without passing a product of matrices.
  bool IsMask(const std::string& input) const;
  // Indexes something that is computed or fed: the order of sequences.
  bool IsOrder(const std::string& input) const;
  // An operator whose operand says which length it is, minus the constants added on the way.
  std::optional<std::pair<Length, int64_t>> LengthAtOperator(const std::string& input) const;
  // The operator that makes a value; empty if none does.
  std::string Maker(const std::string& value) const;
  // Is compared with something.
  bool IsCompared(const std::string& input) const;
  // Numbers that are taken for yes and no: they are compared, cast to bool, or taken from one.
  bool IsTruth(const std::string& input) const;
  // Says where rows are written, cut or hidden, and not only at which position a token is.
  bool SaysWhere(const std::string& input) const;

 private:
  struct Reader {
    const onnx::NodeProto* node;
    int operand;
  };
  void Read(const onnx::GraphProto& graph);
  bool IsConstant(const std::string& name) const;
  // Visits what reads the value and, where `pass` says so, what reads the reader's results.
  void Walk(const std::string& from, const std::function<bool(const Reader&)>& pass) const;

  absl::flat_hash_map<std::string, std::vector<Reader>> readers_;
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;
  absl::flat_hash_map<std::string, const onnx::NodeProto*> makers_;
  absl::flat_hash_map<std::string, std::string> leaves_;  // a body's output: the owner's
};

}  // namespace kvlift
