#include "soundness/interpretation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "contract/layout.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kvlift::soundness {
namespace {

using onnx::TensorProto;
using oracle::Dims;
using oracle::Product;
using oracle::Value;
using oracle::Values;

constexpr int64_t kMostWork = 2'000'000;  // scalar operations per step
constexpr int64_t kTokens = 4, kSequences = 3, kPast = 12, kSlots = 16;
constexpr double kLowest = -3.4028234663852886e38;

bool IsMask(const std::string& name) { return name.find("mask") != std::string::npos; }
bool IsPosition(const std::string& name) { return name.find("position") != std::string::npos; }

// Returns a random number that the type represents exactly.
double DrawNumber(int32_t type, double amplitude, Random& random) {
  switch (type) {
    case TensorProto::FLOAT:
    case TensorProto::DOUBLE:
      return static_cast<double>(random.Pick(-64, 64)) / 64 * amplitude;
    case TensorProto::UINT8:
      return static_cast<double>(random.Pick(0, 255));
    case TensorProto::INT8:
      return static_cast<double>(random.Pick(-128, 127));
    default:
      return oracle::IsReal(type) ? static_cast<double>(random.Pick(-8, 8)) / 4
                                  : static_cast<double>(random.Pick(0, 3));
  }
}

int32_t TypeNamed(const std::string& name) {
  return name == "int32" ? TensorProto::INT32 : TensorProto::INT64;
}

}  // namespace

absl::StatusOr<Interpretation> Interpretation::Create(
    std::shared_ptr<const onnx::ModelProto> before, std::shared_ptr<const onnx::ModelProto> after,
    const Manifest& manifest, const Assumptions& assumptions) {
  Interpretation made;
  auto source_shown = std::make_shared<onnx::ModelProto>(*before);
  auto shown = std::make_shared<onnx::ModelProto>(*after);
  made.attentions_ = ShownAttentions(assumptions, source_shown.get(), shown.get());
  made.before_ = std::move(source_shown);
  made.after_ = std::move(shown);
  made.manifest_ = manifest;
  KV_RETURN_IF_ERROR(made.Understand());
  for (const ManifestCache& cache : manifest.caches) {
    const auto* input = Find(made.after_->graph().input(), cache.input);
    const int axis = AxisOf(cache.layout, 'B');
    if (input == nullptr || axis >= input->type().tensor_type().shape().dim_size()) continue;
    const auto& dim = input->type().tensor_type().shape().dim(axis);
    if (dim.has_dim_value()) made.sequences_ = dim.dim_value();
  }
  made.restrictions_ = RestrictionsOf(*made.before_, manifest, assumptions);
  KV_ASSIGN_OR_RETURN(auto source, oracle::Interpreter::Create(made.before_, ""));
  KV_ASSIGN_OR_RETURN(auto converted, oracle::Interpreter::Create(made.after_, ""));
  if (!source.unknown().empty() || !converted.unknown().empty()) {
    return absl::UnimplementedError("an operator without meaning");
  }
  made.source_ = std::make_shared<oracle::Interpreter>(std::move(source));
  made.converted_ = std::make_shared<oracle::Interpreter>(std::move(converted));
  return made;
}

