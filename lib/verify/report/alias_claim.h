// Finds the caches that the executor proves safe to update in place, and claims of the relation
// beyond that.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/session/program.h"
#include "verify/report/verify_report.h"

namespace kvlift {

// Returns one certificate for each cache of the relation, in its order. The program must have been
// compiled with the relation's cache pairs; a cache without a pair has no certificate.
std::vector<AliasCertificate> CertifyAliases(const Manifest& relation,
                                             const exec::Program& program);

// Returns a text with code KV430 about the first cache that the relation calls "safe" and the
// program does not update in place, with the reason; empty if there is no such cache.
std::string FalseAliasClaim(const Manifest& relation, const exec::Program& program);

// Returns how many caches have past and present in one buffer. In poison mode it counts only those
// whose unused rows the executor fills with NaN: float types of more than 8 bits.
size_t AliasedCaches(const exec::Program& program);

}  // namespace kvlift
