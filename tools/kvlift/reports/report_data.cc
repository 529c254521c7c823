#include "kvlift/reports/report_data.h"

#include <algorithm>
#include <map>

#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "kvlift/cli.h"
#include "kvlift/inputs/model_diff.h"
#include "kvlift/reports/documents.h"
#include "kvlift/reports/report_drawing.h"
#include "kvlift/reports/report_tables.h"
#include "report/text/collapse.h"

namespace kvlift::cli {
namespace {

constexpr size_t kMostDrawings = 4;  // groups of equal layers
constexpr size_t kMostLifetimes = 8;
constexpr int64_t kAssumedCapacity = 4096;

// Returns the graph with as many inferred types as possible, since the drawing leaves out integers.
absl::StatusOr<Graph> TypedGraph(const Model& model) {
  if (auto inferred = InferShapes(*model.proto); inferred.ok()) {
    auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*std::move(inferred)));
    if (graph.ok()) return graph;
  }
  return Graph::Build(model.proto);
}

class Maker {
 public:
  explicit Maker(const ReportInput& input) : in_(input) {}

  absl::StatusOr<Report> Run() {
    KV_ASSIGN_OR_RETURN(before_, TypedGraph(*in_.before));
    if (in_.after != nullptr) {
      KV_ASSIGN_OR_RETURN(after_, TypedGraph(*in_.after));
      diff_ = Diff(*before_, *after_);
    }
    report_.command = in_.command;
    report_.version = kVersion;
    AddFiles();
    AddVerdict();
    report_.interface = InterfaceTable(*before_, after_ ? &*after_ : nullptr, in_.manifest);
    report_.layers = LayersTable(*in_.inspection, in_.manifest);
    report_.refused = RefusedTable(*in_.inspection);
    AddDrawings();
    AddLifetimes();
    AddMemory();
    if (in_.verify != nullptr) AddVerification(*in_.verify, &report_);
    if (in_.manifest != nullptr && in_.after != nullptr) {
      report_.preconditions = PreconditionsTable(*in_.manifest);
      report_.how_to = HowTo(*in_.manifest, in_.after->path);
    }
    report_.json =
        in_.document.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
    return std::move(report_);
  }

 private:
  void AddFiles() {
    report_.files.push_back(
        {"before", in_.before->path, in_.before->Sha256(), before_->num_nodes(), before_->opset()});
    if (!after_) return;
    const std::string sha = in_.after_sha256.empty() ? in_.after->Sha256() : in_.after_sha256;
    report_.files.push_back({"after", in_.after->path, sha, after_->num_nodes(), after_->opset()});
  }

  void AddVerdict() {
    if (in_.verify != nullptr) {
      report_.verdict = VerdictName(in_.verify->verdict);
      report_.reason = in_.verify->reason;
    } else {
      report_.verdict = after_ ? "not verified" : "not converted";
    }
    const auto convertible =
        std::count_if(in_.inspection->caches.begin(), in_.inspection->caches.end(),
                      [](const CacheReport& c) { return !c.reason; });
    report_.facts.push_back(fmt::format("{} caches found, {} convertible; {} attentions",
                                        in_.inspection->caches.size(), convertible,
                                        in_.inspection->attention.size()));
    if (after_) {
      report_.facts.push_back(
          fmt::format("{} -> {} nodes: {} kept, {} changed, {} removed, {} added",
                      before_->num_nodes(), after_->num_nodes(), diff_.kept, diff_.changed.size(),
                      diff_.removed.size(), diff_.added.size()));
    }
    if (in_.verify == nullptr) return;
    const auto& controls = in_.verify->controls;
    const auto detected =
        std::count_if(controls.begin(), controls.end(),
                      [](const ControlResult& c) { return !c.detected_by.empty(); });
    report_.facts.push_back(fmt::format("{} plans run; {} of {} wrong models detected",
                                        in_.verify->plans.size(), detected, controls.size()));
  }

  // Returns a cache of a layer by its id, as the manifest describes it in AFTER.
  const ManifestCache* CacheOf(const std::string& id) const {
    if (in_.manifest == nullptr) return nullptr;
    for (const ManifestCache& c : in_.manifest->caches) {
      if (c.id == id) return &c;
    }
    return nullptr;
  }

  const AttentionReport* AttentionOf(int64_t layer) const {
    for (const AttentionReport& a : in_.inspection->attention) {
      if (a.id == fmt::format("{}", layer)) return &a;
    }
    return nullptr;
  }

  // Returns a key of a layer; layers with equal keys are drawn once.
  std::string ClassOf(int64_t layer) const {
    std::string key;
    for (const CacheReport& c : in_.inspection->caches) {
      if (c.layer != layer) continue;
      key += fmt::format("{} {} {} {} {} {};", WordOf(c.role), WordOf(c.kind), c.layout, c.dtype,
                         c.growing, c.reason ? c.reason->code : "");
    }
    if (const AttentionReport* a = AttentionOf(layer)) {
      key += fmt::format("{} {} {} {} {} {} {}", a->form, a->q_heads, a->kv_heads, a->head_dim,
                         a->scale, a->mask, a->reason ? a->reason->code : "");
    }
    return key;
  }

