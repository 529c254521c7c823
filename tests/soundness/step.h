// One step of two models: its sizes, what is fed, and how tensors are indexed.
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
  std::map<std::string, int64_t> sizes;  // of dimensions of other names
  double amplitude = 2;
  int64_t mask_style = 0, position_style = 0;

  bool ragged() const;
  std::string Text() const;
};

struct Made {
  struct Pieces {
    int axis = -1;  // of sequences; -1: one for all
    std::vector<Tensor> each;
  };
  std::map<std::string, Pieces> inputs;  // of the source
  std::map<std::string, Tensor> caches;  // by id, as the conversion is fed
};

// The index of the element after `at`, in the order of storage.
void Next(const oracle::Dims& dims, oracle::Dims* at);
int64_t Place(const oracle::Dims& dims, const oracle::Dims& at);

// Null if none of them has the name.
const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& all, const std::string& name);
// The axis that is declared as B; -1 if there is none.
int BatchAxis(const onnx::ValueInfoProto& info);
// Whether an axis has as many elements as there are tokens.
bool TellsLength(const onnx::ValueInfoProto& info);
// The axis of a letter in a layout of plain letters; -1 if it is none.
int AxisOf(const std::string& layout, char letter);

}  // namespace kvlift::soundness