absl::Status Interpretation::Understand() const {
  if (manifest_.mode != BufferMode::kLinear) return absl::UnimplementedError("mode");
  for (const ManifestCache& cache : manifest_.caches) {
    std::string mine = cache.layout, theirs = cache.source.layout;
    std::sort(mine.begin(), mine.end());
    std::sort(theirs.begin(), theirs.end());
    const bool plain = mine == theirs && mine.find('(') == std::string::npos &&
                       AxisOf(mine, 'B') >= 0 && AxisOf(mine, 'S') >= 0;
    const bool kind = cache.source.kind == UpdateKind::kConcat || !cache.source.growing;
    if (!plain || !kind || cache.ring || cache.quantization || !cache.source.select.empty() ||
        cache.source.kind == UpdateKind::kWindow || cache.source.kind == UpdateKind::kShift) {
      return absl::UnimplementedError("a cache of another form");
    }
  }
  for (const Precondition& condition : manifest_.preconditions) {
    // The pasts that are drawn do not lie on the grid of a quantiser.
    if (condition.code == "KV311" && condition.text.find("scale") != std::string::npos) {
      return absl::UnimplementedError("a past of quantised numbers");
    }
  }
  for (const ManifestInput& input : manifest_.inputs) {
    const bool length =
        IsControl(input, ControlValue::kPastLength) || IsControl(input, ControlValue::kTotalLength);
    if (AsControl(input) != nullptr && !length) {
      return absl::UnimplementedError("a control of another meaning");
    }
  }
  const auto& inputs = before_->graph().input();
  const bool declared = std::any_of(inputs.begin(), inputs.end(), [](const auto& input) {
    const auto& dims = input.type().tensor_type().shape().dim();
    return std::any_of(dims.begin(), dims.end(),
                       [](const auto& dim) { return dim.dim_param() == "S"; });
  });
  if (!declared) return absl::UnimplementedError("no input says how many tokens there are");
  return absl::OkStatus();
}

std::optional<int64_t> Interpretation::Extent(const onnx::TensorShapeProto::Dimension& dim,
                                              const Step& step, int64_t past) const {
  if (dim.has_dim_value()) return dim.dim_value();
  const std::string& name = dim.dim_param();
  if (name.empty()) return std::nullopt;
  if (name == "B") return 1;
  if (name == "S") return step.tokens;
  if (name == "P") return past;
  if (name == "T" || name == "P + S") return past + step.tokens;
  if (name == "M" || name == manifest_.capacity_dim) return step.slots;
  const auto it = step.sizes.find(name);
  if (it != step.sizes.end()) return it->second;
  return std::nullopt;
}

// Draws one sequence's part of an input of the source.
absl::StatusOr<Tensor> Interpretation::DrawInput(const onnx::ValueInfoProto& input,
                                                 const Step& step, int64_t sequence, int64_t past,
                                                 Random& random) const {
  const std::string& name = input.name();
  Tensor tensor;
  tensor.type = input.type().tensor_type().elem_type();
  const auto& shape = input.type().tensor_type().shape();
  for (int k = 0; k < shape.dim_size(); ++k) {
    auto extent = Extent(shape.dim(k), step, past);
    if (!extent) return absl::UnimplementedError("a dimension without meaning");
    // Axes of one name have one size; one of them is the axis of sequences.
    if (shape.dim(k).dim_param() == "B" && k != BatchAxis(input)) extent = step.sequences;
    tensor.dims.push_back(*extent);
  }
  const Restrictions& r = restrictions_;
  const auto contains = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (contains(r.counted) && BatchAxis(input) == shape.dim_size() - 1 && step.sequences > 1) {
    return absl::UnimplementedError("numbers of tokens along sequences");
  }
  const int64_t size = Product(tensor.dims);
  const bool per_token = std::ssize(tensor.dims) > 2;
  Dims at(tensor.dims.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    double x = 0;
    const int64_t last = at.empty() ? 0 : at.back();
    const int64_t row = at.size() < 2 ? 0 : at[at.size() - 2];
    if (contains(r.ones)) {
      x = 1;
    } else if (contains(r.zeros)) {
      x = 0;
    } else if (contains(r.counted)) {
      x = static_cast<double>(past + last);
    } else if (IsMask(name)) {
      // A token sees itself; the columns of the mask are all tokens.
      const bool own = per_token ? last == past + row : last >= past;
      const bool causal = !per_token || last <= past + row;
      bool visible = true;
      if (step.mask_style == 1) visible = random.OneIn(2);
      // Padding tokens on the left.
      if (step.mask_style == 2) visible = last > (sequence + past) / 2;
      if (own && (r.tokens_visible || random.OneIn(2))) visible = true;
      const bool real = oracle::IsReal(tensor.type);
      if (!real) {
        x = visible ? 1 : 0;
        // A mask of numbers other than 0 and 1 may lift hidden keys above visible ones.
        const bool free = !contains(r.binary) && !r.tame && tensor.type != TensorProto::BOOL;
        if (free && step.mask_style == 3) x = visible ? static_cast<double>(random.Pick(1, 3)) : 0;
      } else {
        x = visible && causal ? 0 : kLowest;
        if (step.mask_style >= 2 && !contains(r.binary)) {
          x = -static_cast<double>(random.Pick(0, 64)) / 16;
        }
      }
    } else if (IsPosition(name)) {
      const bool counted = step.position_style == 0;
      x = static_cast<double>(counted ? past + last : random.Pick(0, 15));
    } else if (tensor.type == TensorProto::BOOL) {
      x = static_cast<double>(random.Pick(0, 1));
    } else {
      x = DrawNumber(tensor.type, step.amplitude, random);
    }
    tensor.values.push_back(x);
    Next(tensor.dims, &at);
  }
  return tensor;
}