  static std::string TitleOf(const std::vector<uint64_t>& layers) {
    return layers.size() == 1 ? fmt::format("Layer {}", layers[0])
                              : fmt::format("Layer {}, like all of {}", layers[0], Ranges(layers));
  }

  void AddDrawings() {
    std::vector<std::pair<std::string, std::vector<uint64_t>>> classes;
    for (const CacheReport& c : in_.inspection->caches) {
      const std::string key = ClassOf(c.layer);
      auto it = std::find_if(classes.begin(), classes.end(),
                             [&](const auto& entry) { return entry.first == key; });
      if (it == classes.end()) it = classes.insert(classes.end(), {key, {}});
      const auto layer = static_cast<uint64_t>(c.layer);
      if (it->second.empty() || it->second.back() != layer) it->second.push_back(layer);
    }
    for (const auto& [key, layers] : classes) {
      if (report_.drawings.size() == kMostDrawings) break;
      report_.drawings.push_back(DrawClass(layers));
    }
  }

  DrawnLayer DrawClass(const std::vector<uint64_t>& layers) const {
    LayerValues before, after;
    bool in_place = after_.has_value();
    for (const CacheReport& c : in_.inspection->caches) {
      if (c.layer != static_cast<int64_t>(layers[0])) continue;
      before.pasts.push_back(c.input);
      before.presents.push_back(c.output);
      const ManifestCache* target = CacheOf(c.id);
      after.pasts.push_back(target == nullptr ? c.input : target->input);
      after.presents.push_back(target == nullptr ? c.output : target->output);
      in_place = in_place && target != nullptr && target->alias == CacheAlias::kSafe;
    }
    if (const AttentionReport* a = AttentionOf(static_cast<int64_t>(layers[0]))) {
      before.nodes = a->nodes;
    }
    DrawnLayer drawn{TitleOf(layers), {}, {}};
    drawn.before = DrawLayer(*before_, diff_.before, DrawnNode::Mark::kRemoved, before, false);
    if (after_) {
      drawn.after = DrawLayer(*after_, diff_.after, DrawnNode::Mark::kAdded, after, in_place);
    }
    return drawn;
  }

  static std::optional<Lifetime> LifeOf(const Graph& graph, const std::string& id,
                                        const std::string& past, const std::string& present,
                                        bool in_place) {
    const ValueId in = graph.Find(past), out = graph.Find(present);
    if (in == kNoValue || out == kNoValue || graph.producer(out) == kNoNode) return std::nullopt;
    Lifetime life{id, 0, graph.producer(out), graph.num_nodes(), in_place};
    for (const Use& use : graph.uses(in)) life.past_until = std::max(life.past_until, use.node);
    return life;
  }

  void AddLifetimes() {
    LifetimeChart before{"Before", before_->num_nodes(), {}};
    LifetimeChart after{"After", after_ ? after_->num_nodes() : 0, {}};
    for (const CacheReport& c : in_.inspection->caches) {
      if (before.caches.size() == kMostLifetimes) break;
      if (const auto life = LifeOf(*before_, c.id, c.input, c.output, false)) {
        before.caches.push_back(*life);
      }
      const ManifestCache* target = CacheOf(c.id);
      if (!after_ || target == nullptr) continue;
      if (const auto life = LifeOf(*after_, c.id, target->input, target->output,
                                   target->alias == CacheAlias::kSafe)) {
        after.caches.push_back(*life);
      }
    }
    if (!before.caches.empty()) report_.lifetimes.push_back(std::move(before));
    if (!after.caches.empty()) report_.lifetimes.push_back(std::move(after));
  }

  void AddMemory() {
    if (!after_ || in_.manifest == nullptr) return;
    MemoryCurves curves;
    curves.growing_before = false;
    for (const CacheReport& c : in_.inspection->caches) {
      if (!c.bytes_per_token) return;
      curves.bytes_per_token += *c.bytes_per_token;
      curves.growing_before = curves.growing_before || c.growing;
    }
    curves.capacity_assumed = !in_.manifest->capacity_value;
    curves.capacity = in_.manifest->capacity_value.value_or(kAssumedCapacity);
    if (curves.bytes_per_token > 0 && curves.capacity < (int64_t{1} << 24)) {
      report_.memory = curves;
    }
  }

  const ReportInput& in_;
  std::optional<Graph> before_, after_;
  ModelDiff diff_;
  Report report_;
};

}  // namespace

absl::StatusOr<Report> MakeReport(const ReportInput& input) { return Maker(input).Run(); }

absl::StatusOr<std::string> ReportPage(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyReport& verdict,
                                       std::string command) {
  KV_ASSIGN_OR_RETURN(const Inspection inspection, Inspect(before, AllRules()));
  ReportInput input;
  input.command = std::move(command);
  input.before = &before;
  input.after = &after;
  input.inspection = &inspection;
  input.manifest = &relation;
  input.verify = &verdict;
  input.document["inspect"] = InspectDocument(before, inspection);
  input.document["verify"] = VerifyDocument(verdict);
  KV_ASSIGN_OR_RETURN(const Report report, MakeReport(input));
  return HtmlReport(report);
}

std::string CommandText(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("-_./=,:+@%").find(c) != std::string_view::npos;
    });
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace kvlift::cli
