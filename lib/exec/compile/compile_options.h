// The options of the compilation of a graph (exec/session/program.h), and the decisions about its
// caches.
#pragma once

#include <string>
#include <vector>

namespace kvlift::exec {

// How presents are written. kAuto: in place where that is proved safe. kOff: never in place.
// kRequired: as kAuto, but Compile fails if a pair is not safe. kGuard and kPoison check the proofs
// at run time (alias_modes.h). All modes give equal results; in kPoison the cache rows that hold no
// token differ.
enum class AliasMode { kAuto, kOff, kRequired, kGuard, kPoison };
enum class Order { kCanonical, kFast };

// A graph input (past) and the graph output (present) that becomes its value in the next step.
struct CachePair {
  std::string input, output;
};

struct CompileOptions {
  std::vector<CachePair> caches;
  AliasMode alias = AliasMode::kAuto;
  Order order = Order::kCanonical;
  int threads = 0;       // 0: one per processor of the machine
  std::string base_dir;  // folder of external data
  // Rearranges constant weights for faster products, with bit-equal results. This reads all weights
  // once, which does not pay off for a few small steps.
  bool pack_weights = true;
  // Releases the inline data of weights of which only the packed form is needed, one weight after
  // the other, so that they are not held twice. This changes the graph's model: its weights must
  // not be read after Compile.
  bool release_packed_weights = false;
  // Joins chains of operators into single nodes (fusing.h), with bit-equal results in canonical
  // order. An observer gets the joined nodes.
  bool fuse = false;
  // The fetches of a step hold the caches too. If false, caches are read by Session::Cache alone,
  // and a cache that grows by Concat may keep spare room behind each head, to be appended to in
  // place.
  bool fetch_caches = true;
  // Runs operators by the function body that ONNX defines for them, where there is one, instead of
  // their kernel.
  bool bodies = false;
};

// The decision whether a pair shares one buffer, with the reason. It does if the present is the
// result of nodes that write into the past, every other reader of the past can run before the
// write, and neither the past nor a view of it is a graph output.
struct AliasDecision {
  CachePair pair;
  bool aliased = false;
  std::string reason;                // "safe", or what prevents it
  std::vector<std::string> readers;  // nodes that read the past besides the writer
};

}  // namespace kvlift::exec
