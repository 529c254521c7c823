#include "contract/manifest.h"

#include <utility>

#include "base/status.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLargestWindow = int64_t{1} << 20;
constexpr char kSchema[] = "kvlift/manifest/1";
constexpr char kSemantics[] = "onnx-1.23-errata";
constexpr char kMetadataManifest[] = "kvlift.manifest";
constexpr char kMetadataSchema[] = "kvlift.schema";

ordered_json CacheToJson(const ManifestCache& c) {
  ordered_json source = {{"input", c.source.input},        {"output", c.source.output},
                         {"kind", c.source.kind},          {"layout", c.source.layout},
                         {"axis", c.source.axis},          {"growing", c.source.growing},
                         {"select", ordered_json::array()}};
  for (const Select& s : c.source.select) {
    source["select"].push_back({{"axis", s.axis}, {"index", s.index}});
  }
  ordered_json json = {{"id", c.id},         {"layer", c.layer},   {"role", c.role},
                       {"input", c.input},   {"output", c.output}, {"dtype", c.dtype},
                       {"layout", c.layout}, {"axis", c.axis},     {"alias", c.alias}};
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
  ordered_json json = {{"name", i.name}, {"as", i.as}};
  if (i.as == "control") {
    json["value"] = i.value;
    json["dtype"] = i.dtype;
    json["shape"] = i.shape;
  } else if (i.as == "pad_to_capacity") {
    json["axis"] = i.axis;
    json["fill"] = i.fill;
  } else if (i.as == "cache") {
    json["id"] = i.id;
  }
  if (!i.source.empty()) json["source"] = i.source;
  if (!i.requires_text.empty()) json["requires"] = i.requires_text;
  return json;
}

ordered_json OutputToJson(const ManifestOutput& o) {
  ordered_json json = {{"name", o.name}, {"as", o.as}};
  if (o.as == "cache") json["id"] = o.id;
  if (!o.source.empty()) json["source"] = o.source;
  return json;
}

// Reads keys of one JSON object and keeps the first error: a key that is missing, or a value of the
// wrong type.
class Reader {
 public:
  Reader(const ordered_json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) Fail("", "is no object");
  }

  std::string Text(const char* key) { return Get<std::string>(key, &ordered_json::is_string); }
  int64_t Whole(const char* key) { return Get<int64_t>(key, &ordered_json::is_number_integer); }
  double Number(const char* key) { return Get<double>(key, &ordered_json::is_number); }
  bool Truth(const char* key) { return Get<bool>(key, &ordered_json::is_boolean); }
  std::string TextOr(const char* key) { return Has(key) ? Text(key) : std::string(); }
  int64_t WholeOr(const char* key, int64_t fallback) { return Has(key) ? Whole(key) : fallback; }
  std::optional<int64_t> WholeIfAny(const char* key) {
    if (!Has(key) || json_.at(key).is_null()) return std::nullopt;
    return Whole(key);
  }

  std::vector<std::string> TextsOr(const char* key) {
    std::vector<std::string> texts;
    if (!Has(key)) return texts;
    for (const auto& entry : List(key)) {
      if (!entry.is_string()) {
        Fail(key, "holds something else than texts");
        break;
      }
      texts.push_back(entry.get<std::string>());
    }
    return texts;
  }

  const ordered_json& List(const char* key) {
    static const ordered_json kEmpty = ordered_json::array();
    if (!Has(key) || !json_[key].is_array()) {
      Fail(key, Has(key) ? "is no list" : "is missing");
      return kEmpty;
    }
    return json_[key];
  }

  const ordered_json& Object(const char* key) {
    static const ordered_json kEmpty = ordered_json::object();
    if (!Has(key) || !json_[key].is_object()) {
      Fail(key, Has(key) ? "is no object" : "is missing");
      return kEmpty;
    }
    return json_[key];
  }

  bool Has(const char* key) const { return json_.is_object() && json_.contains(key); }

  void Fail(std::string_view key, std::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        key.empty() ? fmt::format("manifest: {} {}", where_, what)
                    : fmt::format("manifest: {}.{} {}", where_, key, what));
  }
  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  T Get(const char* key, bool (ordered_json::*is)() const noexcept) {
    if (!Has(key)) {
      Fail(key, "is missing");
      return T();
    }
    if (!(json_[key].*is)()) {
      Fail(key, "has the wrong type");
      return T();
    }
    return json_[key].get<T>();
  }

  const ordered_json& json_;
  std::string where_;
  absl::Status status_;
};

