#include <memory>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "contract/manifest.h"
#include "contract/manifest_json.h"
#include "fmt/format.h"
#include "kvlift/commands/cmd_verify_infer.h"
#include "kvlift/commands/commands.h"
#include "kvlift/inputs/external.h"
#include "kvlift/outputs.h"
#include "kvlift/reports/proof_documents.h"
#include "lower/lower.h"
#include "onnxio/bytes/image.h"
#include "pipeline/checks.h"
#include "pipeline/pipeline.h"

namespace kvlift::cli {
namespace {

using nlohmann::ordered_json;

// Returns how the lowered model, as the source, corresponds to the model that it was made from:
// every input and output is what it was. Properties of caches that no graph shows are in the
// model's manifest, if it carries one.
Manifest SameInterface(const Model& lowered, const Model& model) {
  std::vector<Manifest> relations = InferRelations(lowered, model);
  const auto same = std::find_if(relations.begin(), relations.end(), [](const Manifest& relation) {
    return std::all_of(relation.caches.begin(), relation.caches.end(),
                       [](const ManifestCache& c) { return c.layout == c.source.layout; });
  });
  Manifest relation = same == relations.end() ? relations.front() : *same;
  for (ManifestInput& input : relation.inputs) {
    if (AsPadded(input) != nullptr) input.as = SameInput{};
  }
  const auto own = ManifestFromMetadata(*model.proto);
  if (!own.ok()) return relation;
  relation.mode = own->mode;
  relation.uniform = own->uniform;
  relation.uniform_reason = own->uniform_reason;
  relation.limits = own->limits;
  for (ManifestCache& cache : relation.caches) {
    const auto known = std::find_if(own->caches.begin(), own->caches.end(),
                                    [&](const ManifestCache& c) { return c.input == cache.input; });
    if (known == own->caches.end()) continue;
    cache.ring = known->ring;
    cache.role = known->role;
  }
  return relation;
}

// One run of the command, from the model to the file.
class LowerRun {
 public:
  LowerRun(const LowerFlags& flags, Io& io, const Model& model)
      : flags_(flags), io_(io), model_(model) {}

  int Run() {
    auto lowered = Lower(*model_.proto, {*ReadLowerTo(flags_.to), flags_.opset});
    if (!lowered.ok()) {
      Complain(io_, flags_.model, lowered.status());
      return absl::IsInternal(lowered.status()) ? kInternal : kUnreadable;
    }
    lowered_ = *std::move(lowered);
    if (lowered_.refusal) return Refuse(*lowered_.refusal);
    Model result;
    result.base_dir = model_.base_dir;
    result.proto = std::make_shared<const onnx::ModelProto>(*std::move(lowered_.model));
    const absl::Status valid = StatusOf(CheckEach(model_, result, nullptr));
    if (!valid.ok()) {
      const absl::Status blame = BlameFor(model_, result, valid);
      Complain(io_, flags_.model, blame);
      return absl::IsInternal(blame) ? kInternal : kUnreadable;
    }
    ProvingOptions proving;
    proving.accept = *ReadConvertAccept(flags_.accept);
    proving.threads = flags_.common.threads;
    proving.say = [&](std::string what) { io_.Say(std::move(what)); };
    auto judged = ProvePair(result, model_, SameInterface(result, model_), proving);
    if (!judged.ok()) {
      Complain(io_, flags_.model, judged.status());
      return kUnreadable;
    }
    judged_ = *std::move(judged);
    if (!judged_->accepted) return Withhold();
    return Write(result);
  }

 private:
  ordered_json Document(std::string_view status, const std::optional<Finding>& reason,
                        const std::vector<std::string>& outputs) const {
    ordered_json document = {{"schema", "kvlift/lower/1"},
                             {"status", status},
                             {"to", flags_.to},
                             {"opset", nullptr},
                             {"tensor_scatters", lowered_.scatters},
                             {"attentions", lowered_.attentions},
                             {"equality", nullptr},
                             {"proof", nullptr},
                             {"assumptions", ordered_json::array()},
                             {"outputs", outputs},
                             {"reason", nullptr}};
    if (lowered_.opset > 0) document["opset"] = lowered_.opset;
    if (judged_) {
      document["equality"] = WordOf(judged_->equality);
      document["proof"] = ProofDocument(judged_->proof);
      document["assumptions"] = ToJson(judged_->conversion.manifest.assumptions.all());
    }
    if (reason) {
      document["reason"] = {
          {"code", reason->code}, {"text", reason->text}, {"nodes", reason->nodes}};
    }
    return document;
  }

  int Refuse(const Finding& refusal) {
    if (flags_.common.json) PrintJson(io_, Document("refused", refusal, {}));
    Complain(io_, flags_.model, fmt::format("{} [{}]", refusal.text, refusal.code));
    return kFindings;
  }

