#include "kvlift/commands/cmd_verify_infer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "kvlift/commands/cmd_verify_layouts.h"
#include "kvlift/commands/cmd_verify_tensors.h"
#include "rewrite/convert/convert.h"
#include "rewrite/types/rule.h"
#include "verify/inputs/input_uses.h"
#include "verify/judge/prove_alone.h"
#include "verify/judge/verify.h"

namespace kvlift::cli {
namespace {

using onnx::ModelProto;
using onnx::ValueInfoProto;

// The most relations that are tried.
constexpr size_t kMostTried = 12;

// The uses of an input that is not a cache.
struct InputUse {
  bool whole = false;  // integers or bools
  size_t rank = 0;
  int64_t rows = 0;  // rows of a table that it indexes
  bool mask = false, position = false;
  std::optional<std::pair<Length, int64_t>> length;
};

class Inferrer {
 public:
  Inferrer(const Model& before, const Model& after)
      : before_(*before.proto),
        after_(*after.proto),
        before_uses_(before_),
        uses_(after_),
        before_initializers_(ConstantsOf(before_)),
        initializers_(ConstantsOf(after_)) {
    m_.capacity_dim = "max_sequence_length";
    PairCaches(before, after);
    PairInputs();
    PairOutputs();
  }

  // Returns all candidates, the likeliest first.
  std::vector<Manifest> Candidates() const {
    std::vector<Manifest> all = {m_};
    const auto spread = [&](size_t options, const auto& set) {
      if (options < 2) return;
      std::vector<Manifest> more;
      for (size_t k = 0; k < options; ++k) {
        for (const Manifest& m : all) {
          more.push_back(m);
          set(&more.back(), k);
        }
      }
      all = std::move(more);
    };
    for (const auto& [kind, options] : layouts_) {
      spread(options.size(), [&, kind = kind, &options = options](Manifest* m, size_t k) {
        for (size_t c = 0; c < m->caches.size(); ++c) {
          if (kinds_[c] == kind) SetLayouts(options[k], &m->caches[c]);
        }
      });
    }
    for (const std::string& name : unsure_) {
      spread(2, [&](Manifest* m, size_t k) {
        for (ManifestInput& input : m->inputs) {
          if (input.name != name || k != 1) continue;
          ControlValue& value = std::get<ControlInput>(input.as).value;
          value = value == ControlValue::kPastLength ? ControlValue::kTotalLength
                                                     : ControlValue::kPastLength;
        }
      });
    }
    if (all.size() > kMostTried) all.resize(kMostTried);
    return all;
  }

 private:
  using Layouts = std::pair<std::string, std::string>;  // of the source, of the conversion

  static std::set<std::string> ConstantsOf(const ModelProto& model) {
    std::set<std::string> names;
    for (const auto& t : model.graph().initializer()) names.insert(t.name());
    return names;
  }

  static void SetLayouts(const Layouts& layouts, ManifestCache* cache) {
    cache->source.layout = layouts.first;
    cache->layout = layouts.second;
  }

  void PairCaches(const Model& before, const Model& after) {
    const auto theirs = Inspect(before, AllRules());
    const auto mine = Inspect(after, AllRules());
    if (!theirs.ok()) return;
    std::vector<const CacheReport*> open;
    if (mine.ok()) {
      for (const CacheReport& cache : mine->caches) open.push_back(&cache);
    }
    const auto take = [&](const auto& is) -> const CacheReport* {
      const auto it = std::find_if(open.begin(), open.end(),
                                   [&](const CacheReport* cache) { return is(*cache); });
      if (it == open.end()) return nullptr;
      const CacheReport* found = *it;
      open.erase(it);
      return found;
    };
    std::vector<std::pair<const CacheReport*, const CacheReport*>> pairs;
    const std::vector<CacheReport> whole =
        WithTensorsWhole(theirs->caches, before_.graph(), after_.graph());
    pairs.reserve(whole.size());
    for (const CacheReport& cache : whole) {
      pairs.emplace_back(&cache,
                         take([&](const CacheReport& c) { return c.input == cache.input; }));
    }
    for (auto& [cache, twin] : pairs) {
      const CacheReport* their = cache;
      // A cache with the same names and layout corresponds to itself, also if no node is found to
      // write it.
      const bool named = Find(after_.graph().input(), their->input) != nullptr &&
                         Find(after_.graph().output(), their->output) != nullptr;
      const bool is_whole_tensor = their->id == their->input;
      if ((twin == nullptr && named) || is_whole_tensor) twin = their;
      if (twin == nullptr) {
        twin = take(
            [&](const CacheReport& c) { return c.layer == their->layer && c.role == their->role; });
      }
      if (twin == nullptr) continue;
      CacheReport own = *twin;
      // What the source's cache does says nothing about the other model's.
      if (twin == their) own.growing = false;
      // A host takes inputs and outputs by their names, whatever the graph makes of them.
      if (named) own.input = their->input, own.output = their->output;
      CorrectAxis(after_, &own);
      CacheReport source = *their;
      if (named) ShareAxis(&source, &own);
      AddCache(source, own);
    }
  }

