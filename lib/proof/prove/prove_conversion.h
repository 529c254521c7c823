// Proves for all shapes that a converted model equals its source: the number of sequences B, of new
// tokens S, of past tokens P and of cache slots M stay symbols. The proof reads the two graphs and
// the manifest, and does not know which rewrite rules made the converted model.
//
// Facts say which cache rows are written and read, and which keys each query sees. A fact about
// each output says that outside the attentions both graphs apply the same operators to the same
// values. See docs/proof.md.
#pragma once

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/graphs/proof.h"
#include "sym/forms/forms.h"

namespace kvlift {

class Obligations;

// While an object of this class exists, proofs in this thread allow for sizes up to the smallest
// power of two that is not below any size that the two models declare (at least 2^20). A caller
// that judges parts of two models keeps an object for the whole models, so that all parts have one
// limit.
class DeclaredSizes {
 public:
  DeclaredSizes(const onnx::ModelProto& before, const onnx::ModelProto& after);

 private:
  sym::SizesUpTo limit_;
};

// Compares `before` (the source) with `after` (the converted model) under the relation in
// `manifest`. Neither model is changed. Failures are not a Status: `not_tried` says why the models
// could not be compared (opsets below 7, functions that cannot be inlined, branches that are not
// understood, caches without the axes that the manifest names). Arithmetic on float tensors is
// taken as real arithmetic, so rounding is not checked. `obligations` receives the equalities that
// the facts rest on (proof/correspondence/obligations.h); null if they are not wanted.
Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& manifest, Obligations* obligations = nullptr);

}  // namespace kvlift
