#include "contract/manifest.h"

#include <algorithm>
#include <utility>

#include "base/overloaded.h"
#include "contract/manifest_json.h"
#include "contract/manifest_text.h"
#include "contract/words.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using nlohmann::ordered_json;

constexpr char kSemantics[] = "onnx-1.23-errata";
constexpr char kMetadataManifest[] = "kvlift.manifest";
constexpr char kMetadataSchema[] = "kvlift.schema";

ordered_json CacheToJson(const ManifestCache& c) {
  ordered_json source = {{"input", c.source.input},        {"output", c.source.output},
                         {"kind", WordOf(c.source.kind)},  {"layout", c.source.layout},
                         {"axis", c.source.axis},          {"growing", c.source.growing},
                         {"select", ordered_json::array()}};
  for (const Select& s : c.source.select) {
    source["select"].push_back({{"axis", s.axis}, {"index", s.index}});
  }
  if (const auto& sliding = c.source.sliding) {
    source["sliding"] = {{"window", sliding->window}, {"capacity", nullptr}};
    if (sliding->capacity) source["sliding"]["capacity"] = *sliding->capacity;
  }
  ordered_json json = {{"id", c.id},         {"layer", c.layer},   {"role", WordOf(c.role)},
                       {"input", c.input},   {"output", c.output}, {"dtype", c.dtype},
                       {"layout", c.layout}, {"axis", c.axis},     {"alias", WordOf(c.alias)}};
  if (!c.readers.empty()) json["readers"] = c.readers;
  if (c.grows) json["grows"] = true;
  if (c.ring) json["ring"] = {{"window", c.ring->window}};
  if (c.quantization) {
    json["quantization"] = {{"dtype", c.quantization->dtype},
                            {"group", c.quantization->group},
                            {"scales", c.quantization->scales},
                            {"rows", c.quantization->rows}};
  }
  json["source"] = std::move(source);
  return json;
}

ordered_json SummaryToJson(const QuantizationSummary& q) {
  const auto count = [](const std::optional<int64_t>& n) {
    return n ? ordered_json(*n) : ordered_json(nullptr);
  };
  ordered_json json = {
      {"scheme", q.scheme},
      {"bytes_per_token", {{"before", count(q.bytes_before)}, {"after", count(q.bytes_after)}}}};
  for (const QuantizationSummary::Error& e : q.errors) {
    json["errors"].push_back({{"output", e.output}, {"max_abs", e.max_abs}, {"bound", e.bound}});
  }
  return json;
}

ordered_json InputToJson(const ManifestInput& i) {
  ordered_json json = {{"name", i.name}, {"as", WordOf(AsOf(i))}};
  std::visit(Overloaded{[](const SameInput&) {},
                        [&](const ControlInput& control) {
                          json["value"] = WordOf(control.value);
                          json["dtype"] = control.dtype;
                          json["shape"] = control.shape;
                        },
                        [&](const CacheInput& cache) { json["id"] = cache.id; },
                        [&](const PaddedInput& padded) {
                          json["axis"] = padded.axis;
                          json["fill"] = padded.fill;
                          if (!padded.source.empty()) json["source"] = padded.source;
                        },
                        [&](const RenamedInput& renamed) { json["source"] = renamed.source; }},
             i.as);
  if (i.all) json["requires"] = WordOf(*i.all);
  return json;
}

ordered_json OutputToJson(const ManifestOutput& o) {
  ordered_json json = {{"name", o.name}, {"as", WordOf(AsOf(o))}};
  std::visit(
      Overloaded{[](const SameOutput&) {}, [&](const CacheOutput& cache) { json["id"] = cache.id; },
                 [&](const RenamedOutput& renamed) { json["source"] = renamed.source; }},
      o.as);
  return json;
}

}  // namespace

