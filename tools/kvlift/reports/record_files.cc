#include "kvlift/reports/record_files.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "base/status.h"
#include "contract/layout.h"
#include "contract/manifest_json.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "kvlift/cli.h"
#include "kvlift/inputs/npz.h"
#include "kvlift/reports/documents.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// Returns bounds as float32, none of them smaller; a single number if all are equal.
exec::Tensor Narrowed(const exec::Tensor& bounds) {
  const auto wide = bounds.span<double>();
  bool is_one = !wide.empty();
  for (const double bound : wide) is_one = is_one && bound == wide[0];
  exec::Tensor narrow(onnx::TensorProto::FLOAT, is_one ? exec::Shape() : bounds.shape());
  for (int64_t i = 0; i < narrow.size(); ++i) {
    const auto nearest = static_cast<float>(wide[i]);
    narrow.span<float>()[i] = nearest < wide[i]
                                  ? std::nextafter(nearest, std::numeric_limits<float>::infinity())
                                  : nearest;
  }
  return narrow;
}

// Returns the axis of the rows in a source's cache, axes that Select removes included.
int64_t RowsAxisOf(const SourceCache& cache) {
  const std::vector<std::string> axes = AxesOfLayout(cache.layout);
  int64_t axis = 0;
  for (size_t k = 0; k < axes.size(); ++axis) {
    bool fixed = false;
    for (const Select& select : cache.select) fixed = fixed || select.axis == axis;
    if (fixed) continue;
    if (axes[k].find('S') != std::string::npos) return axis;
    ++k;
  }
  return cache.axis;
}

// ASCII only: names in a model may be no UTF-8.
std::string TextOf(const ordered_json& json) {
  return json.dump(1, ' ', true, ordered_json::error_handler_t::replace) + "\n";
}

class Writer {
 public:
  Writer(const RecordSource& source, const std::string& folder)
      : source_(source), folder_(folder) {}

  absl::StatusOr<RecordFiles> Run() {
    ordered_json& json = out_.document;
    json["schema"] = "kvlift/record/1";
    json["version"] = kVersion;
    KV_ASSIGN_OR_RETURN(json["before"], ModelJson(*source_.before, source_.before_file));
    KV_ASSIGN_OR_RETURN(json["after"], ModelJson(*source_.after, source_.after_file));
    const VerifyReport& report = *source_.report;
    json["verdict"] = VerdictName(report.verdict);
    json["reason"] = report.reason.empty() ? ordered_json() : ordered_json(report.reason);
    json["bounds"] = {{"computed", report.oracle.steps},
                      {"of", report.oracle.steps_seen},
                      {"half_types", !report.half_types.plans.empty() || half_types()},
                      {"decisions", report.half_types.decisions},
                      {"doubtful", report.oracle.doubtful}};
    AddCaches();
    KV_ASSIGN_OR_RETURN(json["plans"], PlansJson(source_.recorder->plans, "plan", false));
    KV_ASSIGN_OR_RETURN(json["lengths"], PlansJson(source_.recorder->timed, "length", true));
    KV_ASSIGN_OR_RETURN(json["large"], PlansJson(source_.recorder->large, "large", true));
    json["skipped"] = ordered_json::array();
    for (const PlanResult& plan : report.plans) {
      if (plan.status != "skipped") continue;
      json["skipped"].push_back({{"name", plan.name}, {"why", plan.note}});
    }
    for (const auto& [length, why] : source_.recorder->skipped_lengths) {
      json["skipped"].push_back({{"name", fmt::format("{} tokens", length)}, {"why", why}});
    }
    json["assumptions"] = ToJson(report.assumptions.all());
    json["manifest"] = ToJson(*source_.relation);
    out_.files.push_back({(fs::path(folder_) / "record.json").string(), TextOf(json)});
    return std::move(out_);
  }

 private:
  bool half_types() const {
    for (const ManifestCache& cache : source_.relation->caches) {
      if (cache.dtype == "float16" || cache.dtype == "bfloat16") return true;
    }
    return false;
  }

