#include "soundness/campaign.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "contract/manifest_json.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "onnxio/model/functional_form.h"
#include "onnxio/model/model.h"
#include "proof/prove/prove_conversion.h"
#include "rewrite/convert/convert.h"
#include "soundness/edits.h"
#include "soundness/interpretation.h"
#include "soundness/sources.h"
#include "support/case_file.h"

namespace kvlift::soundness {
namespace {

using SharedModel = std::shared_ptr<const onnx::ModelProto>;

constexpr int kEdited = 24;   // edited pairs per source
constexpr int kSteps = 12;    // steps of a pair that is proved
constexpr int kSampled = 24;  // steps of a pair that is not
constexpr int kSampleOf = 100;

SharedModel Shared(onnx::ModelProto model) {
  return std::make_shared<const onnx::ModelProto>(std::move(model));
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Converted {
  SharedModel model;
  Manifest manifest;
};

std::optional<Converted> ConvertModel(const onnx::ModelProto& source,
                                      const ConvertOptions& options) {
  Model model;
  model.proto = Shared(source);
  auto conversion = Convert(model, options, AllRules());
  if (!conversion.ok() || conversion->status != ConvertStatus::kConverted) return std::nullopt;
  return Converted{Shared(*std::move(conversion->model)), conversion->manifest};
}

// A source that pairs are made from: a random one, or a case of the rewrites.
struct Base {
  onnx::ModelProto source;
  ConvertOptions options;
  std::string name;
};

std::vector<Base> CaseBases() {
  std::vector<Base> bases;
  for (const std::string& path : CaseFiles()) {
    const auto c = LoadCase(path);
    if (!c.ok() || c->refuse) continue;
    auto before = ParseModelText(c->before);
    // The oracle runs valid operators of other domains; edits may make them invalid.
    if (!before.ok() || before->opset_import_size() > 1) continue;
    const auto& nodes = before->graph().node();
    const bool branches = std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
      return node.op_type() == "If";
    });
    if (branches) continue;  // no entry says which input signals a past
    NamePresents(&*before);
    bases.push_back({*std::move(before), c->options, c->name});
  }
  return bases;
}

class Campaign {
 public:
  explicit Campaign(const Limits& limits) : limits_(limits), cases_(CaseBases()) {}

  Tally Run() {
    const double begin = Now();
    for (uint64_t n = 0;; ++n) {
      tally_.seconds = Now() - begin;
      if (limits_.pairs > 0 && tally_.pairs >= limits_.pairs) break;
      if (limits_.seconds > 0 && tally_.seconds >= limits_.seconds) break;
      RunBase(limits_.base ? *limits_.base : limits_.seed * 1'000'003 + n);
      if (limits_.base) break;
    }
    return tally_;
  }

 private:
  Base Draw(Random& random) {
    if (random.OneIn(4) && !cases_.empty()) return random.Of(cases_);
    Base base{DrawSource(random), {}, "drawn"};
    if (random.OneIn(4)) base.options.control = Control::kDerived;
    if (random.OneIn(4)) {
      base.options.mask = random.OneIn(3) ? MaskForm::kAdditive : MaskForm::kExplicit;
    }
    if (random.OneIn(4)) base.options.read = ReadForm::kFull;
    if (random.OneIn(6)) base.options.padding = Padding::kNone;
    if (random.OneIn(6)) base.options.target = Target::kOrt;
    if (random.OneIn(8)) base.options.max_seq_len = 16;
    if (random.OneIn(8)) base.options.layout = Layout::kBnsd;
    return base;
  }