ordered_json ToJson(const Manifest& m) {
  ordered_json json = {{"schema", kManifestSchema},
                       {"semantics", kSemantics},
                       {"source_sha256", m.source_sha256},
                       {"target", m.target}};
  json["capacity"] = {{"dim", m.capacity_dim}, {"value", nullptr}};
  if (m.capacity_value) json["capacity"]["value"] = *m.capacity_value;
  json["mode"] = WordOf(m.mode);
  json["read"] = WordOf(m.read);
  json["uniform"] = m.uniform;
  if (m.uniform && !m.uniform_reason.empty()) json["uniform_reason"] = m.uniform_reason;
  for (const char* key : {"caches", "inputs", "outputs", "dropped", "preconditions"}) {
    json[key] = ordered_json::array();
  }
  for (const ManifestCache& c : m.caches) json["caches"].push_back(CacheToJson(c));
  for (const ManifestInput& i : m.inputs) json["inputs"].push_back(InputToJson(i));
  for (const ManifestOutput& o : m.outputs) json["outputs"].push_back(OutputToJson(o));
  for (const DroppedInput& d : m.dropped) {
    json["dropped"].push_back({{"name", d.name}, {"requires", GivenText(d)}});
  }
  for (const Precondition& p : m.preconditions) {
    json["preconditions"].push_back(
        {{"code", p.code}, {"text", p.text}, {"status", WordOf(p.status)}});
    if (!p.subject.empty()) json["preconditions"].back()["subject"] = p.subject;
  }
  if (m.equality) json["equality"] = WordOf(*m.equality);
  for (const ManifestFact& fact : m.proved) {
    json["proved"].push_back({{"text", fact.text}, {"about", fact.about}});
  }
  if (!m.assumptions.empty()) json["assumptions"] = ToJson(m.assumptions.all());
  if (m.limits.new_tokens_with_past) {
    json["limits"] = {{"new_tokens_with_past", *m.limits.new_tokens_with_past}};
  }
  if (m.frozen) {
    json["frozen"] = {{"batch", m.frozen->batch}, {"tokens", m.frozen->tokens}};
    json["frozen"]["dims"] = ordered_json::array();
    for (const FrozenDimension& dim : m.frozen->dims) {
      json["frozen"]["dims"].push_back({{"name", dim.name}, {"size", dim.size}});
    }
    json["frozen"]["short_steps"] = WordOf(m.frozen->short_steps);
  }
  if (m.maintenance) {
    ordered_json does = ordered_json::array();
    for (const CompanionStep step : m.maintenance->does) does.push_back(WordOf(step));
    const auto& positions = m.maintenance->positions;
    json["maintenance"] = {{"does", std::move(does)},
                           {"positions", positions ? WordOf(*positions) : ""},
                           {"position_inputs", m.maintenance->position_inputs},
                           {"by_slot", m.maintenance->by_slot}};
  }
  if (m.quantization) json["quantization"] = SummaryToJson(*m.quantization);
  return json;
}

ordered_json ToJson(absl::Span<const Assumption> assumptions) {
  ordered_json list = ordered_json::array();
  for (const Assumption& a : assumptions) {
    list.push_back({{"kind", WordOf(a.kind)},
                    {"subject", a.subject},
                    {"condition", a.condition},
                    {"source", WordOf(a.source)},
                    {"checked", a.checked}});
  }
  return list;
}

std::string ManifestText(const Manifest& manifest, bool one_line) {
  constexpr auto kReplace = ordered_json::error_handler_t::replace;
  const std::string text = ToJson(manifest).dump(one_line ? -1 : 2, ' ', false, kReplace);
  return one_line ? text : text + "\n";
}

void StampMetadata(const Manifest& manifest, onnx::ModelProto* model) {
  auto* props = model->mutable_metadata_props();
  for (int k = props->size() - 1; k >= 0; --k) {
    if (props->Get(k).key().rfind("kvlift.", 0) == 0) props->DeleteSubrange(k, 1);
  }
  const auto add = [&](const char* key, std::string value) {
    auto* prop = model->add_metadata_props();
    prop->set_key(key);
    prop->set_value(std::move(value));
  };
  add(kMetadataSchema, kManifestSchema);
  add(kMetadataManifest, ManifestText(manifest, /*one_line=*/true));
}

absl::StatusOr<Manifest> ManifestFromMetadata(const onnx::ModelProto& model) {
  for (const auto& prop : model.metadata_props()) {
    if (prop.key() == kMetadataManifest) return ManifestFromJson(prop.value());
  }
  return absl::NotFoundError("the model carries no manifest");
}

int64_t SlidingBuffer::RowsHeld(int64_t tokens) const {
  const int64_t dropped = slots() - window + 1, behind = tokens - slots();
  return behind <= 0 ? tokens : tokens - dropped * ((behind + dropped - 1) / dropped);
}

Assumption HoldsNewest(const SourceCache& cache) {
  return {AssumptionKind::kOther, cache.input,
          fmt::format("the first rows of {} are those of the newest tokens, {} or more, as "
                      "GroupQueryAttention with sliding_window_cache leaves them",
                      cache.input, cache.sliding->window),
          AssumptionSource::kHost, false};
}

bool IsCircular(const Manifest& manifest, const ManifestCache& cache) {
  return manifest.mode == BufferMode::kCircular || cache.ring.has_value();
}

bool HasGrowingCaches(const Manifest& relation) {
  return std::any_of(relation.caches.begin(), relation.caches.end(),
                     [](const ManifestCache& cache) { return cache.grows; });
}

std::string ManifestPathFor(const std::string& model_path) {
  const size_t slash = model_path.rfind('/');
  const size_t dot = model_path.rfind('.');
  const bool extension = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (extension ? model_path.substr(0, dot) : model_path) + ".kv.json";
}

}  // namespace kvlift
