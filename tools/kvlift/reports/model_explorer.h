// Node data of a verdict for Model Explorer, which colours the nodes of a drawn graph by it: "Load
// node data" there, beside one of the two models. Source: node_data_builder.py of PyPI's
// ai-edge-model-explorer.
#pragma once

#include <string>

#include "verify/report/verify_report.h"

namespace kvlift::cli {

// Returns one table for each graph, by its name: for each node that computes a value of both models
// in the smallest step that differs, how far the two values are apart. Tables of a verdict without
// a counterexample are empty. Two graphs of one name have one table, with the nodes of both.
std::string ModelExplorerData(const VerifyReport& report, const std::string& before_graph,
                              const std::string& after_graph);

}  // namespace kvlift::cli