  void RunBase(uint64_t seed) {
    Random random(seed);
    Base base = Draw(random);
    const auto converted = ConvertModel(base.source, base.options);
    if (!converted) return;
    ++tally_.bases;
    seed_ = seed;
    const SharedModel source = Shared(base.source);
    ledger_ = LedgerOf(ProveConversion(*source, *converted->model, converted->manifest));
    // A fault without an edit would appear with every edit.
    if (Judge(source, converted->model, converted->manifest, base.name + ": no edit", random)) {
      return;
    }
    const Types types = InferredTypes(base.source);
    const Types target_types = InferredTypes(*converted->model);
    for (int k = 0; k < kEdited; ++k) {
      onnx::ModelProto before = base.source, after = *converted->model;
      Manifest manifest = converted->manifest;
      std::string what;
      const int64_t side = random.Pick(0, 9);
      const int edits = random.OneIn(5) ? 2 : 1;
      for (int e = 0; e < edits; ++e) {
        const bool of_source = side < 4 || (side == 9 && e == 0);
        const std::string done =
            of_source ? Edit(&before, types, random) : Edit(&after, target_types, random);
        what += fmt::format("{}{} {}", e > 0 ? " + " : "", of_source ? "source" : "target", done);
      }
      if (side == 3 || side == 9) {
        // Converts the edited source anew.
        const auto again = ConvertModel(before, base.options);
        if (!again) continue;
        if (side == 3) {
          after = *again->model;
        } else {
          after = *again->model;
          const std::string done = Edit(&after, InferredTypes(after), random);
          what += " + converted, target " + done;
        }
        if (side == 3) what += ", converted";
        manifest = again->manifest;
      }
      Judge(Shared(std::move(before)), Shared(std::move(after)), manifest, what, random);
    }
  }

  // Returns true if the pair is a failure of the proof.
  bool Judge(const SharedModel& before, const SharedModel& after, const Manifest& manifest,
             const std::string& what, Random& random) {
    ++tally_.pairs;
    const Proof proof = ProveConversion(*before, *after, manifest);
    const bool holds = HoldsWhole(proof);
    if (!holds && !random.OneIn(kSampleOf)) return false;
    if (holds) ++tally_.proved;
    // A model that ONNX's checker refuses has no meaning to compare.
    if (!CheckModel(*before).ok() || !CheckModel(*after).ok()) return false;
    const Assumptions assumptions = LedgerOf(proof);
    const auto meaning = Interpretation::Create(before, after, manifest, assumptions);
    if (!meaning.ok()) {
      if (holds) Unjudged(what);
      return false;
    }
    const Decision decision = meaning->Decide(holds ? kSteps : kSampled, random);
    if (!holds) {
      if (decision.runs == 0) return false;
      ++tally_.sampled;
      if (decision.difference) ++tally_.sampled_differ;
      return false;
    }
    if (decision.runs == 0 && !decision.difference) Unjudged(what);
    if (decision.difference && Hidden(assumptions)) {
      ++tally_.conditional;
      return false;
    }
    if (decision.difference) {
      Fail(*before, *after, manifest, assumptions, what, *decision.difference);
    }
    return decision.difference.has_value();
  }

  // Returns true if the ledger restricts values inside the edited source that it does not restrict
  // in the original one.
  bool Hidden(const Assumptions& assumptions) const {
    return std::any_of(
        assumptions.all().begin(), assumptions.all().end(), [&](const Assumption& a) {
          const auto plain = ledger_.all();
          return IsHidden(a) && std::find(plain.begin(), plain.end(), a) == plain.end();
        });
  }

  void Unjudged(const std::string& what) {
    ++tally_.unjudged;
    Kind& kind = tally_.unjudged_kinds[what];
    if (kind.count++ == 0) kind.seed = seed_;
  }

