// Cuts the tensors of a batch, laid end to end, into pieces that travel one by one.
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

/// The tensor's elements. `wire` is the type in which they travel.
struct Run {
  fusion::Part part;
  DType dtype = DType::u8;
  DType wire = DType::u8;
};

/// All tensors of an allreduce, in the types in which they travel.
[[nodiscard]] std::vector<Run> element_runs(const Batch& batch);
/// All tensors as bytes.
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

/// What comes after the pieces so far: a piece, a piece that is not known yet, or nothing.
enum class NextPiece : std::uint8_t { piece, later, none };

/// The pieces of a broadcast, of tensors or of a text, as bytes. Only the root knows how long a
/// text is: so the first piece of it is its length, and the others learn from that what follows.
class BroadcastPieces {
 public:
  /// Throws InvalidArgument for a text broadcast of anything but one text.
  BroadcastPieces(const Batch& batch, bool is_root, std::int64_t piece_bytes);
  /// Until the length has arrived the network may yet read or write it: that memory is leaked then.
  ~BroadcastPieces();
  BroadcastPieces(const BroadcastPieces&) = delete;
  BroadcastPieces& operator=(const BroadcastPieces&) = delete;

  [[nodiscard]] NextPiece next(Piece& piece);
  /// To be called when a piece is where it belongs.
  void arrived(const Piece& piece);

 private:
  std::int64_t piece_bytes_;
  std::string* text_ = nullptr;  // null: tensors
  std::unique_ptr<std::int64_t> length_{};
  bool is_root_;
  bool length_arrived_ = true;
  bool text_cut_ = true;
  Cutter cutter_;
};

}  // namespace kolo::internal::backend