  void AddCache(const CacheReport& their, const CacheReport& mine) {
    const auto* past = Find(before_.graph().input(), their.input);
    const auto* present = Find(before_.graph().output(), their.output);
    const auto* in = Find(after_.graph().input(), mine.input);
    const auto* out = Find(after_.graph().output(), mine.output);
    if (past == nullptr || present == nullptr || in == nullptr || out == nullptr) return;
    const std::vector<Dim> dims = DimsOf(*in), old = DimsOf(*past), later = DimsOf(*out);
    const auto axis = static_cast<size_t>(mine.axis);
    if (axis >= dims.size() || static_cast<size_t>(their.axis) >= old.size()) return;
    // No relation says that both models move the rows of a buffer.
    if (their.kind == UpdateKind::kShift && uses_.Maker(mine.output) != "TensorScatter") return;
    ManifestCache c;
    c.id = their.id;
    c.layer = their.layer;
    c.role = their.role;
    c.input = mine.input;
    c.output = mine.output;
    c.dtype = mine.dtype;
    c.axis = mine.axis;
    c.alias = CacheAlias::kCopy;
    // Exporters may call the slots of a buffer otherwise in the past than in the present.
    const bool growing =
        their.growing ||
        (their.capacity.empty() && Differs(*past, *present, static_cast<size_t>(their.axis)));
    c.source = {their.input, their.output, their.kind, "", their.axis, growing, {}};
    const std::vector<Layouts> layouts = LayoutsOf(their, old, mine, dims);
    if (layouts.empty()) return;
    SetLayouts(layouts[0], &c);
    // What the graph does counts more than declared names, which exporters reuse.
    const bool same = !mine.growing && later.size() == dims.size() && later[axis].known() &&
                      later[axis] == dims[axis];
    c.grows = growing && !same && uses_.Maker(mine.output) != "TensorScatter";
    inputs_[c.input] = c.id;
    outputs_[c.output] = c.id;
    their_caches_.insert({c.source.input, c.source.output});
    if (!c.grows) {
      capacity_ = dims[axis].param;
      capacity_value_ = dims[axis].value;
    }
    const std::string kind =
        fmt::format("{} {} {}", WordOf(c.role), layouts[0].first, layouts[0].second);
    kinds_.push_back(kind);
    layouts_.emplace(kind, layouts);
    m_.caches.push_back(std::move(c));
    if (IsCircular(mine.output)) m_.mode = BufferMode::kCircular;
  }

  // Returns the TensorScatter node of a model whose result is named `output`; null if the model has
  // no such node.
  static const onnx::NodeProto* WriterOf(const ModelProto& model, const std::string& output) {
    for (const auto& node : model.graph().node()) {
      if (node.op_type() == "TensorScatter" && node.output(0) == output) return &node;
    }
    return nullptr;
  }

  static const onnx::AttributeProto* AttributeOf(const onnx::NodeProto& node,
                                                 const std::string& name) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }

  bool IsCircular(const std::string& output) const {
    const auto* writer = WriterOf(after_, output);
    const auto* mode = writer == nullptr ? nullptr : AttributeOf(*writer, "mode");
    return mode != nullptr && mode->s() == "circular";
  }

