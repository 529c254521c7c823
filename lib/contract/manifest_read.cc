#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "contract/layout.h"
#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace kvlift {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLargestWindow = int64_t{1} << 20;

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

  // Reads the word of a kind. Returns the first kind of the table if the word is missing or
  // unknown.
  template <typename Kind>
  Kind Word(const char* key) {
    return KindOf<Kind>(key, Text(key));
  }
  // Reads the word of a kind as Word does, where the key may be missing.
  template <typename Kind>
  std::optional<Kind> WordIfAny(const char* key) {
    if (!Has(key)) return std::nullopt;
    return Word<Kind>(key);
  }

  // Reads a list of words; empty if the key is missing.
  template <typename Kind>
  std::vector<Kind> WordsOr(const char* key) {
    std::vector<Kind> kinds;
    for (const std::string& word : TextsOr(key)) kinds.push_back(KindOf<Kind>(key, word));
    return kinds;
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
  template <typename Kind>
  Kind KindOf(const char* key, const std::string& word) {
    if (const std::optional<Kind> kind = ReadWord<Kind>(word)) return *kind;
    std::vector<std::string_view> words;
    for (const KindWord<Kind>& known : WordsOf<Kind>()) words.push_back(known.word);
    Fail(key, fmt::format("is \"{}\", which is none of: {}", word, fmt::join(words, ", ")));
    return WordsOf<Kind>()[0].kind;
  }

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

bool IsAxisOf(const std::string& layout, int64_t axis) {
  return axis >= 0 && axis < std::ssize(AxesOfLayout(layout));
}

// Reads the key "sliding" of a cache's source, which belongs to the kind of that name.
absl::Status ReadSliding(Reader& source, const std::string& where, SourceCache* cache) {
  const bool slides = cache->kind == UpdateKind::kSliding;
  if (slides != source.Has("sliding")) {
    source.Fail("sliding", slides ? "is missing" : "needs the kind \"sliding\"");
  }
  if (slides && !cache->growing) source.Fail("growing", "is false, and the kind \"sliding\"");
  if (!slides || !source.status().ok()) return source.status();
  Reader s(source.Object("sliding"), where + ".source.sliding");
  cache->sliding = SlidingBuffer{s.Whole("window"), s.WholeIfAny("capacity")};
  if (cache->sliding->window < 1 || cache->sliding->window > kLargestWindow) {
    s.Fail("window", fmt::format("is not between 1 and {}", kLargestWindow));
  }
  if (cache->sliding->capacity.value_or(kLargestWindow) < cache->sliding->window) {
    s.Fail("capacity", "is less than the window");
  }
  return s.status();
}

absl::StatusOr<ManifestCache> ReadCache(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestCache c;
  c.id = r.Text("id");
  c.layer = r.Whole("layer");
  c.role = r.Word<CacheRole>("role");
  c.input = r.Text("input");
  c.output = r.Text("output");
  c.dtype = r.Text("dtype");
  c.layout = r.Text("layout");
  c.axis = r.Whole("axis");
  if (!IsAxisOf(c.layout, c.axis)) r.Fail("axis", fmt::format("is no axis of {}", c.layout));
  c.alias = r.Word<CacheAlias>("alias");
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
  c.source.kind = s.Word<UpdateKind>("kind");
  c.source.layout = s.Text("layout");
  c.source.axis = s.Whole("axis");
  c.source.growing = s.Truth("growing");
  for (const auto& entry : s.List("select")) {
    Reader one(entry, where + ".source.select");
    c.source.select.push_back({one.Whole("axis"), one.Whole("index")});
    KV_RETURN_IF_ERROR(one.status());
  }
  KV_RETURN_IF_ERROR(ReadSliding(s, where, &c.source));
  const auto fixed = static_cast<int64_t>(c.source.select.size());
  if (!IsAxisOf(c.source.layout, std::max<int64_t>(0, c.source.axis - fixed)) ||
      c.source.axis < 0) {
    s.Fail("axis", fmt::format("is no axis of {}", c.source.layout));
  }
  KV_RETURN_IF_ERROR(s.status());
  return c;
}

// Fails if an entry of kind "same" has the key "source" with another name.
void RefuseSource(Reader& r, const std::string& name) {
  if (const std::string source = r.TextOr("source"); !source.empty() && source != name) {
    r.Fail("source", fmt::format("is \"{}\", but the entry is the same in the source", source));
  }
}

absl::StatusOr<ManifestInput> ReadInput(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestInput i;
  i.name = r.Text("name");
  switch (r.Word<InputAs>("as")) {
    case InputAs::kSame:
      RefuseSource(r, i.name);
      break;
    case InputAs::kControl:
      i.as = ControlInput{r.Word<ControlValue>("value"), r.Text("dtype"), r.TextsOr("shape")};
      break;
    case InputAs::kCache:
      i.as = CacheInput{r.Text("id")};
      break;
    case InputAs::kPadToCapacity:
      i.as = PaddedInput{r.Whole("axis"), r.WholeOr("fill", 0), r.TextOr("source")};
      break;
    case InputAs::kRenamed:
      i.as = RenamedInput{r.Text("source")};
      break;
  }
  i.all = r.WordIfAny<AllElements>("requires");
  KV_RETURN_IF_ERROR(r.status());
  return i;
}

absl::StatusOr<ManifestOutput> ReadOutput(const ordered_json& json, const std::string& where) {
  Reader r(json, where);
  ManifestOutput o;
  o.name = r.Text("name");
  switch (r.Word<OutputAs>("as")) {
    case OutputAs::kSame:
      RefuseSource(r, o.name);
      break;
    case OutputAs::kCache:
      o.as = CacheOutput{r.Text("id")};
      break;
    case OutputAs::kRenamed:
      o.as = RenamedOutput{r.Text("source")};
      break;
  }
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

absl::StatusOr<FrozenShape> ReadFrozen(const ordered_json& json) {
  Reader r(json, "frozen");
  FrozenShape frozen;
  const auto size = [](Reader& from, const char* key) {
    const int64_t n = from.Whole(key);
    if (n < 1) from.Fail(key, "is less than one");
    return n;
  };
  frozen.batch = size(r, "batch");
  frozen.tokens = size(r, "tokens");
  for (const auto& entry : r.List("dims")) {
    Reader dim(entry, "frozen.dims");
    frozen.dims.push_back({dim.Text("name"), size(dim, "size")});
    KV_RETURN_IF_ERROR(dim.status());
  }
  frozen.short_steps = r.Word<ShortSteps>("short_steps");
  KV_RETURN_IF_ERROR(r.status());
  return frozen;
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
    m->dropped.push_back(MakeDropped(d.Text("name"), d.Text("requires")));
    KV_RETURN_IF_ERROR(d.status());
  }
  for (const auto& entry : r.List("preconditions")) {
    Reader p(entry, "preconditions");
    m->preconditions.push_back(
        {p.Text("code"), p.Text("text"), p.Word<PreconditionStatus>("status")});
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
      m->assumptions.Add({a.Word<AssumptionKind>("kind"), a.Text("subject"), a.Text("condition"),
                          a.Word<AssumptionSource>("source"), a.Truth("checked")});
      KV_RETURN_IF_ERROR(a.status());
    }
  }
  return r.status();
}

}  // namespace

