// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint as the tensors and metadata of a safetensors file.
//
// A part that has the bytes of a safetensors file, as `to_safetensors` makes them, is stored tensor
// by tensor: "<part>.<tensor>" with metadata "<part>.<key>". Any other part is the tensor "<part>",
// its bytes as U8. A rank's own parts have "own.<rank>." before their names. In the name of a part,
// '%', '.' and what is not printable ASCII are written as "%2E"; so are the first letters of "own",
// "kolo" and "__metadata__". An empty name is "%".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/checkpoint_payload.hpp"
#include "training/checkpoint/safetensors_header.hpp"

namespace kolo::internal {

struct CheckpointTensors {
  SafetensorsHeader header{};            // laid out
  std::vector<std::string_view> data{};  // of each tensor; in the parts
};

/// The parts must outlive the result. `own` is by rank.
[[nodiscard]] CheckpointTensors to_tensors(const Blobs& parts, const std::vector<Blobs>& own);

/// The parts that a file's tensors belong to, with room for their data.
struct CheckpointRoom {
  CheckpointPayload payload{};  // complete once the data is in its places
  std::vector<char*> places{};  // of each tensor's data
};

/// Of `ranks` ranks. Ignores metadata of the file itself ("kolo.*", and names without a dot).
/// Throws SafetensorsFault for a tensor that belongs to no part.
[[nodiscard]] CheckpointRoom make_room(const SafetensorsHeader& header, int ranks);

}  // namespace kolo::internal
