// Mutants of the number of valid keys (nonpad_kv_seqlen), of the causal flag, and of masks.
#include <limits>

#include "ir/types.h"
#include "verify/mutants/mutant_guards.h"
#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

constexpr char kNoWeight[] = "exp(-10000) is 0: no plan has a token that sees nothing";

class LengthMutants {
 public:
  LengthMutants(MutantMaker& maker, const MutantSites& sites)
      : m_(maker), s_(sites), site_(LastMask(sites.graph())) {
    if (site_) mask_ = sites.Name(site_->node, site_->mask);
  }

  void Run() {
    m_.Group("length and mask");
    for (const NodeId n : s_.ReadingPlaces()) {
      Length(n);
      Causal(n);
    }
    if (!s_.attentions().empty()) PerSequence();
    if (site_) Mask();
  }

 private:
  void Guard(const std::string& name, NodeId n, const std::vector<TensorProto>& constants,
             const MutantMaker::Replace& make) {
    m_.Replaced(name + s_.Label(n), constants, {n}, kNonpadOperand, make);
    m_.MarkAsGuard();
  }

  // Appends nodes that compute the capacity of the keys for each sequence, as [B].
  std::string Whole(const NodeProto& node, const std::string& id, std::vector<NodeProto>* before) {
    before->push_back(
        MutantMaker::Make("Shape", {node.input(kKeyOperand)}, id + "slots",
                          {MutantMaker::IntAttr("start", 2), MutantMaker::IntAttr("end", 3)}));
    before->push_back(MutantMaker::Make("Shape", {node.input(kNonpadOperand)}, id + "batch"));
    before->push_back(MutantMaker::Make("Expand", {id + "slots", id + "batch"}, id + "whole"));
    return id + "whole";
  }

