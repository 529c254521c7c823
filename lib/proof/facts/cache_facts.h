// Facts about the rows of each cache after a step.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/facts/fact_list.h"
#include "proof/graphs/pair.h"
#include "proof/lower/branches.h"

namespace kvlift {

class CacheFacts {
 public:
  CacheFacts(const GraphPair& pair, const SourceCase& steps, const Correspondence& twins,
             Equality* equality, FactList* facts)
      : pair_(pair),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        steps_(steps),
        twins_(twins),
        equality_(*equality),
        facts_(*facts) {}

  // Adds the facts about one cache: which slots of its present hold rows of the source's present,
  // and that the other slots keep what the past held.
  void Prove(const ManifestCache& cache);

 private:
  std::string OtherExtents(const ManifestCache& cache);
  bool IsOfSameNode(const ManifestCache& cache) const;
  void ProveLayers(const ManifestCache& cache, const std::string& same);
  void ProveRing(const ManifestCache& cache);
  void ProveWindow(const ManifestCache& cache);
  void ProveShift(const ManifestCache& cache);
  sym::Expr SourceElement(const ManifestCache& cache, ValueId value, absl::Span<const sym::Expr> at,
                          const sym::Facts& facts);
  sym::Expr SourcePlace(const ManifestCache& cache, const std::vector<sym::Expr>& at);
  sym::Expr KeptElement(const ManifestCache& cache, sym::Expr theirs,
                        const std::vector<sym::Expr>& at, const sym::Facts& facts);
  sym::Expr Behind(ValueId present, const std::vector<sym::Expr>& at, sym::Expr sequence,
                   const sym::Facts& facts);
  std::vector<sym::Expr> Indices(size_t rank);

  const GraphPair& pair_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const SourceCase& steps_;
  const Correspondence& twins_;
  Equality& equality_;
  FactList& facts_;
};

}  // namespace kvlift
