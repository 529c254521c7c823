// Expands the operators of com.microsoft, KeyValueCache and Einsum in one model: the class behind
// ExpandContribOps. Internal to lib/proof.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"
#include "proof/lower/contrib_writer.h"
#include "proof/lower/expand_contrib_ops.h"

namespace kvlift::plain {

// Each function named after an operator returns true if it expanded the node into the writer, and
// false if the node stays as it is.
class Expander {
 public:
  // `lengths` and `sliding` are those of ExpandContribOps; `sliding` must outlive the expander.
  Expander(onnx::ModelProto model, bool lengths, const std::vector<SlidingPast>& sliding);

  ExpandedModel Run();

 private:
  onnx::GraphProto& graph() { return *plain_.model.mutable_graph(); }

  bool Expand(const onnx::NodeProto& node, Writer& w);
  void NoteElement(const onnx::NodeProto& node);
  static bool Norm(const onnx::NodeProto& node, Writer& w);
  static bool Einsum(const onnx::NodeProto& node, Writer& w);
  static std::string Cut(const std::string& x, int64_t axis, const std::string& begin,
                         const std::string& end, Writer& w);
  static std::string HeadsFirst(const std::string& x, bool heads_first, Writer& w);
  static void Repeated(const std::string& rows, std::pair<int64_t, int64_t> heads, int64_t repeat,
                       const std::string& output, Writer& w);

  // A layer's part of a packed cache tensor, and the slots that new rows are written to. A tensor
  // that joins sequences on one axis is read with a batch axis of 1 in front.
  struct Part {
    int64_t layer = 0, layout = 0;
    bool joins = false;
    // Slot numbers: the sequence's first row, the first new row, and the slot behind the new rows.
    std::string first, start, end;

    int64_t layouts() const { return joins ? 4 : 2; }
    int64_t layers() const { return joins ? (layout == 0 ? 2 : 1) : 1 - layout; }
    int64_t roles() const { return joins && layout < 2 ? 3 : 2; }
    int64_t slots() const { return joins ? 1 + layout : 3 + layout; }
    bool heads_first() const { return layout == (joins ? 3 : 1); }
    int64_t heads() const { return heads_first() ? 3 : 4; }
  };

  std::array<std::string, 2> Splice(const std::string& packed, const Part& p,
                                    const std::array<std::string, 2>& rows,
                                    const std::string& present, Writer& w);
  static std::pair<std::string, std::string> Quantized(const std::string& rows, int64_t size,
                                                       int64_t group, Writer& w);
  static std::string Dequantized(const std::string& values, const std::string& scales,
                                 int64_t group, Writer& w);
  static std::string Apart(const std::string& joined, const Part& part, Writer& w);
  static void Join(const std::string& apart, const std::string& output, Writer& w);
  bool FindSlots(const onnx::NodeProto& node, Part& part, Writer& w);
  bool Packed(const onnx::NodeProto& node, Writer& w);
  int64_t Width(const onnx::NodeProto& node, int k) const;
  static int64_t LastOf(const onnx::TensorProto* shape);
  int64_t Columns(const std::string& value, int depth = 0) const;
  bool MultiHead(const onnx::NodeProto& node, Writer& w);
  bool Projected(const onnx::NodeProto& node, Writer& w);
  static std::string MaskOf(const onnx::NodeProto& node, int padding, int scores, int32_t type,
                            Writer& w);
  static int64_t IsCausal(const onnx::NodeProto& node);
  bool HasRank(const onnx::NodeProto& node, int k, size_t rank) const;
  bool HasThreeAxes(const std::string& value, int depth = 0) const;
  static void Attend(const onnx::NodeProto& node, std::vector<std::string> operands, int64_t causal,
                     float softcap, int64_t columns, Writer& w, int32_t type = 0);
  static bool HasKnownAttributes(const onnx::NodeProto& node);
  bool SharesBuffer(const onnx::NodeProto& node) const;
  bool GroupQuery(const onnx::NodeProto& node, Writer& w);

  // Two constants, of which a value is one.
  struct Choice {
    std::string condition;  // true: `yes`
    const onnx::TensorProto *yes = nullptr, *no = nullptr;
  };
  std::optional<Choice> ChoiceOf(std::string value) const;
  void DropUnreadChoices();
  std::string ChosenRows(const Choice& choice, const std::string& positions, Writer& w);

  bool HasSlidingPasts(const onnx::NodeProto& node) const;
  void GrowPasts(const onnx::NodeProto& node);
  void FindSlidingPasts();
  const onnx::TensorProto* ConstantOf(std::string name) const;
  int32_t TypeOf(const onnx::NodeProto& node, std::initializer_list<int> inputs) const;

  bool lengths_;
  const std::vector<SlidingPast>& sliding_;
  ExpandedModel plain_;
  absl::flat_hash_map<std::string, std::vector<int64_t>> dims_;
  absl::flat_hash_map<std::string, const onnx::NodeProto*> producers_;
  absl::flat_hash_map<std::string, const onnx::TensorProto*> constants_;
  absl::flat_hash_map<std::string, int32_t> types_;
  // The initializers that hold constants of branches.
  absl::flat_hash_map<const onnx::TensorProto*, std::string> lifted_;
  // The sliding pasts, by result 0 of their reader and by 0 (keys) or 1 (values).
  absl::flat_hash_map<std::pair<std::string, int>, const SlidingPast*> sliding_at_;
};

}  // namespace kvlift::plain