  // The axis of a TensorScatter tells where the cache of that model has its sequence.
  static void CorrectAxis(const ModelProto& model, CacheReport* cache) {
    const auto* writer = WriterOf(model, cache->output);
    const auto* in = Find(model.graph().input(), cache->input);
    if (writer == nullptr || in == nullptr) return;
    const auto* axis = AttributeOf(*writer, "axis");
    cache->axis = axis == nullptr ? -2 : axis->i();
    if (cache->axis < 0) cache->axis += static_cast<int64_t>(DimsOf(*in).size());
    if (static_cast<int64_t>(cache->layout.find('S')) != cache->axis) cache->layout.clear();
  }

  // A host feeds a tensor of one name and shape to both models. If a TensorScatter writes it in one
  // of them, its axis holds for the other one as well.
  void ShareAxis(CacheReport* source, CacheReport* own) const {
    const auto* past = Find(before_.graph().input(), source->input);
    const auto* in = Find(after_.graph().input(), own->input);
    if (past == nullptr || in == nullptr || DimsOf(*past) != DimsOf(*in)) return;
    const bool known = WriterOf(before_, source->output) != nullptr;
    const bool own_known = WriterOf(after_, own->output) != nullptr;
    if (known == own_known) return;
    CacheReport *from = known ? source : own, *to = known ? own : source;
    CorrectAxis(known ? before_ : after_, from);
    to->axis = from->axis;
    to->layout = from->layout;
  }

  // Returns true if both caches declare the same sizes on all axes but that of the rows, which is
  // the same one, and have the same names or no two of these sizes are alike. Axes correspond then:
  // a host feeds a tensor of one name and shape to both models.
  static bool DeclareTheSame(const CacheReport& their, const std::vector<Dim>& old,
                             const CacheReport& mine, const std::vector<Dim>& dims) {
    if (old.size() != dims.size() || their.axis != mine.axis) return false;
    const bool named = their.input == mine.input && their.output == mine.output;
    for (size_t k = 0; k < old.size(); ++k) {
      if (static_cast<int64_t>(k) == their.axis) continue;
      if (!old[k].known() || !(old[k] == dims[k])) return false;
      for (size_t before = 0; before < k && !named; ++before) {
        if (static_cast<int64_t>(before) != their.axis && old[before] == old[k]) return false;
      }
    }
    return true;
  }

  static std::vector<Layouts> LayoutsOf(const CacheReport& their, const std::vector<Dim>& old,
                                        const CacheReport& mine, const std::vector<Dim>& dims) {
    std::vector<Layouts> layouts;
    const std::string theirs = LayoutOf(their.layout, their.axis, old.size()),
                      own = LayoutOf(mine.layout, mine.axis, dims.size());
    if (DeclareTheSame(their, old, mine, dims)) return {{theirs, theirs}};
    if (old.size() >= dims.size()) {
      const std::string& expected = old.size() == dims.size() ? own : theirs;
      for (const std::string& layout :
           LayoutsFor(expected, dims, mine.axis, SizesOf(theirs, old))) {
        if (layouts.size() < kMostTried) layouts.emplace_back(theirs, layout);
      }
    } else {
      for (const std::string& layout : LayoutsFor(own, old, their.axis, SizesOf(own, dims))) {
        if (layouts.size() < kMostTried) layouts.emplace_back(layout, own);
      }
    }
    // The source has letters of its own.
    if (layouts.empty() && old.size() == dims.size()) layouts.emplace_back(theirs, own);
    return layouts;
  }

  static InputUse UseOf(const ValueInfoProto& value, const InputUses& uses) {
    InputUse use;
    use.whole = IsIntegerType(TypeOf(value)) || TypeOf(value) == onnx::TensorProto::BOOL;
    use.rank = DimsOf(value).size();
    use.rows = use.whole ? uses.TableOf(value.name()).rows : 0;
    use.mask = uses.IsMask(value.name());
    use.position = uses.IsPosition(value.name());
    use.length = uses.LengthAtOperator(value.name());
    return use;
  }

