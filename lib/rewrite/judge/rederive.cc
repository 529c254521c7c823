#include "rewrite/judge/rederive.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "rewrite/recognise/batch_axis.h"
#include "rewrite/types/rule.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Form;
using sym::Kind;

class Walker {
 public:
  Walker(sym::Forms& forms, const sym::EmissionProbe& probe, const RederiveInput& input)
      : forms_(forms), graph_(forms.graph()), probe_(probe), in_(input) {
    Taint();
  }

  Rederived Run() {
    for (ValueId root : in_.roots) Push(root);
    while (!stack_.empty() && !out_.refusal && !out_.needs_uniform) {
      const NodeId n = stack_.back();
      stack_.pop_back();
      VisitNode(n);
    }
    if (!out_.refusal && !out_.needs_uniform && !widened_.empty()) {
      WidenedGraph widened = FollowBatchAxis(forms_, widened_, live_, in_.batch);
      out_.needs_uniform = std::move(widened.misfit);
      for (const auto& [v, axis] : widened.values) {
        if (axis == 0) out_.widened.insert(v);
      }
    }
    return std::move(out_);
  }

 private:
  // A value is tainted if the nodes of the source compute it from caches or masks, whose shapes
  // change.
  void Taint() {
    tainted_.assign(graph_.num_values(), false);
    for (ValueId v : in_.caches) tainted_[v] = true;
    for (ValueId v : in_.key_length_masks) tainted_[v] = true;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto is_tainted = [&](ValueId v) { return v != kNoValue && tainted_[v]; };
      const bool any =
          std::any_of(graph_.inputs(n).begin(), graph_.inputs(n).end(), is_tainted) ||
          std::any_of(graph_.captures(n).begin(), graph_.captures(n).end(), is_tainted);
      if (!any) continue;
      for (ValueId v : graph_.outputs(n)) {
        if (v != kNoValue && !(in_.provided.contains(v) && !in_.caches.contains(v))) {
          tainted_[v] = true;
        }
      }
    }
  }

  void Push(ValueId v) {
    const NodeId n = graph_.producer(v);
    if (n == kNoNode || in_.provided.contains(v)) return;
    if (live_.insert(n).second) stack_.push_back(n);
  }

  void VisitNode(NodeId n) {
    for (ValueId v : graph_.captures(n)) {
      if (tainted_[v] && !in_.views) return Refuse("KV215", n, v, "a branch or loop body reads it");
      Push(v);
    }
    for (int k = 0; k < static_cast<int>(graph_.inputs(n).size()); ++k) {
      const ValueId v = graph_.inputs(n)[k];
      if (v == kNoValue) continue;
      if (in_.caches.contains(v)) {
        if (in_.views) {
          out_.reads_caches = out_.reads_caches || !graph_.Is(n, "Shape");
          continue;
        }
        return Refuse("KV214", n, v, "it is read besides the cache update and the attention");
      }
      if (!tainted_[v] || in_.provided.contains(v)) {
        Push(v);
        continue;
      }
      VisitOperand(n, k, v);
      if (out_.refusal || out_.needs_uniform) return;
    }
  }

  void VisitOperand(NodeId n, int k, ValueId v) {
    const Form form = forms_.Of(v);
    if (in_.views) return VisitView(n, k, v, form);
    if (!form.known_rank) return Refuse("KV215", n, v, "its shape is not known");
    if (form.opaque || MovesComputedData(form.element)) {
      if (graph_.producer(v) == kNoNode) {
        return Refuse("KV215", n, v, "an operator computes with its content");
      }
      if (DependsOnLength(form.shape)) {
        return Refuse("KV215", n, v, "it is as long as the past and no attention score");
      }
      return Push(v);
    }
    Replace(n, k, v, form);
  }

  // Derives index data where that is possible, so that no view is made for its length alone.
  void VisitView(NodeId n, int k, ValueId v, const Form& form) {
    if (form.known_rank && !form.opaque && !MovesComputedData(form.element) && !ReadsCache(form) &&
        !DependsOnLength(form.shape)) {
      Replace(n, k, v, form);
      if (!out_.refusal) return;
      out_.refusal.reset();
    }
    Push(v);
  }

  bool ReadsCache(const Form& form) const {
    for (ValueId source : sym::SourcesOf(form.element)) {
      if (in_.caches.contains(source)) return true;
    }
    return false;
  }

  // Returns true if the element moves data that an operator computes; that movement stays as it is.
  bool MovesComputedData(Expr element) {
    for (ValueId source : sym::SourcesOf(element)) {
      if (graph_.producer(source) != kNoNode && graph_.constant(source) == nullptr) return true;
    }
    return false;
  }

  bool DependsOnLength(absl::Span<const Expr> shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](Expr dim) { return HoldsLength(dim); });
  }

  bool HoldsLength(Expr e) const {
    return std::any_of(in_.lengths.begin(), in_.lengths.end(),
                       [&](const sym::DimSymbol& dim) { return sym::ContainsDim(e, dim); });
  }

  // If the operand is a constant table that is cut to the total length and then looked up by
  // position: returns the whole table, which gives the same rows. Returns kNoValue otherwise.
  ValueId WholeTable(NodeId n, int k, const Form& form) {
    if (!graph_.Is(n, "Gather") || k != 0 || form.element->kind() != Kind::kLoad) return kNoValue;
    const ValueId table = form.element->source();
    if (graph_.constant(table) == nullptr) return kNoValue;
    const auto rank = static_cast<int64_t>(form.shape.size());
    if (static_cast<int64_t>(form.element->args().size()) != rank) return kNoValue;
    const int64_t axis = IntAttribute(graph_.node(n), "axis", 0);
    for (int64_t j = 0; j < rank; ++j) {
      if (form.element->args()[j] != forms_.pool().Index(static_cast<int>(j))) return kNoValue;
      if (HoldsLength(form.shape[j]) && j != (axis < 0 ? axis + rank : axis)) return kNoValue;
    }
    return table;
  }

  void Replace(NodeId n, int k, ValueId v, const Form& form) {
    if (const ValueId table = WholeTable(n, k, form); table != kNoValue) {
      out_.operands.push_back({n, k, table});
      return;
    }
    if (DependsOnLength(form.shape)) {
      return Refuse("KV215", n, v, "it is as long as the past and no attention score");
    }
    sym::Emitter::Request request;
    request.shape = form.shape;
    request.elem_type = forms_.ElementType(v);
    request.role = graph_.name(v).empty() ? "index" : "derived";
    request.element = forms_.pool().Substitute(form.element, in_.normal, sym::Facts{form.shape});
    if (request.elem_type == 0) return Refuse("KV215", n, v, "its type is not known");
    if (in_.per_sequence && probe_.IsPerSequence(request.element)) {
      if (form.shape.empty()) {
        out_.needs_uniform = WhyNotPerSequence(n, v, "is a scalar");
        return;
      }
      request.batch_axis = 0;
      if (form.shape[0]->is_integer(1) && form.shape.size() >= 2) {
        request.shape[0] = in_.batch;
        widened_.push_back({n, k, 0});
      } else if (form.shape[0] != in_.batch) {
        out_.needs_uniform = WhyNotPerSequence(n, v, "has no batch axis");
        return;
      }
    }
    if (const absl::Status derived = probe_.Tensor(request); !derived.ok()) {
      return Refuse("KV215", n, v, std::string(derived.message()));
    }
    out_.operands.push_back({n, k, std::move(request)});
  }

  std::string WhyNotPerSequence(NodeId n, ValueId v, std::string_view what) const {
    return fmt::format("{}, which {} reads, depends on the past's length and {}", graph_.name(v),
                       graph_.NodeName(n), what);
  }

  void Refuse(std::string_view code, NodeId n, ValueId v, std::string_view why) {
    out_.refusal = MakeFinding(
        code, fmt::format("{} depends on the cache: {}", graph_.name(v), why), graph_, {n}, {v});
  }

  sym::Forms& forms_;
  const Graph& graph_;
  const sym::EmissionProbe& probe_;
  const RederiveInput& in_;
  std::vector<bool> tainted_;
  std::vector<NodeId> stack_;
  absl::flat_hash_set<NodeId> live_;
  std::vector<WidenedOperand> widened_;
  Rederived out_;
};

}  // namespace

Rederived Rederive(sym::Forms& forms, const sym::EmissionProbe& probe, const RederiveInput& input) {
  return Walker(forms, probe, input).Run();
}

}  // namespace kvlift