absl::StatusOr<Manifest> ManifestFromJson(std::string_view text) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("manifest: not JSON");
  Reader r(json, "manifest");
  const std::string schema = r.Text("schema");
  if (schema != kManifestSchema) {
    r.Fail("schema", fmt::format("is \"{}\", \"{}\" is read here", schema, kManifestSchema));
  }
  Manifest m;
  m.source_sha256 = r.TextOr("source_sha256");
  m.target = r.Text("target");
  Reader capacity(r.Object("capacity"), "capacity");
  m.capacity_dim = capacity.TextOr("dim");
  m.capacity_value = capacity.WholeIfAny("value");
  if (m.capacity_value.value_or(1) < 1) capacity.Fail("value", "is less than one");
  KV_RETURN_IF_ERROR(capacity.status());
  m.mode = r.Word<BufferMode>("mode");
  m.read = r.WordIfAny<CacheRead>("read").value_or(CacheRead::kPrefix);
  m.uniform = r.Truth("uniform");
  m.uniform_reason = r.TextOr("uniform_reason");
  m.equality = r.WordIfAny<ShownEquality>("equality");
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
  if (r.Has("frozen")) {
    KV_ASSIGN_OR_RETURN(m.frozen, ReadFrozen(r.Object("frozen")));
  }
  if (r.Has("maintenance")) {
    Reader own(r.Object("maintenance"), "maintenance");
    m.maintenance = ManifestMaintenance{own.WordsOr<CompanionStep>("does"), std::nullopt,
                                        own.TextsOr("position_inputs"), own.TextsOr("by_slot")};
    // The empty word stands for a companion that drops no rows.
    if (!own.Text("positions").empty()) {
      m.maintenance->positions = own.Word<PositionSource>("positions");
    }
    KV_RETURN_IF_ERROR(own.status());
  }
  return m;
}

}  // namespace kvlift
