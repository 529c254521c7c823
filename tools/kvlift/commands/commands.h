// One options struct and one function per command, implemented in cmd_NAME.cc. The functions return
// the exit code and can be called from tests. Strings hold the words of the flags; `kvlift COMMAND
// --help` lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvlift/cli.h"
#include "rewrite/convert/convert.h"

namespace kvlift::cli {

struct InspectFlags {
  CommonFlags common;
  std::vector<std::string> models;
  bool details = false;
  bool near_misses = false;
};
int RunInspect(const InspectFlags& flags, Io io);

struct ConvertFlags {
  CommonFlags common;
  std::string model;
  std::string output;  // empty only with stop_after
  std::string max_seq_len = "dynamic";
  std::string target = "spec", control = "auto", mask = "auto", read = "auto", padding = "auto";
  std::string io_names = "keep", layout = "keep", mode = "linear", external = "auto";
  std::string rotary = "auto", cache_tensors = "per-layer", rounding = "keep";
  std::string step_length = "any";
  std::string window = "full";
  std::string quantize_cache;  // "", "int8:32", "int8:channel", "fp8"
  std::string accept = "tested";
  std::string verify;  // "", "quick", "full"
  std::string weights = "stored";
  std::string freeze;  // "": shapes stay dynamic; "batch=1,tokens=1|128"
  std::string report;
  std::string stop_after;  // "": all steps run; "lower", "recognise", ...
  std::optional<std::string> dump_dir;
  std::vector<std::string> only, skip;
  bool allow_partial = false, dry_run = false, force = false, tree_mask = false;
  bool anew = false;  // an option about the form of the result was given
};
int RunConvert(const ConvertFlags& flags, Io io);

struct CheckFlags {
  CommonFlags common;
  std::vector<std::string> models;
  std::string format = "text";
  std::vector<std::string> select, ignore;
  std::string manifest;
  std::string target;             // empty or "spec": the operator texts alone
  std::vector<std::string> save;  // FORMAT=FILE
  bool exit_zero = false, force = false;
};
int RunCheck(const CheckFlags& flags, Io io);

struct VerifyFlags {
  CommonFlags common;
  std::string before, after;
  std::string plan = "quick", format = "text", accept = "proved", manifest, save_failure,
              obligations, explorer;
  std::vector<std::string> save;  // FORMAT=FILE
  uint64_t seed = 1;
  bool whole = false, force = false;
  std::string weights = "stored";
};
int RunVerify(const VerifyFlags& flags, Io io);

struct RecordFlags {
  CommonFlags common;
  std::string before, after, output;
  std::string plan = "quick", manifest;
  std::vector<int64_t> lengths = {16, 128, 1024};
  uint64_t seed = 1;
  bool copy = false, force = false;
};
int RunRecord(const RecordFlags& flags, Io io);

struct RunFlags {
  CommonFlags common;
  std::string model, inputs, expect, steps, outputs;
  std::string alias = "auto", order = "canonical";
  std::optional<double> rtol, atol;  // default: by element type
  bool trace = false, no_pack = false, force = false;
};
int RunRun(const RunFlags& flags, Io io);

struct BenchFlags {
  CommonFlags common;
  std::string model;
  std::vector<int64_t> context = {16, 512};
  int64_t capacity = 0;  // 0: twice the longest context
  int64_t batch = 1, new_tokens = 1;
  int repetitions = 10;
  bool no_pack = false;
  std::string format = "md";
};
int RunBench(const BenchFlags& flags, Io io);

struct DiffFlags {
  CommonFlags common;
  std::string before, after;
  bool details = false;
};
int RunDiff(const DiffFlags& flags, Io io);

struct ReportFlags {
  CommonFlags common;
  std::string before, after, output;
  std::string plan = "quick", manifest;
  bool force = false;
};
int RunReport(const ReportFlags& flags, Io io);

struct ExplainFlags {
  CommonFlags common;
  std::string what;  // a finding code, or a model file
  std::string node;
};
int RunExplain(const ExplainFlags& flags, Io io);

struct EmitLoopFlags {
  CommonFlags common;
  std::string model, output, manifest;
  std::string lang = "python-ort";
  bool force = false, speculative = false;
};
int RunEmitLoop(const EmitLoopFlags& flags, Io io);

struct EmitMaintenanceFlags {
  CommonFlags common;
  std::string model, output, manifest;
  std::string only = "both";  // "keep", "beam"
  bool force = false;
};
int RunEmitMaintenance(const EmitMaintenanceFlags& flags, Io io);

struct MetadataFlags {
  CommonFlags common;
  std::string model, output;  // no output: stdout
  std::string format = "text";
  bool force = false;
};
void AddMetadataFlags(CLI::App* command, MetadataFlags* flags);
int RunMetadata(const MetadataFlags& flags, Io io);

struct LowerFlags {
  CommonFlags common;
  std::string model, output;
  std::string to;  // "scatternd", "where", "attention-23", "decomposed"
  std::optional<int64_t> opset;
  std::string accept = "tested", external = "auto";
  bool dry_run = false, force = false;
};
void AddLowerFlags(CLI::App* command, LowerFlags* flags);
int RunLower(const LowerFlags& flags, Io io);

struct ReduceFlags {
  CommonFlags common;
  std::vector<std::string> models;  // one, or a source and its conversion
  std::string output, manifest;
  std::string keep;                    // "", a finding's code, "different", "inconclusive", "crash"
  std::vector<std::string> arguments;  // options of `verify` or `convert`, behind "--"
  int jobs = 0;                        // 0: as many as the machine has processors
  double memory_gib = 0;               // of each trial; 0: no limit
  double timeout_seconds = 120;        // of each trial
  double budget_seconds = 1800;        // of all trials together
  bool force = false;
};
void AddReduceFlags(CLI::App* command, ReduceFlags* flags);
int RunReduce(const ReduceFlags& flags, Io io);

struct FleetFlags {
  CommonFlags common;
  std::string command;               // "convert", "verify", "check", "merge"
  std::vector<std::string> sources;  // a list or a folder; of "merge", files of results
  std::string output;
  std::vector<std::string> arguments;          // options of the command, as they stand behind "--"
  int jobs = 0;                                // 0: as many as the machine has processors
  double memory_gib = 0, timeout_seconds = 0;  // of each process; 0: no limit
  std::string shard;                           // "", "2/5"
  std::string converted;           // of "verify": a file of results; empty: that in `output`
  std::vector<std::string> retry;  // outcomes
  bool resume = false, force = false;
};
int RunFleet(const FleetFlags& flags, Io io);

}  // namespace kvlift::cli
