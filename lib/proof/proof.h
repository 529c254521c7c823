// What can be said of a conversion for all shapes at once: B sequences, S new tokens, P past ones,
// M slots stay symbols. Read from the two graphs and the relation alone; nothing here knows which
// rules made the conversion.
//
// The facts are about places: which rows are written, which are read, which keys are visible. That
// equal places hold equal numbers is a fact of its own: outside the attentions both graphs apply
// the same operators to the same values.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct ProofFact {
  std::string about;  // a cache's id, an attention's result, or an output
  std::string text;
  bool proved = false;
  // Inputs that are taken to hold consecutive numbers; the relation lists that as a precondition.
  std::vector<std::string> given;
  std::string why_not;  // what stands in the way of a proof; it says nothing against the fact
};

struct Proof {
  std::vector<ProofFact> facts;
  std::string not_tried;  // why no fact was looked at
};

Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& manifest);

}  // namespace kvlift