  // Names the node of each output, for runtimes that get one wrong.
  static absl::StatusOr<ordered_json> ModelJson(const Model& model, const RecordedModel& file) {
    KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(model.proto));
    ordered_json json = {{"path", file.path}, {"sha256", file.sha256}};
    for (const ValueId output : graph.graph_outputs()) {
      const NodeId node = graph.producer(output);
      json["outputs"].push_back({{"name", graph.name(output)},
                                 {"node", node == kNoNode ? "" : graph.NodeName(node)},
                                 {"operator", node == kNoNode ? "" : graph.node(node).op_type()}});
    }
    return json;
  }

  void AddCaches() {
    const Manifest& relation = *source_.relation;
    ordered_json caches = ordered_json::array(), theirs = ordered_json::array();
    std::map<std::string, bool> known;
    for (const ManifestCache& cache : relation.caches) {
      caches.push_back({{"id", cache.id},
                        {"input", cache.input},
                        {"output", cache.output},
                        {"type", cache.dtype},
                        {"axis", cache.axis},
                        {"batch_axis", AxisOf(cache.layout, 'B')},
                        {"in_place", cache.alias == CacheAlias::kSafe && !cache.grows},
                        {"circular", IsCircular(relation, cache)},
                        {"grows", cache.grows}});
      for (const ManifestCache& scales : relation.caches) {
        if (!cache.quantization || scales.id != cache.quantization->scales) continue;
        caches.back()["scales"] = scales.output;
        caches.back()["group"] = cache.quantization->group;
      }
      if (!known.emplace(cache.source.input, true).second) continue;
      theirs.push_back({{"input", cache.source.input},
                        {"output", cache.source.output},
                        {"axis", RowsAxisOf(cache.source)},
                        {"grows", cache.source.growing}});
    }
    out_.document["caches"] = std::move(caches);
    out_.document["source_caches"] = std::move(theirs);
  }

  bool IsSourceCache(const std::string& input) const {
    for (const ManifestCache& cache : source_.relation->caches) {
      if (cache.source.input == input) return true;
    }
    return false;
  }

  bool IsCacheInput(const std::string& input) const {
    for (const ManifestCache& cache : source_.relation->caches) {
      if (cache.input == input) return true;
    }
    return false;
  }

  // Adds feeds to the step's file. Caches of steps that are timed have a shape alone.
  absl::StatusOr<ordered_json> FeedsJson(const exec::Feeds& feeds, const std::string& prefix,
                                         bool timed, bool of_source, NpzWriter* npz) const {
    ordered_json json = ordered_json::array();
    for (const auto& [name, value] : feeds) {
      ordered_json one = {{"name", name}, {"type", ElementTypeName(value.type())}};
      if (timed && (of_source ? IsSourceCache(name) : IsCacheInput(name))) {
        one["shape"] = std::vector<int64_t>(value.shape().begin(), value.shape().end());
      } else {
        one["array"] = fmt::format("{}.{}", prefix, json.size());
        KV_RETURN_IF_ERROR(npz->Add(one["array"].get<std::string>(), value.view()));
      }
      json.push_back(std::move(one));
    }
    return json;
  }

  absl::StatusOr<ordered_json> StepJson(const RecordedStep& step, const std::string& file,
                                        bool timed) {
    NpzWriter npz;
    ordered_json json = {{"file", file}, {"sha256", ""}};
    json["past"] = step.spec.past;
    json["new_tokens"] = step.spec.new_tokens;
    if (!step.spec.order.empty()) json["order"] = step.spec.order;
    json["before"] = ordered_json::array();
    for (const RecordedRun& run : step.source) {
      ordered_json one = {{"sequences", run.sequences}};
      KV_ASSIGN_OR_RETURN(
          one["inputs"],
          FeedsJson(run.feeds, fmt::format("before.{}", json["before"].size()), timed, true, &npz));
      one["past"] = ordered_json::array();
      for (const auto& [name, rows] : run.rows) {
        one["past"].push_back({{"input", name}, {"rows", rows}});
      }
      json["before"].push_back(std::move(one));
    }
    KV_ASSIGN_OR_RETURN(json["after"], FeedsJson(step.feeds, "after", timed, false, &npz));
    json["expect"] = ordered_json::array();
    for (const auto& [name, output] : step.outputs) {
      if (timed) break;
      const size_t number = json["expect"].size();
      ordered_json one = {{"name", name},
                          {"type", ElementTypeName(output.want.type())},
                          {"array", fmt::format("want.{}", number)},
                          {"bound", fmt::format("bound.{}", number)}};
      KV_RETURN_IF_ERROR(npz.Add(one["array"].get<std::string>(), output.want.view()));
      KV_RETURN_IF_ERROR(npz.Add(one["bound"].get<std::string>(), Narrowed(output.bound).view()));
      json["expect"].push_back(std::move(one));
    }
    std::string bytes = npz.Finish();
    json["sha256"] = Sha256Hex(bytes);
    out_.files.push_back({(fs::path(folder_) / file).string(), std::move(bytes)});
    return json;
  }

  absl::StatusOr<ordered_json> PlansJson(const std::vector<RecordedPlan>& plans,
                                         const std::string& what, bool timed) {
    ordered_json json = ordered_json::array();
    for (const RecordedPlan& plan : plans) {
      const std::string to = fmt::format("{}-{:03}", what, json.size() + 1);
      ordered_json one = {{"name", plan.name}, {"shows", plan.shows}, {"capacity", plan.capacity}};
      one["steps"] = ordered_json::array();
      for (const RecordedStep& step : plan.steps) {
        const std::string file = fmt::format("{}/step-{:03}.npz", to, one["steps"].size() + 1);
        KV_ASSIGN_OR_RETURN(ordered_json written, StepJson(step, file, timed));
        one["steps"].push_back(std::move(written));
      }
      json.push_back(std::move(one));
    }
    return json;
  }

  const RecordSource& source_;
  const std::string& folder_;
  RecordFiles out_;
};

}  // namespace

absl::StatusOr<RecordFiles> FilesOfRecord(const RecordSource& source, const std::string& folder) {
  return Writer(source, folder).Run();
}

}  // namespace kvlift::cli