bool Interpretation::Permits(const Step& step) const {
  // The source runs once for all sequences, or once for each; the conversion runs once for all.
  if (!Permits(step, step.sequences, step.past[0])) return false;
  if (!step.ragged()) return true;
  for (int64_t b = 0; b < step.sequences; ++b) {
    if (!Permits(step.Alone(b), 1, step.past[b])) return false;
  }
  return true;
}

bool Interpretation::MayPad() const {
  const bool grow = std::all_of(manifest_.caches.begin(), manifest_.caches.end(),
                                [](const ManifestCache& cache) { return cache.source.growing; });
  if (!grow || restrictions_.no_padding || restrictions_.one_length) return false;
  constexpr std::string_view kKnown[] = {"", "B", "S", "P", "T", "P + S", "M"};
  for (const auto& input : before_->graph().input()) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (std::find(std::begin(kKnown), std::end(kKnown), dim.dim_param()) == std::end(kKnown)) {
        return false;
      }
    }
  }
  return true;
}

// A cache is fed with as many rows as there are past tokens, even if it declares another size.
bool Interpretation::IsAxisOfPast(const std::string& input, int axis) const {
  return std::any_of(manifest_.caches.begin(), manifest_.caches.end(), [&](const auto& cache) {
    return cache.source.input == input && cache.source.growing && cache.source.axis == axis;
  });
}

bool Interpretation::Permits(const Step& step, int64_t sequences, int64_t past) const {
  Sizes sizes = {step.sizes.begin(), step.sizes.end()};
  sizes["B"] = sequences;
  sizes["S"] = step.tokens;
  sizes["P"] = sizes["P of the sequence"] = past;
  sizes["T"] = sizes["P + S"] = past + step.tokens;
  sizes["M"] = sizes[manifest_.capacity_dim] = step.slots;
  for (const auto& input : before_->graph().input()) {
    const auto& shape = input.type().tensor_type().shape();
    for (int k = 0; k < shape.dim_size(); ++k) {
      auto extent = Extent(shape.dim(k), step, past);
      if (!extent) continue;
      if (shape.dim(k).dim_param() == "B") extent = sequences;
      if (IsAxisOfPast(input.name(), k)) extent = past;
      sizes[fmt::format("{}.shape[{}]", input.name(), k)] = *extent;
      sizes[fmt::format("ones:{}.{}", input.name(), k)] = *extent;
      sizes[fmt::format("ones:{}.shape[{}]", input.name(), k)] = *extent;
      sizes[fmt::format("{}.{}", input.name(), k)] = *extent;  // an axis without a plain name
    }
  }
  return std::all_of(restrictions_.sizes.begin(), restrictions_.sizes.end(),
                     [&](const std::string& condition) {
                       // The results of quotients and selections are unknown, so such a step is not
                       // run.
                       const bool is_sum = condition.find(" div ") == std::string::npos &&
                                           condition.find(" ? ") == std::string::npos;
                       return Holds(condition, sizes).value_or(is_sum);
                     });
}