  void Length(NodeId n) {
    m_.Shifted("valid length - 1" + s_.Label(n), {n}, kNonpadOperand, -1);
    m_.MarkAsGuard();
    m_.Shifted("valid length + 1" + s_.Label(n), {n}, kNonpadOperand, 1);
    m_.MarkAsGuard();
    m_.Add("valid length dropped" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at == n) node->mutable_input()->DeleteSubrange(kNonpadOperand, 1);
    });
    m_.MarkAsGuard();
    m_.EquivalentIf(SeenFact::kWhole, s_.Name(n, kNonpadOperand));
    const auto scatter = s_.ScatterBehind(s_.Input(n, kKeyOperand));
    if (!scatter) return;
    if (!s_.Name(*scatter, kIndicesOperand).empty()) {
      Guard("valid length is the write index", n, {},
            [&](NodeId, const NodeProto&, const std::string&, auto*) {
              return s_.Name(*scatter, kIndicesOperand);
            });
    }
    if (s_.KeyHeads(n)) {
      Guard("valid length is the capacity", n, {},
            [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
              return Whole(node, id, before);
            });
      m_.EquivalentIf(SeenFact::kWhole, s_.Name(n, kNonpadOperand));
    }
  }

  void PerSequence() {
    m_.OfFirst("valid length of sequence 0", s_.attentions(), kNonpadOperand);
    m_.MarkAsGuard();
    if (!s_.limits().ragged) m_.Equivalent(s_.limits().one_length);
    m_.Replaced("valid lengths reversed",
                {MutantMaker::Ints("mutant.-1", {-1}), MutantMaker::Ints("mutant.0", {0}),
                 MutantMaker::Ints("mutant.end", {INT64_MIN})},
                s_.attentions(), kNonpadOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  before->push_back(MutantMaker::Make("Slice",
                                                      {node.input(kNonpadOperand), "mutant.-1",
                                                       "mutant.end", "mutant.0", "mutant.-1"},
                                                      id + "reversed"));
                  return id + "reversed";
                });
    m_.MarkAsGuard();
    if (!s_.limits().ragged) m_.Equivalent(s_.limits().one_length);
  }

  void Causal(NodeId n) {
    const bool causal = IntAttribute(s_.graph().node(n), "is_causal", 0) != 0;
    // With an explicit mask, which may itself be causal, adding the flag may change nothing.
    const bool masked = !s_.Name(n, kMaskOperand).empty();
    if (causal || !masked) {
      m_.Add((causal ? "is_causal dropped" : "is_causal added") + s_.Label(n), {},
             [&](NodeId at, NodeProto* node, auto*) {
               if (at != n) return;
               MutantMaker::Drop(node, "is_causal");
               *node->add_attribute() = MutantMaker::IntAttr("is_causal", causal ? 0 : 1);
             });
      if (causal) m_.MarkAsGuard();
      if (!s_.limits().many_tokens) m_.Equivalent("no step has more than one new token");
    }
    if (causal && !masked) TopLeft(n);
  }

  // New token i sees keys 0 to i only, without the past: the causal triangle is aligned to the top
  // left instead of to the bottom right.
  void TopLeft(NodeId n) {
    m_.Add("causal from the top left" + s_.Label(n),
           {MutantMaker::Scalar("mutant.0", TensorProto::INT64, 0),
            MutantMaker::Scalar("mutant.1", TensorProto::INT64, 1),
            MutantMaker::Ints("mutant.axis", {1})},
           [&](NodeId at, NodeProto* node, auto* before) {
             if (at != n) return;
             const auto count = [&](int operand, const std::string& to) {
               before->push_back(MutantMaker::Make(
                   "Shape", {node->input(operand)}, to + ".shape",
                   {MutantMaker::IntAttr("start", 2), MutantMaker::IntAttr("end", 3)}));
               before->push_back(MutantMaker::Make("Squeeze", {to + ".shape"}, to + ".count"));
               before->push_back(
                   MutantMaker::Make("Range", {"mutant.0", to + ".count", "mutant.1"}, to));
             };
             count(kQueryOperand, "mutant.rows");
             count(kKeyOperand, "mutant.columns");
             before->push_back(
                 MutantMaker::Make("Unsqueeze", {"mutant.rows", "mutant.axis"}, "mutant.column"));
             before->push_back(MutantMaker::Make("LessOrEqual", {"mutant.columns", "mutant.column"},
                                                 "mutant.mask"));
             MutantMaker::Drop(node, "is_causal");
             while (node->input_size() <= kMaskOperand) node->add_input("");
             node->set_input(kMaskOperand, "mutant.mask");
           });
  }

  // Adds a mutant whose mask is the value `result`, which nodes appended by `make` compute.
  void MaskAs(
      const std::string& name, const std::vector<TensorProto>& constants,
      const std::function<void(const std::string& mask, std::vector<NodeProto>* before)>& make,
      const std::string& result = "mutant.mask") {
    m_.Add(name, constants, [&](NodeId n, NodeProto* node, auto* before) {
      if (n != site_->node) return;
      make(node->input(site_->mask), before);
      node->set_input(site_->mask, result);
    });
  }

  void Mask() {
    m_.Add("mask dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == site_->node) DropMask(*site_, node);
    });
    m_.MarkAsGuard();
    Rolled("mask shifted by one key", -1);
    m_.MarkAsGuard();
    const int64_t rank = s_.RankOf(mask_);
    if (rank >= 2) {
      Rolled("mask shifted by one row", -2);
      m_.MarkAsGuard();
      m_.EquivalentIf(SeenFact::kRowsEqual, mask_);
      Transposed(rank);
      m_.EquivalentIf(SeenFact::kRowsEqual, mask_);
    }
    if (rank == 4) {
      MaskAs("mask of sequence 0",
             {MutantMaker::Ints("mutant.0", {0}), MutantMaker::Ints("mutant.1", {1})},
             [&](const std::string& from, auto* before) {
               before->push_back(MutantMaker::Make(
                   "Slice", {from, "mutant.0", "mutant.1", "mutant.0"}, "mutant.mask"));
             });
      m_.MarkAsGuard();
      m_.EquivalentIf(SeenFact::kSequencesEqual, mask_);
    }
    Cut();
    if (s_.TypeOf(mask_) == TensorProto::BOOL) Inverted();
    if (IsFloatType(s_.TypeOf(mask_))) Numbers(s_.TypeOf(mask_));
  }

  void Rolled(const std::string& name, int64_t axis) {
    MaskAs(
        name,
        {MutantMaker::Ints("mutant.0", {0}), MutantMaker::Ints("mutant.1", {1}),
         MutantMaker::Ints("mutant.end", {INT64_MAX}), MutantMaker::Ints("mutant.axis", {axis})},
        [&](const std::string& mask, auto* before) {
          before->push_back(MutantMaker::Make(
              "Slice", {mask, "mutant.1", "mutant.end", "mutant.axis"}, "mutant.tail"));
          before->push_back(MutantMaker::Make(
              "Slice", {mask, "mutant.0", "mutant.1", "mutant.axis"}, "mutant.head"));
          before->push_back(MutantMaker::Make("Concat", {"mutant.tail", "mutant.head"},
                                              "mutant.mask", {MutantMaker::IntAttr("axis", axis)}));
        });
  }

  void Transposed(int64_t rank) {
    std::vector<int64_t> perm(rank);
    for (int64_t k = 0; k < rank; ++k) perm[k] = k;
    std::swap(perm[rank - 1], perm[rank - 2]);
    MaskAs("mask transposed", {}, [&](const std::string& mask, auto* before) {
      before->push_back(MutantMaker::Make("Transpose", {mask}, "mutant.mask",
                                          {MutantMaker::IntsAttr("perm", perm)}));
    });
  }

  // The mask lacks its last column, as if it had not been padded to the capacity.
  void Cut() {
    if (!site_->attention) return;
    MaskAs("mask without its last key",
           {MutantMaker::Ints("mutant.0", {0}), MutantMaker::Ints("mutant.-1", {-1})},
           [&](const std::string& mask, auto* before) {
             before->push_back(MutantMaker::Make(
                 "Slice", {mask, "mutant.0", "mutant.-1", "mutant.-1"}, "mutant.mask"));
           });
    m_.MarkAsGuard();
  }

  void Inverted() {
    MaskAs("mask inverted", {}, [](const std::string& mask, auto* before) {
      before->push_back(MutantMaker::Make("Not", {mask}, "mutant.mask"));
    });
    const int32_t type = s_.TypeOf(s_.Name(site_->node, kQueryOperand));
    if (!site_->attention || type == 0) return;
    MaskAs("hidden keys at -10000",
           {MutantMaker::Scalar("mutant.zero", type, 0),
            MutantMaker::Scalar("mutant.hidden", type, -10000)},
           [](const std::string& mask, auto* before) {
             before->push_back(
                 MutantMaker::Make("Where", {mask, "mutant.zero", "mutant.hidden"}, "mutant.mask"));
           });
    m_.Equivalent(kNoWeight);
  }

  // Adds the mutants of a float mask. Numbers below -1000 hide a key; others are a bias.
  void Numbers(int32_t type) {
    const double lowest = type == TensorProto::FLOAT16 ? -65504 : -1e30;
    const auto constants = [&](double hidden) {
      return std::vector<TensorProto>{MutantMaker::Scalar("mutant.limit", type, -1000),
                                      MutantMaker::Scalar("mutant.hidden", type, hidden),
                                      MutantMaker::Scalar("mutant.zero", type, 0)};
    };
    const auto choose = [&](const std::string& name, double hidden, bool keep_hidden,
                            bool keep_rest) {
      MaskAs(name, constants(hidden), [&](const std::string& mask, auto* before) {
        before->push_back(MutantMaker::Make("Less", {mask, "mutant.limit"}, "mutant.hides"));
        before->push_back(MutantMaker::Make("Where",
                                            {"mutant.hides", keep_hidden ? mask : "mutant.hidden",
                                             keep_rest ? mask : std::string("mutant.zero")},
                                            "mutant.mask"));
      });
    };
    choose("mask hides by -4 only", -4, false, true);
    m_.MarkAsGuard();
    choose("hidden keys at -10000", -10000, false, true);
    m_.Equivalent(kNoWeight);
    choose("bias in the mask dropped", lowest, true, false);
    m_.EquivalentIf(SeenFact::kOnlyHides, mask_);
    MaskAs("mask applied twice", {}, [](const std::string& mask, auto* before) {
      before->push_back(MutantMaker::Make("Add", {mask, mask}, "mutant.mask"));
    });
    m_.EquivalentIf(SeenFact::kOnlyHides, mask_);
    MaskAs("mask inverted", constants(lowest), [](const std::string& mask, auto* before) {
      before->push_back(MutantMaker::Make("Less", {mask, "mutant.limit"}, "mutant.hides"));
      before->push_back(MutantMaker::Make("Where", {"mutant.hides", "mutant.zero", "mutant.hidden"},
                                          "mutant.mask"));
    });
  }

  MutantMaker& m_;
  const MutantSites& s_;
  std::optional<MaskSite> site_;
  std::string mask_;  // the name of the mask at the site; empty: there is none
};

}  // namespace

void AddLengthMutants(MutantMaker& maker, const MutantSites& sites) {
  LengthMutants(maker, sites).Run();
}

}  // namespace kvlift
