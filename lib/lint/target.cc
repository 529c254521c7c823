#include "lint/target.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "lint/lint_nodes.h"
#include "lint/node_shapes.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

constexpr size_t kScatterCache = 0, kScatterIndices = 2;  // inputs of TensorScatter
// Inputs of Attention.
constexpr size_t kQueryInput = 0, kKeyInput = 1, kValueInput = 2, kMaskInput = 3, kPastKeyInput = 4,
                 kNonpadInput = 6;

// A cache among the graph's inputs that a TensorScatter updates.
struct Updated {
  NodeId writer = kNoNode;
  ValueId past = kNoValue, present = kNoValue;
};

// Returns the graph output that has the value v, apart from nodes that only rename or reshape it;
// kNoValue if there is none.
ValueId OutputOf(const Graph& graph, ValueId v) {
  for (ValueId output : graph.graph_outputs()) {
    if (SeeThroughViews(graph, output) == v) return output;
  }
  return kNoValue;
}

// Returns, for each run of digits in a name, the name with "%d" in its place, and the number:
// "past.0.key" gives {"past.%d.key", 0}. Runs of more than 9 digits are left out.
std::vector<std::pair<std::string, int64_t>> NumberedReadings(const std::string& name) {
  constexpr size_t kMostDigits = 9;
  const auto digit = [&](size_t k) { return k < name.size() && name[k] >= '0' && name[k] <= '9'; };
  std::vector<std::pair<std::string, int64_t>> readings;
  for (size_t start = 0; start < name.size(); ++start) {
    if (!digit(start)) continue;
    size_t end = start;
    while (digit(end)) ++end;
    if (end - start <= kMostDigits) {
      readings.emplace_back(name.substr(0, start) + "%d" + name.substr(end),
                            std::stoll(name.substr(start, end - start)));
    }
    start = end;
  }
  return readings;
}

class TargetRules {
 public:
  TargetRules(const Graph& graph, Profile profile, std::vector<Lint>* lints)
      : graph_(graph), profile_(profile), lints_(lints) {}

