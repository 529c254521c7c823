// The flags of `fleet`.
#pragma once

#include "CLI/CLI.hpp"
#include "kvlift/commands/commands.h"

namespace kvlift::cli {

void AddFleetFlags(CLI::App* app, FleetFlags* flags);

// Part I of N of a list, from 1.
struct Shard {
  size_t part = 1, parts = 1;

  // `index` counts from 1.
  bool Has(size_t index) const { return (index - 1) % parts == part - 1; }
};
// Reads "I/N" with 1 <= I <= N. Returns nullopt for any other text.
std::optional<Shard> ReadShard(const std::string& text);

}  // namespace kvlift::cli