absl::StatusOr<ManifestCache> ReadCache(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestCache c;
  c.id = r.Text("id");
  c.layer = r.Whole("layer");
  c.role = r.Text("role");
  c.input = r.Text("input");
  c.output = r.Text("output");
  c.dtype = r.Text("dtype");
  c.layout = r.Text("layout");
  c.axis = r.Whole("axis");
  c.alias = r.Text("alias");
  c.readers = r.TextsOr("readers");
  c.grows = r.Has("grows") && r.Truth("grows");
  if (r.Has("ring")) {
    Reader ring(r.Object("ring"), where + ".ring");
    c.ring = CacheRing{ring.Whole("window")};
    if (c.ring->window < 1 || c.ring->window > kLargestWindow) {
      ring.Fail("window", fmt::format("is not between 1 and {}", kLargestWindow));
    }
    KV_RETURN_IF_ERROR(ring.status());
  }
  if (r.Has("quantization")) {
    Reader q(r.Object("quantization"), where + ".quantization");
    c.quantization = {q.Text("dtype"), q.Whole("group"), q.Text("scales"), q.Text("rows")};
    KV_RETURN_IF_ERROR(q.status());
  }
  Reader s(r.Object("source"), where + ".source");
  KV_RETURN_IF_ERROR(r.status());
  c.source.input = s.Text("input");
  c.source.output = s.Text("output");
  c.source.kind = s.Text("kind");
  c.source.layout = s.Text("layout");
  c.source.axis = s.Whole("axis");
  c.source.growing = s.Truth("growing");
  for (const auto& entry : s.List("select")) {
    Reader one(entry, where + ".source.select");
    c.source.select.push_back({one.Whole("axis"), one.Whole("index")});
    KV_RETURN_IF_ERROR(one.status());
  }
  KV_RETURN_IF_ERROR(s.status());
  return c;
}

absl::StatusOr<ManifestInput> ReadInput(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestInput i;
  i.name = r.Text("name");
  i.as = r.Text("as");
  if (i.as == "control") {
    i.value = r.Text("value");
    i.dtype = r.Text("dtype");
    i.shape = r.TextsOr("shape");
  } else if (i.as == "pad_to_capacity") {
    i.axis = r.Whole("axis");
    i.fill = r.WholeOr("fill", 0);
  } else if (i.as == "cache") {
    i.id = r.Text("id");
  } else if (i.as != "same" && i.as != "renamed") {
    r.Fail("as", fmt::format("is \"{}\", which means nothing", i.as));
  }
  i.source = i.as == "renamed" ? r.Text("source") : r.TextOr("source");
  i.requires_text = r.TextOr("requires");
  if (!i.requires_text.empty() && i.requires_text != "ones" && i.requires_text != "zeros") {
    r.Fail("requires", fmt::format("is \"{}\", which means nothing", i.requires_text));
  }
  KV_RETURN_IF_ERROR(r.status());
  return i;
}

absl::StatusOr<ManifestOutput> ReadOutput(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestOutput o;
  o.name = r.Text("name");
  o.as = r.Text("as");
  if (o.as == "cache") {
    o.id = r.Text("id");
  } else if (o.as != "same" && o.as != "renamed") {
    r.Fail("as", fmt::format("is \"{}\", which means nothing", o.as));
  }
  o.source = o.as == "renamed" ? r.Text("source") : r.TextOr("source");
  KV_RETURN_IF_ERROR(r.status());
  return o;
}