absl::Status Interpretation::Draw(const Step& step, Random& random, Made* made) const {
  for (const auto& input : before_->graph().input()) {
    const bool cached =
        std::any_of(manifest_.caches.begin(), manifest_.caches.end(),
                    [&](const ManifestCache& c) { return c.source.input == input.name(); });
    const bool constant =
        std::any_of(before_->graph().initializer().begin(), before_->graph().initializer().end(),
                    [&](const TensorProto& t) { return t.name() == input.name(); });
    if (cached || constant) continue;
    Made::Pieces& pieces = made->inputs[input.name()];
    pieces.axis = BatchAxis(input);
    if (pieces.axis < 0 && step.ragged() && TellsLength(input)) {
      return absl::UnavailableError("one input for sequences of different lengths");
    }
    const int64_t count = pieces.axis < 0 ? 1 : step.sequences;
    for (int64_t b = 0; b < count; ++b) {
      KV_ASSIGN_OR_RETURN(Tensor tensor, DrawInput(input, step, b, step.past[b], random));
      pieces.each.push_back(std::move(tensor));
    }
  }
  for (const ManifestCache& cache : manifest_.caches) {
    const auto* input = Find(after_->graph().input(), cache.input);
    if (input == nullptr) return absl::UnimplementedError("a cache without an input");
    Tensor tensor;
    tensor.type = input->type().tensor_type().elem_type();
    const auto& shape = input->type().tensor_type().shape();
    for (int k = 0; k < shape.dim_size(); ++k) {
      if (k == AxisOf(cache.layout, 'B')) {
        tensor.dims.push_back(step.sequences);
      } else if (k == AxisOf(cache.layout, 'S')) {
        tensor.dims.push_back(step.slots);
      } else if (shape.dim(k).has_dim_value()) {
        tensor.dims.push_back(shape.dim(k).dim_value());
      } else {
        return absl::UnimplementedError("a cache's dimension without meaning");
      }
    }
    for (int64_t i = 0; i < Product(tensor.dims); ++i) {
      tensor.values.push_back(DrawNumber(tensor.type, step.amplitude, random));
    }
    made->caches[cache.id] = std::move(tensor);
  }
  return absl::OkStatus();
}

Value Interpretation::AsValue(const Tensor& tensor) {
  if (oracle::IsReal(tensor.type)) {
    oracle::Reals reals(std::ssize(tensor.values));
    reals.value = tensor.values;
    return Value::FromReals(tensor.type, tensor.dims, std::move(reals));
  }
  std::vector<int64_t> integers(tensor.values.begin(), tensor.values.end());
  return Value::FromIntegers(tensor.type, tensor.dims, std::move(integers));
}

