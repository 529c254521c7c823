// The two macros for absl::Status propagation. absl::Status means broken input or an unsupported
// operator; "a rule does not apply" is a value (see base/findings.h), never a Status.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KV_CONCAT_INNER(a, b) a##b
#define KV_CONCAT(a, b) KV_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function unless it is OK.
#define KV_RETURN_IF_ERROR(expr)             \
  do {                                       \
    absl::Status kv_status_ = (expr);        \
    if (!kv_status_.ok()) return kv_status_; \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its status.
#define KV_ASSIGN_OR_RETURN(lhs, expr) \
  KV_ASSIGN_OR_RETURN_IMPL(KV_CONCAT(kv_status_or_, __LINE__), lhs, expr)
#define KV_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()