absl::StatusOr<QuantizationSummary> ReadSummary(const ordered_json& json) {
  Reader r(json, "quantization");
  QuantizationSummary q;
  q.scheme = r.Text("scheme");
  Reader bytes(r.Object("bytes_per_token"), "quantization.bytes_per_token");
  q.bytes_before = bytes.WholeIfAny("before");
  q.bytes_after = bytes.WholeIfAny("after");
  KV_RETURN_IF_ERROR(bytes.status());
  if (r.Has("errors")) {
    for (const auto& entry : r.List("errors")) {
      Reader e(entry, "quantization.errors");
      q.errors.push_back({e.Text("output"), e.Number("max_abs"), e.Number("bound")});
      KV_RETURN_IF_ERROR(e.status());
    }
  }
  KV_RETURN_IF_ERROR(r.status());
  return q;
}

absl::Status ReadLists(Reader& r, Manifest* m) {
  int k = 0;
  for (const auto& entry : r.List("caches")) {
    KV_ASSIGN_OR_RETURN(ManifestCache c, ReadCache(entry, fmt::format("caches[{}]", k++)));
    m->caches.push_back(std::move(c));
  }
  k = 0;
  for (const auto& entry : r.List("inputs")) {
    KV_ASSIGN_OR_RETURN(ManifestInput i, ReadInput(entry, fmt::format("inputs[{}]", k++)));
    m->inputs.push_back(std::move(i));
  }
  k = 0;
  for (const auto& entry : r.List("outputs")) {
    KV_ASSIGN_OR_RETURN(ManifestOutput o, ReadOutput(entry, fmt::format("outputs[{}]", k++)));
    m->outputs.push_back(std::move(o));
  }
  for (const auto& entry : r.List("dropped")) {
    Reader d(entry, "dropped");
    m->dropped.push_back({d.Text("name"), d.Text("requires")});
    KV_RETURN_IF_ERROR(d.status());
  }
  for (const auto& entry : r.List("preconditions")) {
    Reader p(entry, "preconditions");
    m->preconditions.push_back({p.Text("code"), p.Text("text"), p.Text("status")});
    if (p.Has("subject")) m->preconditions.back().subject = p.Text("subject");
    KV_RETURN_IF_ERROR(p.status());
  }
  if (r.Has("proved")) {
    for (const auto& entry : r.List("proved")) {
      Reader fact(entry, "proved");
      m->proved.push_back({fact.Text("text"), fact.TextsOr("about")});
      KV_RETURN_IF_ERROR(fact.status());
    }
  }
  if (r.Has("assumptions")) {
    for (const auto& entry : r.List("assumptions")) {
      Reader a(entry, "assumptions");
      const auto kind = AssumptionKindOf(a.Text("kind"));
      const auto source = AssumptionSourceOf(a.Text("source"));
      if (!kind) a.Fail("kind", "is an unknown word");
      if (!source) a.Fail("source", "is an unknown word");
      m->assumptions.Add({kind.value_or(AssumptionKind::kOther), a.Text("subject"),
                          a.Text("condition"), source.value_or(AssumptionSource::kHost),
                          a.Truth("checked")});
      KV_RETURN_IF_ERROR(a.status());
    }
  }
  return r.status();
}

}  // namespace

