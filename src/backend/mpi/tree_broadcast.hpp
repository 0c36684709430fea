// One rank's bytes to all others, along a binomial tree.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "backend/mpi/pipeline.hpp"
#include "backend/pieces.hpp"

namespace kolo::backend::mpi {

/// Every rank receives a piece from one other and sends it on to some. The root's inputs are read,
/// the others' outputs are written; so are the root's if they lie elsewhere.
class TreeBroadcast : public Pipeline {
 public:
  /// `root` is an index. The runs' elements are bytes.
  TreeBroadcast(Context& context, Batch batch, int index, int root, std::vector<Run> runs);

 private:
  struct Slot {
    Piece piece{};
    std::byte* packed = nullptr;  // null if the piece moves in place
    int receiving = 0;
    int sending = 0;
    bool arrived = false;  // and sent on
  };

  bool begin(std::size_t number) override;
  Progress advance(std::size_t number) override;
  void send_on(Slot& slot, int lane);
  void finish(Slot& slot);

  int root_;
  int parent_ = -1;              // an index; of the root none
  std::vector<int> children_{};  // the one with the largest subtree first
  Cutter cutter_;
  std::array<Slot, most_slots> slots_{};
};

}  // namespace kolo::backend::mpi