  // The result is not written: what --accept asks for was not shown.
  int Withhold() {
    const std::string& why = judged_->reason;
    const size_t space = std::min(why.find(' '), why.size());
    if (flags_.common.json) {
      const std::string text = why.substr(std::min(space + 1, why.size()));
      PrintJson(io_, Document("withheld", Finding{why.substr(0, space), text, {}, {}}, {}));
    }
    Complain(io_, flags_.output, "not written: " + why);
    return judged_->equality == ConversionVerdict::kDifferent ? kFindings : kInconclusive;
  }

  int CannotWrite(const absl::Status& status) {
    const std::string code = CodeOf(status);
    Complain(io_, flags_.output,
             fmt::format("{} [{}]", std::string(status.message()), code.empty() ? "KV501" : code));
    return kUnwritable;
  }

  int Write(const Model& result) {
    onnx::ModelProto proto = *result.proto;
    const auto external = ReadExternalMode(flags_.external);
    if (!external.ok()) return CannotWrite(external.status());
    auto placed = PlaceExternalData(model_.base_dir, flags_.output, *external, &proto);
    if (!placed.ok()) return CannotWrite(placed.status());
    auto image = ImageOf(proto, placed->locations);
    if (!image.ok()) return CannotWrite(image.status());
    std::vector<OutputFile> files = std::move(placed->files);
    files.push_back({flags_.output, {}, std::move(image->pieces)});
    OutputGuard guard(flags_.force || flags_.dry_run);
    guard.ReadsModel(model_);
    guard.ReadsManifestBeside(flags_.model);
    if (const absl::Status may = guard.Check(files); !may.ok()) {
      Complain(io_, "", may);
      return kUnwritable;
    }
    std::vector<std::string> names;
    if (!flags_.dry_run) {
      if (const auto status = WriteFiles(files); !status.ok()) return CannotWrite(status);
      for (const OutputFile& file : files) names.push_back(file.path);
    }
    if (flags_.common.json) {
      PrintJson(io_, Document("lowered", std::nullopt, names));
    } else if (!flags_.common.quiet) {
      io_.Results() << Text(names);
    }
    return kDone;
  }

  std::string Text(const std::vector<std::string>& names) const {
    const std::vector<ProofFact>& facts = judged_->proof.facts;
    const auto held =
        std::count_if(facts.begin(), facts.end(), [](const ProofFact& f) { return f.holds(); });
    const std::string share = fmt::format("{} of {} facts hold for all shapes", held, facts.size());
    std::string text;
    if (flags_.common.verbose) {
      text += ProofText(judged_->proof, true, io_.OutStyle());
      for (const Assumption& a : judged_->conversion.manifest.assumptions.all()) {
        if (!a.checked) text += fmt::format("assumed: {}\n", EscapeTerminal(a.condition));
      }
    }
    switch (judged_->equality) {
      case ConversionVerdict::kProved:
        text += fmt::format("equal: {}\n", share);
        break;
      case ConversionVerdict::kTested:
        text += fmt::format("equal as tested: {}, the plans passed\n", share);
        break;
      default:
        text += fmt::format("not tested: {}\n", share);
    }
    for (const std::string& name : names) text += fmt::format("wrote {}\n", EscapeTerminal(name));
    return text + fmt::format("lowered to {}: {} TensorScatter, {} Attention, opset {}\n",
                              flags_.to, lowered_.scatters, lowered_.attentions, lowered_.opset);
  }

  const LowerFlags& flags_;
  Io& io_;
  const Model& model_;
  Lowered lowered_;
  std::optional<ProvedConversion> judged_;
};

}  // namespace

void AddLowerFlags(CLI::App* command, LowerFlags* flags) {
  const auto one_of = [](std::vector<std::string> words) {
    return CLI::IsMember(std::move(words));
  };
  command->add_option("model", flags->model, "A model with TensorScatter or Attention")->required();
  command->add_option("-o,--output", flags->output, "Where to write the result")
      ->required()
      ->check(CLI::Validator(OutputNameError, ""));
  command->add_option("--to", flags->to, "The operators that replace them")
      ->required()
      ->check(one_of({"scatternd", "where", "attention-23", "decomposed"}));
  command
      ->add_option("--opset", flags->opset,
                   "Opset of the result; by default the newest without the lowered operators")
      ->check(CLI::Range(13, 24));
  command->add_option("--accept", flags->accept, "The evidence without which nothing is written")
      ->check(one_of({"proved", "tested", "unproved"}));
  command->add_option("--external", flags->external, "Files of external data")
      ->check(one_of({"auto", "keep", "copy"}));
  command->add_flag("--dry-run", flags->dry_run, "Do everything but write");
  command->add_flag("--force", flags->force, "Overwrite existing outputs");
}

int RunLower(const LowerFlags& flags, Io io) {
  const auto model = Load(io, flags.model, flags.common);
  if (!model) return kUnreadable;
  io.Say("lowering");
  return LowerRun(flags, io, *model).Run();
}

}  // namespace kvlift::cli
