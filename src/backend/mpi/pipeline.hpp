// Moves a batch through the network piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/mpi/collective.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::mpi {

/// Keeps a few pieces under way, each in a slot of its own. All ranks begin the pieces in the same
/// order, and a slot's next piece only after all messages of its last one: so a slot's lanes never
/// mix pieces.
class Pipeline : public Collective {
 public:
  static constexpr std::size_t most_slots = 8;

  /// `slots` of them may be under way.
  Pipeline(Context& context, Batch batch, int index, std::size_t slots);

  [[nodiscard]] Progress step() final;

 protected:
  /// Counts bytes of `dtype` that were computed or copied, so that a step ends in time.
  void worked(std::int64_t bytes, DType dtype) { work_ += is_half(dtype) ? 8 * bytes : bytes; }

 private:
  /// Takes the next piece into a free slot and posts its first messages. False if none is left.
  virtual bool begin(std::size_t slot) = 0;
  /// Does what the completed messages of the slot's piece allow.
  virtual Progress advance(std::size_t slot) = 0;

  bool advance_all();
  bool begin_more();

  std::size_t slot_count_;
  std::array<bool, most_slots> busy_{};
  std::int64_t work_ = 0;  // in this step
  // Pieces in the order of their beginning; the i-th is in slot i % slot_count_.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
  bool all_begun_ = false;
};

}  // namespace kolo::backend::mpi