  void Run() {
    Growing();
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const bool scatter =
          graph_.Is(n, "TensorScatter") && graph_.inputs(n).size() > kScatterIndices;
      if (scatter && graph_.inputs(n)[kScatterCache] != kNoValue && Gives(n)) Scatter(n);
      if (graph_.Is(n, "Attention") && graph_.inputs(n).size() > kValueInput) Attention(n);
    }
    if (caches_.empty()) {
      AddForModel("KV131", "needs caches that a TensorScatter updates, found none", "");
      return;
    }
    Inputs();
    if (genai()) Names();
  }

 private:
  bool tensorrt() const { return profile_ == Profile::kTensorRt; }
  bool compiled() const { return tensorrt() || profile_ == Profile::kPortable; }
  bool heads_in_last_axis() const { return profile_ == Profile::kGenaiStatic; }
  bool genai() const { return profile_ == Profile::kGenai || heads_in_last_axis(); }
  // Returns true if the runtime wants attention to read the whole buffer and gives its valid length
  // beside it.
  bool whole() const { return compiled() || heads_in_last_axis(); }

  void Add(NodeId node, std::string_view code, std::string text,
           Severity severity = Severity::kError) {
    AddLint(graph_, node, code, std::move(text), lints_, severity);
  }

  void AddForModel(std::string_view code, std::string text, const std::string& value) {
    Finding finding{std::string(code), std::move(text), {}, {}};
    if (!value.empty()) finding.values.push_back(value);
    lints_->push_back({Severity::kError, std::move(finding)});
  }

  bool Gives(NodeId n) const {
    return !graph_.outputs(n).empty() && graph_.outputs(n)[0] != kNoValue;
  }

  // Reports graph inputs that a Concat makes longer on their way to an output (growing caches).
  void Growing() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.Is(n, "Concat") || !Gives(n)) continue;
      if (OutputOf(graph_, graph_.outputs(n)[0]) == kNoValue) continue;
      for (ValueId v : graph_.inputs(n)) {
        const ValueId past = SeeThroughViews(graph_, v);
        if (past == kNoValue) continue;
        const TensorType& type = graph_.type(past);
        const bool grows = graph_.is_graph_input(past) && type.shape && type.shape->size() >= 3 &&
                           IsFloatType(type.elem_type);
        if (!grows) continue;
        Add(n, "KV131", fmt::format("needs caches of a fixed capacity, {} grows", graph_.name(v)),
            profile_ == Profile::kOrt ? Severity::kWarning : Severity::kError);
        break;
      }
    }
  }

  void Scatter(NodeId node) {
    const ValueId given = graph_.inputs(node)[kScatterCache], result = graph_.outputs(node)[0];
    const Updated cache{node, SeeThroughViews(graph_, given), OutputOf(graph_, result)};
    const bool input = cache.past != kNoValue && graph_.is_graph_input(cache.past);
    if (input) caches_.push_back(cache);
    if (!input || cache.past != given || cache.present != result) {
      Add(node, "KV134",
          fmt::format("needs the cache straight from an input and to an output, found {} -> {}",
                      graph_.name(given), graph_.name(result)),
          compiled() ? Severity::kError : Severity::kWarning);
    }
    Placement(node);
    if (profile_ != Profile::kOrt &&
        StringAttribute(graph_.node(node), "mode", "linear") == "circular") {
      Add(node, "KV135", "needs mode \"linear\", found \"circular\"");
    }
    const int32_t type = NodeShapes(graph_, node).ElemType(kScatterCache);
    const bool known = type == 0 || type == TensorProto::FLOAT || type == TensorProto::FLOAT16 ||
                       type == TensorProto::BFLOAT16;
    if (tensorrt() && !known) {
      Add(node, "KV136",
          fmt::format("needs caches of float32, float16 or bfloat16, found {}",
                      ElementTypeName(type)));
    }
  }

  // Checks rank, sequence axis and capacity of a cache.
  void Placement(NodeId node) {
    const NodeShapes shapes(graph_, node);
    const int rank = shapes.Rank(kScatterCache);
    if (rank < 0) return;
    int64_t axis = IntAttribute(graph_.node(node), "axis", -2);
    if (axis < 0) axis += rank;
    const int wanted_rank = heads_in_last_axis() ? 3 : 4,
              wanted_axis = heads_in_last_axis() ? 1 : 2;
    if (profile_ != Profile::kOrt && (rank != wanted_rank || axis != wanted_axis)) {
      Add(node, "KV132",
          fmt::format("needs caches {}, found {} with its sequence on axis {}",
                      heads_in_last_axis() ? "[B, M, Nk*D]" : "[B, Nk, M, D]",
                      shapes.Show(kScatterCache), axis));
    } else if (compiled() && !shapes.Extent(kScatterCache, static_cast<int>(axis))) {
      Add(node, "KV133",
          fmt::format("needs a number as capacity, found {}", shapes.Show(kScatterCache)));
    }
  }

  void Attention(NodeId node) {
    const NodeShapes shapes(graph_, node);
    Reads(node);
    const int32_t type = shapes.ElemType(kKeyInput);
    if (profile_ == Profile::kOrt || genai()) {
      if (type == TensorProto::DOUBLE && IntAttribute(graph_.node(node), "is_causal", 0) != 0) {
        Add(node, "KV136", "float64 with is_causal: ONNX Runtime aligns that mask top-left");
      } else if (type == TensorProto::BFLOAT16) {
        Add(node, "KV136", "bfloat16: ONNX Runtime has no CPU kernel of Attention for it",
            Severity::kWarning);
      }
      Mask(node, shapes);
    }
    if (compiled()) Operands(node, shapes);
    if (heads_in_last_axis()) {
      const ValueId nonpad = shapes.Value(kNonpadInput);
      if (nonpad == kNoValue || !graph_.is_graph_input(nonpad)) {
        Add(node, "KV137", "needs nonpad_kv_seqlen from an input of the model");
      }
    }
  }

  void Reads(NodeId node) {
    for (size_t operand : {kKeyInput, kValueInput}) {
      const ValueId v = SeeThroughViews(graph_, graph_.inputs(node)[operand]);
      const NodeId from = v == kNoValue ? kNoNode : graph_.producer(v);
      if (from == kNoNode) continue;
      const bool buffer = graph_.Is(from, "TensorScatter");
      const bool part = graph_.Is(from, "Slice") && !graph_.inputs(from).empty() &&
                        graph_.inputs(from)[0] != kNoValue &&
                        graph_.producer(graph_.inputs(from)[0]) != kNoNode &&
                        graph_.Is(graph_.producer(graph_.inputs(from)[0]), "TensorScatter");
      if (whole() && part) {
        Add(node, "KV139",
            fmt::format("needs the whole buffer, found a part of it in {}",
                        graph_.name(graph_.inputs(node)[operand])));
        return;
      }
      if (!whole() && buffer) {
        Add(node, "KV139",
            fmt::format("reads the whole buffer {}: ONNX Runtime's CPU kernel computes its unused "
                        "rows, too",
                        graph_.name(v)),
            Severity::kWarning);
        return;
      }
    }
  }

  // Checks the operands and attributes of an Attention that compilers do not take. TensorRT: the
  // limits in onnx-tensorrt's docs/operators.md, and its causal mask, which is aligned top-left.
  // Portable: the operands and attributes that TensorRT and the providers of QNN, TIDL, MLX and
  // Vulkan all decline.
  void Operands(NodeId node, const NodeShapes& shapes) {
    const onnx::NodeProto& proto = graph_.node(node);
    const auto needs = [&](std::string text) { Add(node, "KV141", std::move(text)); };
    if (shapes.Has(kNonpadInput)) {
      needs("needs no nonpad_kv_seqlen (input 6): a mask hides unused rows");
    }
    if (shapes.Has(kPastKeyInput)) needs("needs no past_key and past_value (inputs 4 and 5)");
    for (size_t k = 1; k < graph_.outputs(node).size(); ++k) {
      if (graph_.outputs(node)[k] == kNoValue) continue;
      needs("needs one output alone");
      break;
    }
    if (IntAttribute(proto, "is_causal", 0) != 0) {
      needs("needs is_causal = 0: compilers align that mask top-left");
    }
    if (FloatAttribute(proto, "softcap", 0) != 0) needs("needs softcap = 0");
    if (!tensorrt() && IntAttribute(proto, "softmax_precision", 0) != 0) {
      needs("needs the softmax in the type of the scores, found softmax_precision");
    }
    for (size_t operand : {kQueryInput, kKeyInput, kValueInput, kMaskInput}) {
      const int rank = shapes.Rank(operand);
      if (rank < 0 || rank == 4) continue;
      needs(fmt::format("needs operands of rank 4, found {}", shapes.Show(operand)));
    }
    const int32_t mask = shapes.ElemType(kMaskInput), scores = shapes.ElemType(kKeyInput);
    if (mask != 0 && scores != 0 && mask != scores) {
      needs(fmt::format("needs a mask that is added to the scores, of {}, found {}",
                        ElementTypeName(scores), ElementTypeName(mask)));
    }
  }

  void Mask(NodeId node, const NodeShapes& shapes) {
    const int rank = shapes.Rank(kMaskInput), key_rank = shapes.Rank(kKeyInput);
    if (rank < 1 || key_rank < 3) return;
    const auto width = shapes.Extent(kMaskInput, rank - 1);
    const auto keys = shapes.Extent(kKeyInput, key_rank == 4 ? 2 : 1);
    if (width && keys && *width != 1 && *width < *keys) {
      Add(node, "KV140",
          fmt::format("needs a mask as wide as the keys, found {} for {}", shapes.Show(kMaskInput),
                      shapes.Show(kKeyInput)));
    }
  }

  // Checks that the runtime can fill the inputs that write indices come from.
  void Inputs() {
    if (heads_in_last_axis()) {
      for (const Updated& cache : caches_) {
        const ValueId index = graph_.inputs(cache.writer)[kScatterIndices];
        if (index == kNoValue || !graph_.is_graph_input(index)) {
          Add(cache.writer, "KV137", "needs write_indices from an input of the model");
        }
      }
      return;
    }
    if (profile_ != Profile::kGenai) return;
    static const std::set<std::string> known = {"past_sequence_length", "total_sequence_length",
                                                "current_sequence_length"};
    for (ValueId v : graph_.graph_inputs()) {
      const TensorType& type = graph_.type(v);
      const bool other = type.shape && type.shape->size() != 2 && IsIntegerType(type.elem_type) &&
                         !known.contains(graph_.name(v));
      if (other) {
        AddForModel("KV137",
                    fmt::format("needs inputs that the runtime fills: token ids, masks and "
                                "positions of two axes; {} is none",
                                graph_.name(v)),
                    graph_.name(v));
      }
    }
  }

  // Checks the names of caches: the runtime finds the caches of a layer by putting its number into
  // a pattern.
  void Names() {
    if (heads_in_last_axis()) {
      Fixed();
      return;
    }
    for (const bool past : {true, false}) {
      std::map<std::string, std::set<int64_t>> patterns;
      for (const Updated& cache : caches_) {
        for (auto& [pattern, number] : NumberedReadings(Name(cache, past))) {
          patterns[pattern].insert(number);
        }
      }
      // Layers of hybrid decoders without attention have states of their own, which count along.
      const std::set<int64_t> states = past ? NumbersOfStates() : NumbersOfNextStates();
      const auto layers = static_cast<int64_t>((caches_.size() + 1) / 2);
      const auto counts = [&](const std::set<int64_t>& numbers) {
        std::set<int64_t> all = numbers;
        all.insert(states.begin(), states.end());
        return static_cast<int64_t>(numbers.size()) == layers && *all.begin() == 0 &&
               *all.rbegin() == static_cast<int64_t>(all.size()) - 1;
      };
      for (const Updated& cache : caches_) {
        const auto readings = NumberedReadings(Name(cache, past));
        const bool fits = std::any_of(readings.begin(), readings.end(), [&](const auto& reading) {
          return counts(patterns.at(reading.first));
        });
        if (fits) continue;
        Add(cache.writer, "KV138",
            fmt::format("needs names that count the layers from 0, found {}", Name(cache, past)));
      }
    }
  }

  // Return the numbers in the names of graph inputs, or outputs, that are no caches.
  std::set<int64_t> NumbersOfStates() const { return NumbersIn(graph_.graph_inputs(), true); }
  std::set<int64_t> NumbersOfNextStates() const { return NumbersIn(graph_.graph_outputs(), false); }
  std::set<int64_t> NumbersIn(absl::Span<const ValueId> values, bool past) const {
    std::set<std::string> cached;
    for (const Updated& cache : caches_) cached.insert(Name(cache, past));
    std::set<int64_t> numbers;
    for (ValueId v : values) {
      if (cached.contains(graph_.name(v))) continue;
      for (const auto& [pattern, number] : NumberedReadings(graph_.name(v))) numbers.insert(number);
    }
    return numbers;
  }

  void Fixed() {
    std::map<std::string, std::set<int64_t>> layers;
    for (const Updated& cache : caches_) {
      const auto past = NumberedReadings(Name(cache, true));
      const auto present = NumberedReadings(Name(cache, false));
      const bool named = past.size() == 1 && present.size() == 1 &&
                         past[0].second == present[0].second &&
                         (past[0].first == "key_cache.%d" || past[0].first == "value_cache.%d") &&
                         present[0].first == "updated_" + past[0].first;
      if (named) {
        layers[past[0].first].insert(past[0].second);
      } else {
        Add(cache.writer, "KV138",
            fmt::format("needs key_cache.N and updated_key_cache.N, or the same of values, found "
                        "{} and {}",
                        Name(cache, true), Name(cache, false)));
      }
    }
    for (const auto& [pattern, numbers] : layers) {
      if (static_cast<int64_t>(numbers.size()) == *numbers.rbegin() + 1) continue;
      AddForModel("KV138", fmt::format("needs all layers from 0 on, {} leaves some out", pattern),
                  "");
    }
  }

  std::string Name(const Updated& cache, bool past) const {
    const ValueId v = past ? cache.past : cache.present;
    return v == kNoValue ? std::string() : graph_.name(v);
  }

  const Graph& graph_;
  Profile profile_;
  std::vector<Lint>* lints_;
  std::vector<Updated> caches_;
};

}  // namespace

std::optional<Profile> FindProfile(std::string_view name) {
  static constexpr std::pair<std::string_view, Profile> kProfiles[] = {
      {"ort", Profile::kOrt},
      {"genai", Profile::kGenai},
      {"genai-static", Profile::kGenaiStatic},
      {"tensorrt", Profile::kTensorRt},
      {"portable", Profile::kPortable}};
  for (const auto& [known, profile] : kProfiles) {
    if (known == name) return profile;
  }
  return std::nullopt;
}

void LintTarget(const Graph& graph, Profile profile, std::vector<Lint>* lints) {
  TargetRules(graph, profile, lints).Run();
}

}  // namespace kvlift
