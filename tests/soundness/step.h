// One step of two models: its sizes, its feeds, and how tensors are indexed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "oracle/value.h"

namespace kvlift::soundness {

struct Tensor {
  int32_t type = 0;
  oracle::Dims dims;
  std::vector<double> values;
};

struct Step {
  int64_t sequences = 1, tokens = 1, slots = 1;
  std::vector<int64_t> past;
  // By sequence: the tokens that are not padding; empty if no sequence has padding tokens.
  std::vector<int64_t> real;
  std::map<std::string, int64_t> sizes;  // of dimensions with other names
  double amplitude = 2;
  int64_t mask_style = 0, position_style = 0;

  // Returns true if sequences differ in length, so that the source runs once for each.
  bool ragged() const;
  bool padded() const { return !real.empty(); }
  int64_t RealTokens(int64_t sequence) const { return padded() ? real[sequence] : tokens; }
  // Returns the step as the source alone runs it for a sequence, without padding tokens.
  Step Alone(int64_t sequence) const;
  std::string Text() const;
};

// The feeds that were drawn for a step.
struct Made {
  struct Pieces {
    int axis = -1;  // axis of sequences; -1: the same for all sequences
    std::vector<Tensor> each;
  };
  std::map<std::string, Pieces> inputs;  // of the source
  std::map<std::string, Tensor> caches;  // by cache id, in the layout of the conversion
};

// Advances `at` to the next element, in the order of storage.
void Next(const oracle::Dims& dims, oracle::Dims* at);
int64_t Place(const oracle::Dims& dims, const oracle::Dims& at);

// Returns null if no value has the name.
const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& all, const std::string& name);
// Returns the axis that is declared as B; -1 if there is none.
int BatchAxis(const onnx::ValueInfoProto& info);
// Returns true if the size of an axis is the number of tokens.
bool TellsLength(const onnx::ValueInfoProto& info);
// Returns the axis of a letter in a layout; -1 if it has none.
int AxisOf(const std::string& layout, char letter);

}  // namespace kvlift::soundness
