#include "exec/apart.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

class ApartAnalysis {
 public:
  ApartAnalysis(const Graph& graph, absl::Span<const OpDef* const> defs, Plan& plan)
      : graph_(graph), defs_(defs), plan_(plan), timing_(graph.num_nodes(), Timing::kLate) {
    for (const StepPlan& step : plan.steps) timing_[step.node] = step.timing;
  }

  void Decide(PairPlan& pair) {
    std::string problem = Problem(pair);
    if (!problem.empty()) {
      pair.members.clear();
      pair.decision.reason += fmt::format(" where heads need no room between them: {}", problem);
      return;
    }
    pair.apart = true;
    plan_.apart[pair.past] = true;
    for (const ValueId v : pair.members) plan_.apart[v] = true;
  }

 private:
  std::string Problem(PairPlan& pair) {
    const ValuePlan& present = plan_.values[pair.present];
    if (timing_[pair.grower] != Timing::kPlanned || present.home != Home::kNext ||
        graph_.outputs(pair.grower)[0] != pair.present) {
      return "the present is a view, or made late";
    }
    std::string problem = ProblemOfReaders(pair.past, pair, false);
    pair.members = {pair.present};
    for (size_t k = 0; problem.empty() && k < pair.members.size(); ++k) {
      problem = ProblemOfReaders(pair.members[k], pair, true);
    }
    return problem;
  }

  // Returns an empty string if every reader of v accepts heads with room between them, else the
  // reason. Adds views of v to the members.
  std::string ProblemOfReaders(ValueId v, PairPlan& pair, bool views) {
    for (const Use& use : graph_.uses(v)) {
      if (use.kind == Use::Kind::kGraphOutput) {
        if (v == pair.present) continue;
        return fmt::format("\"{}\" is an output too", graph_.name(v));
      }
      const OpDef* def = use.kind == Use::Kind::kCapture ? nullptr : defs_[use.node];
      if (def != nullptr && use.index < 32 && (def->pitched_inputs >> use.index & 1) != 0) continue;
      if (views && def != nullptr && IsPlainView(use)) {
        const ValueId out = graph_.outputs(use.node)[0];
        if (out != kNoValue) pair.members.push_back(out);
        continue;
      }
      return fmt::format("{} \"{}\" reads it as one piece", graph_.node(use.node).op_type(),
                         graph_.NodeName(use.node));
    }
    return "";
  }

  bool IsPlainView(const Use& use) const {
    if (use.index != 0 || timing_[use.node] != Timing::kPlanned) return false;
    return graph_.Is(use.node, "Identity") || graph_.Is(use.node, "Reshape") ||
           graph_.Is(use.node, "Squeeze") || graph_.Is(use.node, "Unsqueeze");
  }

  const Graph& graph_;
  absl::Span<const OpDef* const> defs_;
  Plan& plan_;
  std::vector<Timing> timing_;  // by node
};

// The dense blocks of a view, formed by its last two dimensions; one block if the rank is below 3.
struct Blocks {
  int64_t count = 1, size = 1;
};

Blocks BlocksOf(const Shape& shape) {
  Blocks blocks;
  for (size_t d = 0; d < shape.size(); ++d) {
    (d + 2 < shape.size() ? blocks.count : blocks.size) *= shape[d];
  }
  return blocks;
}

}  // namespace

void FindApart(const Graph& graph, absl::Span<const OpDef* const> defs, Plan* plan) {
  plan->apart.assign(graph.num_values(), false);
  ApartAnalysis analysis(graph, defs, *plan);
  for (PairPlan& pair : plan->pairs) {
    if (pair.grower != kNoNode) analysis.Decide(pair);
  }
}

int64_t RoomyPitch(const Shape& shape, int64_t rows) {
  return std::max(rows, shape[shape.size() - 2]) * shape.back();
}

int64_t GrowingPitch(const Shape& shape) {
  const int64_t rows = shape[shape.size() - 2];
  return RoomyPitch(shape, (rows + rows / 4) / 16 * 16 + 16);
}

size_t SpannedBytes(int32_t type, const Shape& shape, int64_t pitch) {
  if (pitch == 0) return static_cast<size_t>(NumBytes(type, shape));
  return static_cast<size_t>(NumBytes(type, {BlocksOf(shape).count, pitch}));
}

void CopyView(const View& from, const View& to) {
  const int64_t bytes = from.bytes();
  if (bytes <= 0 || from.data == to.data) return;
  const Blocks blocks = BlocksOf(from.shape);
  if (from.pitch == to.pitch || blocks.count == 1) {
    if (from.pitch == 0 || blocks.count == 1) {
      std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
      return;
    }
  }
  const int64_t size = bytes / blocks.count;
  const int64_t from_pitch = from.pitch == 0 ? size : NumBytes(from.type, {from.pitch});
  const int64_t to_pitch = to.pitch == 0 ? size : NumBytes(to.type, {to.pitch});
  for (int64_t b = 0; b < blocks.count; ++b) {
    std::memcpy(to.data + b * to_pitch, from.data + b * from_pitch, static_cast<size_t>(size));
  }
}

void PoisonRoom(const View& view, size_t capacity) {
  const Blocks blocks = BlocksOf(view.shape);
  const auto size = static_cast<size_t>(NumBytes(view.type, {blocks.size}));
  const auto pitch =
      view.pitch == 0 ? capacity : static_cast<size_t>(NumBytes(view.type, {view.pitch}));
  for (int64_t b = 0; b < blocks.count; ++b) {
    const size_t begin = static_cast<size_t>(b) * pitch + size;
    const size_t end = std::min(capacity, begin - size + pitch);
    if (begin < end) std::memset(view.data + begin, 0xff, end - begin);
  }
}

}  // namespace kvlift::exec
