#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kvlift/commands/cmd_verify_infer.h"

namespace kvlift::cli {
namespace {

std::string Ends(const std::string& input, const std::string& layout, const std::string& output) {
  return fmt::format("{} [{}] -> {}", input, layout, output);
}

absl::StatusOr<VerifyReport> VerifyInferred(const Model& before, const Model& after,
                                            const VerifyOptions& options, Manifest* relation) {
  KV_ASSIGN_OR_RETURN(VerifyReport report, Verify(before, after, *relation, options));
  if (!report.counterexample || !report.counterexample->hides_padding) return report;
  Manifest without = *relation;
  without.preconditions.push_back(
      {"KV303", "rows of padding tokens may differ", PreconditionStatus::kAssumed});
  KV_ASSIGN_OR_RETURN(VerifyReport other, Verify(before, after, without, options));
  if (other.verdict == VerdictKind::kDifferent) return report;
  *relation = std::move(without);
  return other;
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyEach(const Model& before, const Model& after,
                                        std::vector<Manifest>* relations,
                                        const VerifyOptions& options, size_t* worst) {
  *worst = 0;
  KV_ASSIGN_OR_RETURN(VerifyReport report,
                      VerifyInferred(before, after, options, &relations->front()));
  for (size_t k = 1; k < relations->size(); ++k) {
    KV_ASSIGN_OR_RETURN(VerifyReport other,
                        VerifyInferred(before, after, options, &(*relations)[k]));
    if (!IsWorse(other.verdict, report.verdict)) continue;
    report = std::move(other);
    *worst = k;
  }
  return report;
}

std::vector<std::string> RelationLines(const Manifest& relation) {
  std::vector<std::string> lines;
  for (const ManifestCache& c : relation.caches) {
    lines.push_back(fmt::format("cache   {:<10} {} is {}", c.id, Ends(c.input, c.layout, c.output),
                                Ends(c.source.input, c.source.layout, c.source.output)));
  }
  for (const ManifestInput& i : relation.inputs) {
    if (IsCache(i)) continue;
    const std::string& source = NameInSource(i);
    std::string is = source == i.name ? "of the same name" : source;
    if (const ControlInput* control = AsControl(i)) {
      is = fmt::format("{} [{}]", WordOf(control->value), fmt::join(control->shape, ", "));
    }
    if (const PaddedInput* padded = AsPadded(i)) {
      is += fmt::format(", as wide as the capacity on axis {}", padded->axis);
    }
    lines.push_back(fmt::format("input   {} is {}", i.name, is));
  }
  for (const ManifestOutput& o : relation.outputs) {
    if (IsCache(o)) continue;
    const std::string& source = NameInSource(o);
    lines.push_back(
        fmt::format("output  {} is {}", o.name, source == o.name ? "of the same name" : source));
  }
  for (const DroppedInput& d : relation.dropped) {
    lines.push_back(IsGiven(d, DroppedValue::kNotRead)
                        ? fmt::format("input   {} of the source is not read", d.name)
                        : fmt::format("input   {} of the source holds {}", d.name, GivenText(d)));
  }
  return lines;
}

}  // namespace kvlift::cli