absl::StatusOr<Values> Interpretation::SourceFeeds(const Step& step, const Made& made, int first,
                                                   int count) const {
  Values feeds;
  for (const auto& [name, pieces] : made.inputs) {
    const auto& shape = Find(before_->graph().input(), name)->type().tensor_type().shape();
    if (pieces.axis < 0) {
      const bool of_tokens = std::any_of(shape.dim().begin(), shape.dim().end(),
                                         [](const auto& dim) { return dim.dim_param() == "S"; });
      if (step.padded() && of_tokens) return absl::UnavailableError("one input for all sequences");
      feeds[name] = AsValue(pieces.each[0]);
      continue;
    }
    Tensor all = pieces.each[first];
    all.dims[pieces.axis] = count;
    if (step.padded()) {
      // Padding tokens are behind the others, and so are their columns.
      for (int k = 0; k < shape.dim_size(); ++k) {
        if (k == pieces.axis || shape.dim(k).dim_param() == "B") continue;
        all.dims[k] = *Extent(shape.dim(k), step.Alone(first), step.past[first]);
      }
    }
    all.values.assign(Product(all.dims), 0);
    Dims at(all.dims.size(), 0);
    for (double& x : all.values) {
      const Tensor& one = pieces.each[first + at[pieces.axis]];
      Dims inner = at;
      inner[pieces.axis] = 0;
      x = one.values[Place(one.dims, inner)];
      Next(all.dims, &at);
    }
    feeds[name] = AsValue(all);
  }
  for (const ManifestCache& cache : manifest_.caches) {
    const Tensor& whole = made.caches.at(cache.id);
    const std::vector<std::string> letters = AxesOfLayout(cache.source.layout);
    Tensor part;
    part.type = whole.type;
    std::vector<int> from;
    for (const std::string& letter : letters) {
      const int axis = AxisOf(cache.layout, letter[0]);
      from.push_back(axis);
      int64_t extent = whole.dims[axis];
      if (letter == "B") extent = count;
      if (letter == "S" && cache.source.growing) extent = step.past[first];
      part.dims.push_back(extent);
    }
    Dims at(part.dims.size(), 0), outer(part.dims.size(), 0);
    for (int64_t i = 0; i < Product(part.dims); ++i) {
      for (size_t k = 0; k < at.size(); ++k) {
        outer[from[k]] = at[k] + (letters[k] == "B" ? first : 0);
      }
      part.values.push_back(whole.values[Place(whole.dims, outer)]);
      Next(part.dims, &at);
    }
    feeds[cache.source.input] = AsValue(part);
  }
  return feeds;
}

absl::StatusOr<Values> Interpretation::ConvertedFeeds(const Step& step, const Made& made) const {
  Values feeds;
  for (const ManifestInput& input : manifest_.inputs) {
    if (const CacheInput* cache = AsCache(input)) {
      feeds[input.name] = AsValue(made.caches.at(cache->id));
      continue;
    }
    if (const ControlInput* control = AsControl(input)) {
      Tensor tensor;
      tensor.type = TypeNamed(control->dtype);
      int64_t count = 1;
      for (const std::string& dim : control->shape) {
        count = dim == "B" ? step.sequences : 1;
        tensor.dims.push_back(count);
      }
      if (count < step.sequences && step.ragged()) {
        return absl::UnavailableError("one index for sequences of different lengths");
      }
      for (int64_t b = 0; b < count; ++b) {
        const bool more = control->value == ControlValue::kTotalLength;
        const int64_t total = step.past[b] + (more ? step.tokens : 0);
        tensor.values.push_back(static_cast<double>(total));
      }
      feeds[input.name] = AsValue(tensor);
      continue;
    }
    const std::string& name = NameInSource(input);
    const auto it = made.inputs.find(name);
    if (it == made.inputs.end()) return absl::UnimplementedError("an input that is not known");
    const Made::Pieces& pieces = it->second;
    const PaddedInput* pad = AsPadded(input);
    Tensor all = pieces.each[0];
    if (pieces.axis >= 0) all.dims[pieces.axis] = step.sequences;
    if (pad != nullptr) all.dims[pad->axis] = step.slots;
    if (pad == nullptr && step.ragged()) {
      for (const Tensor& one : pieces.each) {
        if (one.values.size() != pieces.each[0].values.size()) {
          return absl::UnavailableError("sequences of different lengths");
        }
      }
    }
    all.values.assign(Product(all.dims), 0);
    Dims at(all.dims.size(), 0);
    for (double& x : all.values) {
      const Tensor& one = pieces.each[pieces.axis < 0 ? 0 : at[pieces.axis]];
      Dims inner = at;
      if (pieces.axis >= 0) inner[pieces.axis] = 0;
      if (pad != nullptr && inner[pad->axis] >= one.dims[pad->axis]) {
        x = static_cast<double>(pad->fill);
      } else {
        x = one.values[Place(one.dims, inner)];
      }
      Next(all.dims, &at);
    }
    feeds[input.name] = AsValue(all);
  }
  return feeds;
}