ordered_json ToJson(const Manifest& m) {
  ordered_json json = {{"schema", kSchema},
                       {"semantics", kSemantics},
                       {"source_sha256", m.source_sha256},
                       {"target", m.target}};
  json["capacity"] = {{"dim", m.capacity_dim}, {"value", nullptr}};
  if (m.capacity_value) json["capacity"]["value"] = *m.capacity_value;
  json["mode"] = m.mode;
  json["read"] = m.read;
  json["uniform"] = m.uniform;
  if (m.uniform && !m.uniform_reason.empty()) json["uniform_reason"] = m.uniform_reason;
  for (const char* key : {"caches", "inputs", "outputs", "dropped", "preconditions"}) {
    json[key] = ordered_json::array();
  }
  for (const ManifestCache& c : m.caches) json["caches"].push_back(CacheToJson(c));
  for (const ManifestInput& i : m.inputs) json["inputs"].push_back(InputToJson(i));
  for (const ManifestOutput& o : m.outputs) json["outputs"].push_back(OutputToJson(o));
  for (const DroppedInput& d : m.dropped) {
    json["dropped"].push_back({{"name", d.name}, {"requires", d.requires_text}});
  }
  for (const Precondition& p : m.preconditions) {
    json["preconditions"].push_back({{"code", p.code}, {"text", p.text}, {"status", p.status}});
    if (!p.subject.empty()) json["preconditions"].back()["subject"] = p.subject;
  }
  if (!m.equality.empty()) json["equality"] = m.equality;
  for (const ManifestFact& fact : m.proved) {
    json["proved"].push_back({{"text", fact.text}, {"about", fact.about}});
  }
  if (!m.assumptions.empty()) json["assumptions"] = ToJson(m.assumptions.all());
  if (m.limits.new_tokens_with_past) {
    json["limits"] = {{"new_tokens_with_past", *m.limits.new_tokens_with_past}};
  }
  if (m.maintenance) {
    json["maintenance"] = {{"does", m.maintenance->does},
                           {"positions", m.maintenance->positions},
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

absl::StatusOr<Manifest> ManifestFromJson(std::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("manifest: not JSON");
  Reader r(json, "manifest");
  const std::string schema = r.Text("schema");
  if (schema != kSchema) {
    r.Fail("schema", fmt::format("is \"{}\", \"{}\" is read here", schema, kSchema));
  }
  Manifest m;
  m.source_sha256 = r.TextOr("source_sha256");
  m.target = r.Text("target");
  Reader capacity(r.Object("capacity"), "capacity");
  m.capacity_dim = capacity.TextOr("dim");
  m.capacity_value = capacity.WholeIfAny("value");
  if (m.capacity_value.value_or(1) < 1) capacity.Fail("value", "is less than one");
  KV_RETURN_IF_ERROR(capacity.status());
  m.mode = r.Text("mode");
  m.read = r.TextOr("read");
  m.uniform = r.Truth("uniform");
  m.uniform_reason = r.TextOr("uniform_reason");
  m.equality = r.TextOr("equality");
  KV_RETURN_IF_ERROR(ReadLists(r, &m));
  if (r.Has("quantization")) {
    KV_ASSIGN_OR_RETURN(m.quantization, ReadSummary(r.Object("quantization")));
  }
  if (r.Has("limits")) {
    Reader limits(r.Object("limits"), "limits");
    if (limits.Has("new_tokens_with_past")) {
      m.limits.new_tokens_with_past = limits.Whole("new_tokens_with_past");
      if (*m.limits.new_tokens_with_past < 1) {
        limits.Fail("new_tokens_with_past", "is less than one");
      }
    }
    KV_RETURN_IF_ERROR(limits.status());
    KV_RETURN_IF_ERROR(r.status());
  }
  if (r.Has("maintenance")) {
    Reader own(r.Object("maintenance"), "maintenance");
    m.maintenance = ManifestMaintenance{own.TextsOr("does"), own.Text("positions"),
                                        own.TextsOr("position_inputs"), own.TextsOr("by_slot")};
    KV_RETURN_IF_ERROR(own.status());
  }
  return m;
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
  add(kMetadataSchema, kSchema);
  add(kMetadataManifest, ManifestText(manifest, /*one_line=*/true));
}

absl::StatusOr<Manifest> ManifestFromMetadata(const onnx::ModelProto& model) {
  for (const auto& prop : model.metadata_props()) {
    if (prop.key() == kMetadataManifest) return ManifestFromJson(prop.value());
  }
  return absl::NotFoundError("the model carries no manifest");
}

bool IsCircular(const Manifest& manifest, const ManifestCache& cache) {
  return manifest.mode == "circular" || cache.ring.has_value();
}

std::string ManifestPathFor(const std::string& model_path) {
  const size_t slash = model_path.rfind('/');
  const size_t dot = model_path.rfind('.');
  const bool extension = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (extension ? model_path.substr(0, dot) : model_path) + ".kv.json";
}

}  // namespace kvlift