  // Returns true if two inputs of different names have the same uses.
  static bool Alike(const InputUse& a, const InputUse& b) {
    if (a.whole != b.whole || a.rank != b.rank || a.length != b.length) return false;
    if (a.rows > 0 || b.rows > 0) return a.rows == b.rows && a.position == b.position;
    return a.mask == b.mask && a.position == b.position;
  }

  void PairInputs() {
    std::vector<const ValueInfoProto*> open, theirs;
    for (const auto& v : before_.graph().input()) {
      const bool known =
          before_initializers_.count(v.name()) > 0 || their_caches_.count(v.name()) > 0;
      if (!known && Find(after_.graph().input(), v.name()) == nullptr) theirs.push_back(&v);
    }
    for (const auto& v : after_.graph().input()) {
      if (initializers_.count(v.name()) > 0) continue;
      const bool same =
          Find(before_.graph().input(), v.name()) != nullptr && their_caches_.count(v.name()) == 0;
      const auto cache = inputs_.find(v.name());
      if (cache != inputs_.end()) {
        m_.inputs.push_back({v.name(), CacheInput{cache->second}});
      } else if (same) {
        AddKept(v, v.name());
      } else {
        open.push_back(&v);
      }
    }
    for (const ValueInfoProto* v : open) AddOpen(*v, &theirs);
    for (const ValueInfoProto* v : theirs) m_.dropped.push_back(DroppedOf(*v));
  }

  // Returns an input of the source that the other model lacks, with what the source has to be fed
  // there: a mask is all ones, and positions count up.
  DroppedInput DroppedOf(const ValueInfoProto& value) const {
    const InputUse use = UseOf(value, before_uses_);
    if (use.mask && !use.position) return {value.name(), AllElements::kOnes};
    if (use.position && use.whole) return {value.name(), DroppedValue::kPositions};
    return {value.name(), DroppedValue::kNotRead};
  }

  void AddKept(const ValueInfoProto& value, const std::string& source) {
    ManifestInput input;
    input.name = value.name();
    if (source != value.name()) input.as = RenamedInput{source};
    const std::vector<Dim> dims = DimsOf(value);
    const auto* theirs = Find(before_.graph().input(), source);
    const std::vector<Dim> own = theirs == nullptr ? std::vector<Dim>() : DimsOf(*theirs);
    for (size_t k = 1; k < dims.size(); ++k) {
      // The source is fed as many columns where it declares the same size.
      if (k < own.size() && own[k] == dims[k]) continue;
      const bool symbol = !capacity_.empty() && dims[k].param == capacity_;
      const bool number = capacity_value_ && dims[k].value == capacity_value_ &&
                          TypeOf(value) != onnx::TensorProto::FLOAT && UseOf(value, uses_).mask;
      if (!symbol && !number) continue;
      input.as = PaddedInput{static_cast<int64_t>(k), 0, source == value.name() ? "" : source};
    }
    m_.inputs.push_back(std::move(input));
  }

  void AddOpen(const ValueInfoProto& value, std::vector<const ValueInfoProto*>* theirs) {
    const InputUse use = UseOf(value, uses_);
    const bool length = use.length && use.length->first != Length::kLast && use.length->second == 0;
    if (length && use.whole) {
      return AddControl(value, use.length->first == Length::kTotal ? ControlValue::kTotalLength
                                                                   : ControlValue::kPastLength);
    }
    const auto twin = std::find_if(theirs->begin(), theirs->end(), [&](const auto* v) {
      return Alike(use, UseOf(*v, before_uses_));
    });
    if (twin != theirs->end()) {
      AddKept(value, (*twin)->name());
      theirs->erase(twin);
      return;
    }
    if (!IsIntegerType(TypeOf(value)) || (use.mask && !use.position) || use.rank > 2) return;
    const std::vector<Dim> dims = DimsOf(value);
    const bool per_token = dims.size() == 2 || (dims.size() == 1 && IsTokens(dims[0]));
    AddControl(value, per_token ? ControlValue::kPositions : ControlValue::kPastLength);
    if (!per_token) unsure_.push_back(value.name());
  }

