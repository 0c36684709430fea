// SPDX-License-Identifier: Apache-2.0
// The names that the tensors of a checkpoint's parts have in its files.
//
// A tensor of a part is named "<part>.<tensor>", and a metadata entry "<part>.<key>". A part that
// is text is a tensor of U8 named "<part>". The names of per-rank parts begin with
// "per_rank.<rank>.". In the name of a part, '%', '.' and characters that are not printable ASCII
// are escaped as in "%2E", and so are the first letters of the names "per_rank", "kolo" and
// "__metadata__". An empty name is written "%".
#pragma once

#include <vector>

#include "kolo/state_dict.hpp"

namespace kolo::internal {

/// The tensors and metadata of the parts under their names in a file. Throws InvalidArgument for a
/// reserved name.
[[nodiscard]] StateView flatten(const NamedViews& parts);
/// The same for the per-rank parts of a rank.
[[nodiscard]] StateView flatten(const NamedViews& parts, int rank);

/// The parts of a checkpoint.
struct Parts {
  NamedViews shared{};
  std::vector<NamedViews> per_rank{};
};

/// Finds the parts again. Throws SafetensorsFault for a name that belongs to none.
[[nodiscard]] Parts split_into_parts(const StateView& file, int ranks);

}  // namespace kolo::internal
