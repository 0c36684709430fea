// SPDX-License-Identifier: Apache-2.0
// Divides the tensors of a batch, laid end to end, into pieces that travel one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "fusion/pack.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend {

/// The elements of a tensor that are not cut yet. `wire` is the type in which they travel.
struct Run {
  fusion::Part part;
  DType dtype = DType::u8;
  DType wire = DType::u8;
};

/// Runs of all tensors of an allreduce, in the types in which they travel.
[[nodiscard]] std::vector<Run> element_runs(const Batch& batch);
/// Runs of all tensors as bytes.
[[nodiscard]] std::vector<Run> byte_runs(const Batch& batch);

/// Consecutive elements of one type, from one or more tensors.
struct Piece {
  std::vector<fusion::Part> parts{};
  DType dtype = DType::u8;
  DType wire = DType::u8;
  std::int64_t elements = 0;

  /// True if the network can send from and receive into the tensor itself.
  [[nodiscard]] bool in_place() const { return parts.size() == 1 && dtype == wire; }
  [[nodiscard]] std::int64_t wire_bytes() const;
};

/// Cuts according to the types and lengths of the runs only, so that all ranks get the same pieces.
/// Short runs come first, grouped by type; long runs follow in their order.
class Cutter {
 public:
  /// Pieces have at most `piece_bytes` on the wire; half of that for half types, whose arithmetic
  /// takes longer.
  Cutter(std::vector<Run> runs, std::int64_t piece_bytes);

  /// Returns false after the last piece.
  [[nodiscard]] bool next(Piece& piece);

 private:
  /// True if the run is long enough for pieces of its own, which need no packing.
  [[nodiscard]] bool travels_alone(const Run& run) const;
  void take(Run& run, std::int64_t room, Piece& piece);

  std::vector<Run> runs_;  // the elements not cut yet
  std::size_t first_ = 0;
  std::int64_t piece_bytes_;
};

/// The result of asking for the next piece: a piece, a piece that is not known yet, or the end.
enum class NextPiece : std::uint8_t { piece, later, none };

/// The pieces of a broadcast of tensors or of a text, as bytes. Only the root knows the length of a
/// text, so the first piece is the length, from which the other ranks derive the rest.
class BroadcastPieces {
 public:
  /// Throws InvalidArgument for a string broadcast without exactly one text.
  BroadcastPieces(const Batch& batch, bool is_root, std::int64_t piece_bytes);
  /// Leaks the memory of the length if it has not arrived: the network may still access it.
  ~BroadcastPieces();
  BroadcastPieces(const BroadcastPieces&) = delete;
  BroadcastPieces& operator=(const BroadcastPieces&) = delete;

  [[nodiscard]] NextPiece next(Piece& piece);
  /// The bytes of all pieces: those of the tensors or of the text, or of the length while the text
  /// is not cut.
  [[nodiscard]] std::int64_t total_bytes() const { return total_bytes_; }
  /// Call it when a piece has arrived in its tensors or in the text.
  void arrived(const Piece& piece);

 private:
  std::int64_t piece_bytes_;
  std::int64_t total_bytes_ = sizeof(std::int64_t);
  std::string* text_ = nullptr;  // null: a broadcast of tensors
  std::unique_ptr<std::int64_t> length_{};
  bool is_root_;
  bool length_arrived_ = true;
  bool text_cut_ = true;
  Cutter cutter_;
};

}  // namespace kolo::internal::backend