  void Fail(const onnx::ModelProto& before, const onnx::ModelProto& after, const Manifest& manifest,
            const Assumptions& assumptions, const std::string& what, const Difference& difference) {
    Kind& kind = tally_.failures[difference.stops ? what + " (stops)" : what];
    if (kind.count++ > 0) return;
    kind.seed = seed_;
    kind.first = difference.where;
    if (limits_.folder.empty()) return;
    std::filesystem::create_directories(limits_.folder);
    std::ofstream out(
        fmt::format("{}/{}-{:03}.txt", limits_.folder, seed_, tally_.failures.size()));
    std::string ledger;
    for (const Assumption& a : assumptions.all()) {
      ledger += fmt::format("{} of {}: {} ({})\n", WordOf(a.kind), a.subject, a.condition,
                            WordOf(a.source));
    }
    out << fmt::format(
        "{}\nseed {}\n{}\n\n# ledger\n{}\n# before\n{}\n\n# after\n{}\n\n# manifest\n{}\n", what,
        seed_, difference.where, ledger, PrintModelText(before), PrintModelText(after),
        ToJson(manifest).dump(1));
  }

  Limits limits_;
  std::vector<Base> cases_;
  Tally tally_;
  uint64_t seed_ = 0;
  Assumptions ledger_;  // of the unedited source
};

}  // namespace

void Tally::Merge(const Tally& other) {
  bases += other.bases;
  pairs += other.pairs;
  proved += other.proved;
  sampled += other.sampled;
  sampled_differ += other.sampled_differ;
  unjudged += other.unjudged;
  conditional += other.conditional;
  seconds += other.seconds;
  const auto merge = [](const auto& from, auto* to) {
    for (const auto& [what, kind] : from) {
      Kind& mine = (*to)[what];
      if (mine.count == 0) mine = {0, kind.seed, kind.first};
      mine.count += kind.count;
    }
  };
  merge(other.failures, &failures);
  merge(other.unjudged_kinds, &unjudged_kinds);
}

std::string Tally::Summary() const {
  int64_t failed = 0;
  for (const auto& [what, kind] : failures) failed += kind.count;
  return fmt::format(
      "{} pairs of {} sources in {:.0f} s ({:.2f} ms each): {} proved, {} of them not judged, {} "
      "differ where values inside the source are out of the range that the ledger asks for; of {} "
      "others that were run {} differ; {} failures of {} kinds\n",
      pairs, bases, seconds, pairs == 0 ? 0 : 1e3 * seconds / static_cast<double>(pairs), proved,
      unjudged, conditional, sampled, sampled_differ, failed, failures.size());
}

std::string Tally::Text() const {
  std::string text = Summary();
  for (const auto& [what, kind] : failures) {
    text +=
        fmt::format("FAILURE {} x {} (source {}b): {}\n", kind.count, what, kind.seed, kind.first);
  }
  for (const auto& [what, kind] : unjudged_kinds) {
    text += fmt::format("not judged {} x {} (source {}b)\n", kind.count, what, kind.seed);
  }
  return text;
}

std::string Tally::Serialized() const {
  nlohmann::json json = {bases,          pairs,    proved,      sampled,
                         sampled_differ, unjudged, conditional, seconds};
  for (const auto* kinds : {&failures, &unjudged_kinds}) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [what, kind] : *kinds)
      all.push_back({what, kind.count, kind.seed, kind.first});
    json.push_back(std::move(all));
  }
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Tally Tally::Parsed(const std::string& text) {
  Tally tally;
  const auto json = nlohmann::json::parse(text);
  int64_t* const numbers[] = {&tally.bases,      &tally.pairs,          &tally.proved,
                              &tally.sampled,    &tally.sampled_differ, &tally.unjudged,
                              &tally.conditional};
  for (size_t k = 0; k < std::size(numbers); ++k) *numbers[k] = json[k].get<int64_t>();
  tally.seconds = json[7].get<double>();
  size_t k = 8;
  for (auto* kinds : {&tally.failures, &tally.unjudged_kinds}) {
    for (const auto& one : json[k]) {
      (*kinds)[one[0].get<std::string>()] = {one[1].get<int64_t>(), one[2].get<uint64_t>(),
                                             one[3].get<std::string>()};
    }
    ++k;
  }
  return tally;
}

Tally Run(const Limits& limits) { return Campaign(limits).Run(); }

}  // namespace kvlift::soundness