  // Returns true for the size of the tokens' second axis.
  bool IsTokens(const Dim& dim) const {
    for (const auto& v : after_.graph().input()) {
      const std::vector<Dim> dims = DimsOf(v);
      if (inputs_.count(v.name()) > 0 || dims.size() != 2) continue;
      if (uses_.TableOf(v.name()).rows > 0 && dims[1].known() && dims[1] == dim) return true;
    }
    return false;
  }

  void AddControl(const ValueInfoProto& value, ControlValue holds) {
    ControlInput control{holds, ElementTypeName(TypeOf(value)), {}};
    const std::vector<Dim> dims = DimsOf(value);
    for (size_t k = 0; k < dims.size(); ++k) {
      const bool token = holds == ControlValue::kPositions && k + 1 == dims.size();
      control.shape.push_back(token ? "S" : dims[k].value == 1 ? "1" : "B");
    }
    m_.inputs.push_back({value.name(), std::move(control)});
  }

  void PairOutputs() {
    std::vector<const ValueInfoProto*> theirs;
    for (const auto& v : before_.graph().output()) {
      if (their_caches_.count(v.name()) == 0) theirs.push_back(&v);
    }
    const auto take = [&](const auto& is) -> const ValueInfoProto* {
      const auto it = std::find_if(theirs.begin(), theirs.end(),
                                   [&](const ValueInfoProto* v) { return is(*v); });
      if (it == theirs.end()) return nullptr;
      const ValueInfoProto* found = *it;
      theirs.erase(it);
      return found;
    };
    std::vector<const ValueInfoProto*> open;
    for (const auto& v : after_.graph().output()) {
      if (const auto cache = outputs_.find(v.name()); cache != outputs_.end()) {
        m_.outputs.push_back({v.name(), CacheOutput{cache->second}});
      } else if (take([&](const auto& t) { return t.name() == v.name(); }) != nullptr) {
        m_.outputs.push_back({v.name(), SameOutput{}});
      } else {
        open.push_back(&v);
      }
    }
    for (const ValueInfoProto* v : open) {
      const std::vector<Dim> dims = DimsOf(*v);
      const ValueInfoProto* twin = take([&](const ValueInfoProto& t) {
        const std::vector<Dim> own = DimsOf(t);
        if (TypeOf(t) != TypeOf(*v) || own.size() != dims.size()) return false;
        for (size_t k = 0; k < dims.size(); ++k) {
          if (own[k].value && dims[k].value && *own[k].value != *dims[k].value) return false;
        }
        return true;
      });
      if (twin != nullptr) m_.outputs.push_back({v->name(), RenamedOutput{twin->name()}});
    }
  }

  const ModelProto &before_, &after_;
  const InputUses before_uses_, uses_;
  const std::set<std::string> before_initializers_, initializers_;
  std::map<std::string, std::string> inputs_, outputs_;  // by name, the id
  std::set<std::string> their_caches_;                   // inputs and outputs of the source
  std::string capacity_;                                 // the dimension symbol of the capacity
  std::optional<int64_t> capacity_value_;
  std::vector<std::string> kinds_;  // one per group of caches with the same layouts
  std::map<std::string, std::vector<Layouts>> layouts_;  // by kind, the likeliest first
  std::vector<std::string> unsure_;                      // lengths that may be P or T
  Manifest m_;
};

}  // namespace

std::vector<Manifest> InferRelations(const Model& before, const Model& after) {
  std::vector<Manifest> candidates = Inferrer(before, after).Candidates();
  if (candidates.size() < 2) return candidates;
  // Reads from the graphs, under each relation, where rows are written and which are read.
  std::vector<std::ptrdiff_t> shown;
  for (const Manifest& relation : candidates) {
    const auto proof = ProveAlone(before, after, relation);
    shown.push_back(!proof.ok()
                        ? 0
                        : std::count_if(proof->facts.begin(), proof->facts.end(),
                                        [](const ProofFact& fact) { return fact.holds(); }));
  }
  const auto most = *std::max_element(shown.begin(), shown.end());
  std::vector<Manifest> remain;
  for (size_t k = 0; k < candidates.size(); ++k) {
    if (shown[k] == most) remain.push_back(std::move(candidates[k]));
  }
  return remain;
}

}  // namespace kvlift::cli
