#include "rewrite/recognise/reused_names.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "ir/declared_sizes.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using Inputs = absl::flat_hash_set<std::string>;

// Names are made apart in rounds, since new ones show where others are reused.
constexpr int kMostRounds = 3;

// Returns true for tensors that may hold rows of keys and values; tokens, positions and masks are
// whole numbers.
bool MayBeCache(const onnx::TypeProto::Tensor& type) {
  return type.shape().dim_size() >= 3 && type.elem_type() != onnx::TensorProto::INT64 &&
         type.elem_type() != onnx::TensorProto::INT32 &&
         type.elem_type() != onnx::TensorProto::BOOL;
}

// The names that inputs declare for all axes but the first, which is that of the sequences in most
// models.
struct DeclaredNames {
  NamesOfSizes of_others;  // of inputs that are no caches
  NamesOfSizes repeated;   // of several inputs, at least one of which is no cache
  Inputs maybe_caches;
};

DeclaredNames ListNames(const onnx::GraphProto& graph) {
  DeclaredNames declared;
  NamesOfSizes of_caches;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const onnx::TypeProto::Tensor& type = input.type().tensor_type();
    const bool cache = MayBeCache(type);
    if (cache) declared.maybe_caches.insert(input.name());
    for (int k = 1; k < type.shape().dim_size(); ++k) {
      const std::string& name = type.shape().dim(k).dim_param();
      if (name.empty()) continue;
      if (cache) {
        of_caches.insert(name);
      } else if (!declared.of_others.insert(name).second) {
        declared.repeated.insert(name);
      }
    }
  }
  for (const std::string& name : of_caches) {
    if (declared.of_others.contains(name)) declared.repeated.insert(name);
  }
  return declared;
}

// Returns true if the graph can run as declared only with an axis of no elements.
bool ContradictsNames(const Analysis& a) {
  return absl::c_any_of(a.forms->assumptions(), [](const sym::FormAssumption& taken) {
    const sym::Expr e = taken.predicate;
    return e != nullptr && e->kind() == sym::Kind::kEq && e->args()[0]->kind() == sym::Kind::kDim &&
           !e->args()[0]->dim().is_internal();
  });
}

// Returns true if a mask of as many columns as the declared size has is read in more columns, so
// that keys of one sequence are hidden by the mask of the next one.
bool MasksAcrossRows(const Analysis& a, const DeclaredNames& declared) {
  constexpr int kKeys = 3;  // the index of keys in the expressions of masks
  return absl::c_any_of(a.attention, [&](const AnalysedAttention& attention) {
    if (!attention.site) return false;
    return absl::c_any_of(sym::DivisionsOf(attention.site->mask.keep), [&](sym::Expr division) {
      const sym::Expr by = division->args()[1];
      return by->kind() == sym::Kind::kDim && declared.repeated.contains(by->dim().name()) &&
             sym::ContainsIndex(division->args()[0], kKeys);
    });
  });
}

struct Reused {
  NamesOfSizes names;
  Inputs keep;  // the pasts of the caches, whose axes keep the names
};

// Returns the names of the rows of pasts that name the new tokens as well.
Reused NamesOfPasts(const Analysis& a, const DeclaredNames& declared) {
  Reused reused;
  for (const AnalysedCache& cache : a.caches) {
    if (!cache.update) continue;
    const CacheUpdate& update = *cache.update;
    const sym::Form& past = a.forms->Of(update.pair.past);
    if (!past.known_rank) continue;
    reused.keep.insert(a.graph->name(update.pair.past));
    const sym::Expr rows = past.shape[update.axis];
    if (rows->kind() != sym::Kind::kDim || rows->dim().is_internal()) continue;
    const std::string& name = rows->dim().name();
    if (update.new_length == rows && declared.of_others.contains(name)) reused.names.insert(name);
  }
  return reused;
}

// Returns the numbers of caches and of attentions that can be converted.
std::pair<size_t, size_t> Convertible(const Analysis& a) {
  const auto sites = absl::c_count_if(
      a.attention, [](const AnalysedAttention& attention) { return attention.site.has_value(); });
  return {a.updates.size(), static_cast<size_t>(sites)};
}

bool IsAllConvertible(const Analysis& a) {
  return !a.caches.empty() && Convertible(a) == std::pair(a.caches.size(), a.attention.size());
}

}  // namespace

absl::Status TakeReusedNamesApart(RuleTable rules, const ConvertOptions& options,
                                  UnreadMasks unread, Model* model, Analysis* analysis) {
  for (int round = 0; round < kMostRounds && !analysis->not_raised; ++round) {
    const DeclaredNames declared = ListNames(model->proto->graph());
    Reused reused = NamesOfPasts(*analysis, declared);
    const bool certain = !reused.names.empty() || ContradictsNames(*analysis) ||
                         MasksAcrossRows(*analysis, declared);
    if (reused.names.empty()) {
      const bool selects = !options.only.empty() || !options.skip.empty();
      if (!certain && (selects || IsAllConvertible(*analysis))) break;
      reused = {declared.repeated, declared.maybe_caches};
    }
    if (reused.names.empty()) break;
    Model apart = *model;
    apart.proto = WithNamesApart(model->proto, reused.names, reused.keep);
    KV_ASSIGN_OR_RETURN(Analysis again, Lower(apart, unread));
    if (!again.not_raised) KV_RETURN_IF_ERROR(Recognise(rules, options, &again));
    if (!certain && Convertible(again) <= Convertible(*analysis)) break;
    *model = std::move(apart);
    *analysis = std::move(again);
  }
  return absl::OkStatus();
}

}  // namespace kvlift
