#include "rewrite/judge/judge_storage.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/judge/staying_nodes.h"
#include "rewrite/plan/declared_types.h"

namespace kvlift::internal {
namespace {

using onnx::TensorProto;

constexpr int64_t kRoles = 2;  // keys and values

class StorageJudge {
 public:
  StorageJudge(const Analysis& a, const ConversionPlan& plan)
      : a_(a),
        plan_(plan),
        graph_(*a.graph),
        caches_(ConvertedCaches(a)),
        types_(RetypedValues(a, plan)),
        stays_(a, plan) {}

  JudgedStorage Run() {
    JudgedStorage judged;
    judged.refusal = JudgeAll(&judged);
    return judged;
  }

 private:
  std::optional<Finding> JudgeAll(JudgedStorage* judged) {
    const Unpacked& unpacked = a_.normalised.unpacked;
    if (!unpacked.caches.empty()) {
      if (auto refusal = PartsMisfit(unpacked)) return refusal;
    }
    if (unpacked.group > 0) {
      judged->quantization.emplace(PlannedQuantization{{}, /*as_source=*/true});
      judged->quantization->how.group = unpacked.group;
      if (auto refusal = QuantizationMisfit(judged->quantization->how)) return refusal;
    }
    if (plan_.options.cache_tensors == CacheTensors::kPacked) {
      if (auto refusal = PackingMisfit()) return refusal;
    }
    if (plan_.options.io_names == IoNames::kStatic) {
      if (auto refusal = NameCaches(&judged->names)) return refusal;
    }
    if (!plan_.options.quantize_cache) return std::nullopt;
    judged->quantization.emplace(PlannedQuantization{*plan_.options.quantize_cache, false});
    return QuantizationMisfit(judged->quantization->how);
  }

  const PlannedCache& Planned(const AnalysedCache& cache) const {
    return plan_.caches[cache.update_index];
  }
  const std::string& PastOf(const AnalysedCache& cache) const {
    return graph_.name(cache.candidate.pair.past);
  }
  const onnx::TypeProto::Tensor& TypeOf(const AnalysedCache& cache) const {
    return types_.at(PastOf(cache)).tensor_type();
  }
  // Returns true if a TensorScatter alone is between past and present.
  bool IsScattered(const AnalysedCache& cache) const {
    return !plan_.writes[cache.update_index].reordered_past && Planned(cache).placement.axis != 0;
  }

  // Returns true if hosts of the target know one tensor for each cache, and no other.
  bool NeedsOneEach() const {
    return plan_.options.target != Target::kSpec && plan_.options.target != Target::kOrt;
  }

  Finding Because(std::string code, std::string text, const AnalysedCache& cache,
                  NodeId node = kNoNode) const {
    Finding finding{std::move(code), std::move(text), {}, {PastOf(cache)}};
    if (node != kNoNode) finding.nodes.push_back(graph_.NodeName(node));
    return finding;
  }

  // Returns why a packed tensor cannot be taken apart, with its scales.
  std::optional<Finding> PartsMisfit(const Unpacked& unpacked) const {
    const auto packed = [&](const AnalysedCache* cache) {
      return unpacked.Find(PastOf(*cache)) != nullptr;
    };
    const auto count = std::count_if(caches_.begin(), caches_.end(), packed);
    const auto refuse = [&](std::string code, std::string text) {
      return Finding{std::move(code), std::move(text), {}, {unpacked.caches.front().source.input}};
    };
    if (count != static_cast<int64_t>(unpacked.caches.size())) {
      return refuse("KV238", "needs all layers of a packed tensor converted, or none");
    }
    if (unpacked.group == 0) return std::nullopt;
    if (count != static_cast<int64_t>(caches_.size())) {
      return refuse("KV238", "needs no other caches beside quantised ones of a packed tensor");
    }
    if (!plan_.options.quantize_cache) return std::nullopt;
    return refuse("KV243", "needs caches of floating-point numbers, found quantised ones");
  }

  std::optional<Finding> QuantizationMisfit(const CacheQuantization& how) const {
    if (NeedsOneEach()) {
      return Because("KV245", "needs a host that keeps scales beside values: --target spec or ort",
                     *caches_.front());
    }
    for (const AnalysedCache* cache : caches_) {
      if (auto misfit = QuantizationMisfit(how, *cache)) return misfit;
    }
    return std::nullopt;
  }

