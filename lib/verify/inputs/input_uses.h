// Finds what a graph input is used for: follows its value through the graph to the operators that
// give it a meaning, such as the Gather of a table that it indexes or a Softmax that it masks.
//
// Bodies of If, Loop and Scan are followed as well. Names must be unique over all scopes.
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

// The length that the definition of an operator gives one of its operands: P, P+S-1 or P+S, with P
// past and S new tokens; or P+S of the longest sequence of the batch.
enum class Length { kPast, kLast, kTotal, kLongest };

class InputUses {
 public:
  // The model must outlive the object.
  explicit InputUses(const onnx::ModelProto& model);

  // A table of weights [rows, width]; trailing axes count towards `width`.
  struct Table {
    int64_t rows = 0, width = 0;
  };
  // Returns the widest constant table that the input indexes on axis 0 (Gather,
  // GatherBlockQuantized, EmbedLayerNormalization), perhaps through casts and reshapes; rows is 0
  // if there is none.
  Table TableOf(const std::string& input) const;
  // Returns true if the input reaches an operand that is a position: a write index, a bound of
  // Slice or Range, position ids of RotaryEmbedding, or the argument of Sin or Cos.
  bool IsPosition(const std::string& input) const;
  // Returns true if the input reaches a softmax or the mask operand of an attention without passing
  // a matrix product.
  bool IsMask(const std::string& input) const;
  // Returns true if the input indexes axis 0 or 1 of something that is neither constant nor a
  // shape: then it may reorder the sequences of a batch.
  bool IsOrder(const std::string& input) const;
  // Returns the length at an operand that the input reaches through reshapes and additions of
  // constants, and the sum of those constants: the input is that length minus the sum. nullopt if
  // it reaches no such operand. Source: TensorScatter-24 write_indices, Attention-24
  // nonpad_kv_seqlen; com.microsoft GroupQueryAttention seqlens_k and total_sequence_length,
  // Attention and MultiHeadAttention past_sequence_length; KeyValueCache start_pos.
  std::optional<std::pair<Length, int64_t>> LengthAtOperator(const std::string& input) const;
  // Returns the op_type of the node that computes a value; empty if no node does.
  std::string Maker(const std::string& value) const;
  // Returns true if the input, perhaps plus something, is an operand of a comparison or of OneHot.
  bool IsCompared(const std::string& input) const;
  // Returns true if the input's numbers stand for true and false: they are compared, cast to bool
  // or to an integer, or subtracted from a constant.
  bool IsTruth(const std::string& input) const;
  // Returns true if the input determines which rows are written, cut or hidden, or a length, and
  // not only the position that a token is encoded with.
  bool SaysWhere(const std::string& input) const;

 private:
  struct Reader {
    const onnx::NodeProto* node;
    int operand;
  };
  void Read(const onnx::GraphProto& graph);
  bool IsConstant(const std::string& name) const;
  // Calls `pass` for each node operand that reads the value and, where that returns true, goes on
  // with the results of the node.
  void Walk(const std::string& from, const std::function<bool(const Reader&)>& pass) const;

  absl::flat_hash_map<std::string, std::vector<Reader>> readers_;
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;
  absl::flat_hash_map<std::string, const onnx::NodeProto*> makers_;
  absl::flat_hash_set<std::string> outputs_;  // names of the outputs of the graph and of its bodies
  // The output of the node that owns a body, by the corresponding output of the body.
  absl::flat_hash_map<std::string, std::string> leaves_;
};

}  // namespace kvlift
