// Which caches may be updated in place, who reads them, and whether the relation says so.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contract/manifest.h"
#include "exec/program.h"
#include "verify/verify.h"

namespace kvlift {

// One for each cache of the relation. The program was compiled with the relation's pairs.
std::vector<AliasCertificate> CertifyAliases(const Manifest& relation,
                                             const exec::Program& program);

// The first cache that the relation calls safe and that is not, with the reason; empty: none.
std::string FalseAliasClaim(const Manifest& relation, const exec::Program& program);

// Caches that share one buffer; of a program in poison mode those with rows that it fills with NaN.
size_t AliasedCaches(const exec::Program& program);

}  // namespace kvlift
