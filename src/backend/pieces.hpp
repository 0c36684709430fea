// Cuts the tensors of a batch, laid end to end, into pieces that travel one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.hpp"
#include "fusion/pack.hpp"
#include "kolo/types.hpp"

namespace kolo::backend {

/// The tensor's elements. `wire` is the type in which they travel.
struct Run {
  fusion::Part part;
  DType dtype = DType::u8;
  DType wire = DType::u8;
};

/// All members of an allreduce, in the types in which they travel.
[[nodiscard]] std::vector<Run> element_runs(const Batch& batch);
/// All members as bytes.
[[nodiscard]] std::vector<Run> byte_runs(const Batch& batch);

/// Never mixes types.
struct Piece {
  std::vector<fusion::Part> parts{};
  DType dtype = DType::u8;
  DType wire = DType::u8;
  std::int64_t elements = 0;

  /// Needs no buffer to be sent from and received into.
  [[nodiscard]] bool in_place() const { return parts.size() == 1 && dtype == wire; }
  [[nodiscard]] std::int64_t wire_bytes() const;
};

/// Depends on nothing but the runs' types and lengths, so that all ranks cut alike.
class Cutter {
 public:
  /// Pieces have at most `piece_bytes` on the wire; of the half types half of that, since their
  /// arithmetic takes longer.
  Cutter(std::vector<Run> runs, std::int64_t piece_bytes);

  /// False if nothing is left.
  [[nodiscard]] bool next(Piece& piece);

 private:
  /// Long enough to travel without others, and so without being packed.
  [[nodiscard]] bool travels_alone(const Run& run) const;
  void take(Run& run, std::int64_t room, Piece& piece);

  std::vector<Run> runs_;  // what is left of them
  std::size_t first_ = 0;
  std::int64_t piece_bytes_;
};

}  // namespace kolo::backend
