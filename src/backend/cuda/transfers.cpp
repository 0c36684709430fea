#include "backend/cuda/transfers.hpp"

#include <cstring>

namespace kolo::backend::cuda {

void Transfers::add(const Segment& segment) {
  if (segment.elements > 0) segments_.push_back(segment);
}

void Transfers::launch(StreamHandle stream) {
  if (segments_.empty()) return;
  const std::int64_t tiles = number_tiles(segments_);
  const std::size_t bytes = segments_.size() * sizeof(Segment);
  staged_ = gpu_.pinned_blocks().take(bytes);
  table_ = gpu_.device_blocks().take(bytes);
  std::memcpy(staged_.data(), segments_.data(), bytes);
  gpu_.runtime()->copy(table_.data(), staged_.data(), bytes, CopyKind::to_device, stream);
  gpu_.runtime()->launch({reinterpret_cast<const Segment*>(table_.data()),
                          static_cast<std::int64_t>(segments_.size()), tiles},
                         stream);
}

void Transfers::abandon() {
  staged_.abandon();
  table_.abandon();
}

}  // namespace kolo::backend::cuda
