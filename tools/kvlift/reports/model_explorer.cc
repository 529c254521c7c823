#include "kvlift/reports/model_explorer.h"

#include <cmath>
#include <limits>

#include "kvlift/cli.h"
#include "nlohmann/json.hpp"

namespace kvlift::cli {
namespace {

// The background colours of nodes whose values are the same (green) and of those that differ (red).
constexpr const char* kSame = "#d7f0dd";
constexpr const char* kDiffers = "#f6c9c4";

using Json = nlohmann::ordered_json;

void Add(const ComparedValue& value, const std::string& id, Json* results) {
  // JSON has no number for a distance that is not finite.
  const double distance =
      std::isfinite(value.distance) ? value.distance : std::numeric_limits<double>::max();
  Json& result = (*results)[id];
  if (result.is_object() && result["value"].get<double>() >= distance) return;
  result = {{"value", distance}, {"bgColor", value.differs ? kDiffers : kSame}};
}

}  // namespace

std::string ModelExplorerData(const VerifyReport& report, const std::string& before_graph,
                              const std::string& after_graph) {
  Json document;
  for (const std::string& graph : {before_graph, after_graph}) {
    document[graph] = {{"name", "largest difference (kvlift verify)"}, {"results", Json::object()}};
  }
  if (report.counterexample) {
    for (const ComparedValue& value : report.counterexample->values) {
      Add(value, value.before_id, &document[before_graph]["results"]);
      Add(value, value.after_id, &document[after_graph]["results"]);
    }
  }
  return JsonText(document);
}

}  // namespace kvlift::cli