  std::optional<Finding> QuantizationMisfit(const CacheQuantization& how,
                                            const AnalysedCache& cache) const {
    const std::string& past = PastOf(cache);
    const std::string& layout = Planned(cache).placement.layout;
    const onnx::TypeProto::Tensor& type = TypeOf(cache);
    const auto& dims = type.shape().dim();
    if (layout.empty() || layout.back() != 'D' || dims.size() != static_cast<int>(layout.size()) ||
        dims.rbegin()->dim_value() < 1) {
      return Because("KV242",
                     fmt::format("needs the elements of a head on the last axis of {}, found the "
                                 "layout {}; --layout bnsd may help",
                                 past, layout),
                     cache);
    }
    if (type.elem_type() != TensorProto::FLOAT && type.elem_type() != TensorProto::FLOAT16 &&
        type.elem_type() != TensorProto::BFLOAT16) {
      return Because("KV243",
                     fmt::format("needs a cache of float32, float16 or bfloat16, found {} in {}",
                                 ElementTypeName(type.elem_type()), past),
                     cache);
    }
    const int64_t size = dims.rbegin()->dim_value();
    if (how.group > 0 && size % how.group != 0) {
      return Because("KV241",
                     fmt::format("needs groups that divide a head, found {} elements and groups of "
                                 "{} in {}",
                                 size, how.group, past),
                     cache);
    }
    return ReaderMisfit(cache);
  }

  // Returns why scales cannot be written and read beside the values of a cache.
  std::optional<Finding> ReaderMisfit(const AnalysedCache& cache) const {
    const auto& [past, present] = cache.candidate.pair;
    if (!IsScattered(cache)) {
      return Because("KV244",
                     fmt::format("needs a TensorScatter between {} and {}, found something between",
                                 graph_.name(past), graph_.name(present)),
                     cache, graph_.producer(present));
    }
    if (const NodeId reader = stays_.ReaderOfPast(Planned(cache)); reader != kNoNode) {
      return Because("KV244",
                     fmt::format("needs {} to be read by its TensorScatter alone, found another "
                                 "reader",
                                 graph_.name(past)),
                     cache, reader);
    }
    const NodeId owner = stays_.CaptureOf(Planned(cache), present);
    if (owner == kNoNode) return std::nullopt;
    return Because("KV244", fmt::format("{} is read inside a branch", graph_.name(present)), cache,
                   owner);
  }

  // Returns why the caches that are parts of one tensor in the source cannot be so in the result.
  std::optional<Finding> PackingMisfit() const {
    if (NeedsOneEach()) {
      return Because("KV246",
                     "needs a host that keeps all layers in one tensor: --target spec or ort",
                     *caches_.front());
    }
    if (plan_.options.quantize_cache) {
      return Because("KV246", "needs rows as the source keeps them, without --quantize-cache",
                     *caches_.front());
    }
    std::map<std::string, std::vector<const AnalysedCache*>> packs;  // by the source's tensor
    for (const AnalysedCache* cache : caches_) {
      const SourceCache* source = SourceOf(*cache);
      if (source != nullptr) packs[source->input].push_back(cache);
    }
    if (packs.empty()) {
      const std::string& some = PastOf(*caches_.front());
      return Because(
          "KV246",
          fmt::format("needs a source that keeps all layers in one tensor, found {}", some),
          *caches_.front());
    }
    for (const auto& [tensor, parts] : packs) {
      if (auto misfit = PackMisfit(tensor, parts)) return misfit;
    }
    return std::nullopt;
  }

  // Returns where a part of a packed tensor is in the source; null for other caches.
  const SourceCache* SourceOf(const AnalysedCache& cache) const {
    const UnpackedCache* part = a_.normalised.unpacked.Find(PastOf(cache));
    return part == nullptr || part->source.select.size() != kRoles ? nullptr : &part->source;
  }