bool Interpretation::RunSource(const Step& step, const Made& made, int64_t* work,
                               std::vector<Values>* results) const {
  const bool alone = step.ragged();
  const int groups = alone ? static_cast<int>(step.sequences) : 1;
  for (int g = 0; g < groups; ++g) {
    const auto fed = SourceFeeds(step, made, g, alone ? 1 : static_cast<int>(step.sequences));
    if (!fed.ok()) return false;
    auto given = source_->Run(*fed, kMostWork, work);
    if (!given.ok() || attentions_.ExcludeSource(*given)) return false;
    results->push_back(*std::move(given));
  }
  return true;
}

Decision Interpretation::Decide(int steps, Random& random) const {
  Decision decision;
  for (int n = 0; n < steps && !decision.difference; ++n) {
    Step step;
    step.sequences = sequences_.value_or(random.Pick(1, kSequences));
    step.tokens = random.Pick(1, kTokens);
    const int64_t most = std::min(kPast, manifest_.capacity_value.value_or(kSlots) - step.tokens);
    const bool ragged = !restrictions_.one_length && random.OneIn(3);
    const int64_t common = random.Pick(0, std::max<int64_t>(most, 0));
    for (int64_t b = 0; b < step.sequences; ++b) {
      step.past.push_back(ragged ? random.Pick(0, std::max<int64_t>(most, 0)) : common);
    }
    const int64_t longest = *std::max_element(step.past.begin(), step.past.end());
    if (restrictions_.one_token_with_past && longest > 0) step.tokens = 1;
    step.slots = manifest_.capacity_value.value_or(
        random.Pick(longest + step.tokens, std::max(kSlots, longest + step.tokens)));
    if (MayPad() && step.tokens > 1 && random.OneIn(3)) {
      for (int64_t b = 0; b < step.sequences; ++b) step.real.push_back(random.Pick(1, step.tokens));
    }
    step.mask_style = random.Pick(0, 3);
    step.position_style = random.Pick(0, 1);
    step.amplitude = !restrictions_.tame && random.OneIn(10) ? 2e5 : 2;
    for (const auto& input : before_->graph().input()) {
      for (const auto& dim : input.type().tensor_type().shape().dim()) {
        const std::string& name = dim.dim_param();
        if (!name.empty() && !step.sizes.contains(name)) step.sizes[name] = random.Pick(1, 5);
      }
    }
    Made made;
    if (!Permits(step) || !Draw(step, random, &made).ok()) {
      ++decision.unfed;
      continue;
    }
    const auto feeds = ConvertedFeeds(step, made);
    if (!feeds.ok()) {
      ++decision.unfed;
      continue;
    }
    int64_t work = 0;
    std::vector<Values> source;
    bool ran = RunSource(step, made, &work, &source);
    if (ran && step.padded()) {
      // Padding tokens are tokens that the source would take as well.
      Step whole = step;
      whole.real.clear();
      std::vector<Values> unused;
      ran = RunSource(whole, made, &work, &unused);
    }
    if (!ran) {
      ++decision.unfed;
      continue;
    }
    const auto given = converted_->Run(*feeds, kMostWork, &work);
    if (!given.ok()) {
      if (absl::IsUnimplemented(given.status()) || restrictions_.may_stop) {
        ++decision.unfed;
      } else {
        decision.difference = Difference{
            true, fmt::format("{}: {}", step.Text(), std::string(given.status().message()))};
      }
      continue;
    }
    if (attentions_.ExcludeConverted(*given)) {
      ++decision.unfed;
      continue;
    }
    ++decision.runs;
    const Relation relation{*before_, manifest_, restrictions_.reordered};
    decision.difference = Compare(relation, step, made, source, *given, &decision.judged);
  }
  return decision;
}

}  // namespace kvlift::soundness