  std::optional<Finding> PackMisfit(const std::string& tensor,
                                    const std::vector<const AnalysedCache*>& parts) const {
    const std::string& first = Planned(*parts.front()).placement.layout;
    std::set<int64_t> places;
    for (const AnalysedCache* part : parts) {
      const std::string& layout = Planned(*part).placement.layout;
      if (layout != first) {
        return Because(
            "KV246", fmt::format("needs one layout for all parts, found {} and {}", first, layout),
            *part);
      }
      if (std::string text = PartMisfit(*part); !text.empty()) {
        return Because("KV246", std::move(text), *part);
      }
      const auto& select = SourceOf(*part)->select;
      places.insert(select[0].index * kRoles + select[1].index);
    }
    const auto count = static_cast<int64_t>(parts.size());
    const bool all = *places.begin() == 0 && *places.rbegin() == count - 1 &&
                     static_cast<int64_t>(places.size()) == count && count % kRoles == 0;
    if (all) return std::nullopt;
    return Finding{"KV246", "needs keys and values of all layers", {}, {tensor}};
  }

  // Returns why a part cannot be written at an offset; empty if it can.
  std::string PartMisfit(const AnalysedCache& part) const {
    const PlannedCache& planned = Planned(part);
    if (!IsScattered(part) || !planned.linear() || !AllLinear()) {
      return fmt::format(
          "needs rows that a TensorScatter writes at an index, without a ring, "
          "found {}",
          PastOf(part));
    }
    const auto& dims = TypeOf(part).shape().dim();
    const int axis = planned.placement.axis;
    bool known = axis > 0 && dims.size() == static_cast<int>(planned.placement.layout.size());
    for (int k = axis + 1; known && k < dims.size(); ++k) known = dims[k].has_dim_value();
    if (!known) {
      return fmt::format("needs constant extents behind the rows of {}, and sequences in front",
                         PastOf(part));
    }
    for (ValueId v : {planned.pair.past, planned.pair.present}) {
      if (stays_.CaptureOf(planned, v) == kNoNode) continue;
      return fmt::format("{} is read inside a branch", graph_.name(v));
    }
    return "";
  }

  // Returns true if no buffer of the source wraps around or shifts.
  bool AllLinear() const {
    return std::all_of(plan_.caches.begin(), plan_.caches.end(),
                       [](const PlannedCache& cache) { return cache.grows() || cache.linear(); });
  }

  // Names pasts and presents key_cache.0, updated_key_cache.0, ... Returns why it cannot.
  std::optional<Finding> NameCaches(std::map<ValueId, std::string>* names) const {
    std::set<ValueId> named;
    for (const AnalysedCache* cache : caches_) {
      named.insert({cache->candidate.pair.past, cache->candidate.pair.present});
    }
    if (const Unpacked& unpacked = a_.normalised.unpacked; unpacked.group > 0) {
      return Finding{"KV229",
                     "needs caches of keys or of values to name them, found scales beside them",
                     {},
                     {unpacked.caches.front().scales.input}};
    }
    std::set<std::string> given;
    for (const AnalysedCache* cache : caches_) {
      const bool alone = cache->role == CacheRole::kKey || cache->role == CacheRole::kValue;
      if (!alone || plan_.options.cache_tensors == CacheTensors::kPacked) {
        return Because("KV229",
                       "needs caches of keys or of values to name them, found both in one tensor",
                       *cache);
      }
      const auto& [past, present] = cache->candidate.pair;
      const std::string name = fmt::format("{}_cache.{}", WordOf(cache->role), cache->layer);
      for (const auto& [v, wanted] : {std::pair(past, name), {present, "updated_" + name}}) {
        const bool taken = !named.contains(graph_.Find(wanted)) && stays_.HasValue(wanted);
        if (taken || !given.insert(wanted).second) {
          return Finding{
              "KV229", fmt::format("the name {} is taken", wanted), {}, {graph_.name(v)}};
        }
        (*names)[v] = wanted;
      }
    }
    return std::nullopt;
  }

  const Analysis& a_;
  const ConversionPlan& plan_;
  const Graph& graph_;
  const std::vector<const AnalysedCache*> caches_;
  const absl::flat_hash_map<std::string, onnx::TypeProto> types_;  // of pasts, by name
  const StayingNodes stays_;
};

}  // namespace

JudgedStorage JudgeStorage(const Analysis& a, const ConversionPlan& plan) {
  return StorageJudge(a, plan).Run();
}

}  // namespace kvlift::internal
