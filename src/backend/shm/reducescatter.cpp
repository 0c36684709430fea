#include <array>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/shm/executions.hpp"
#include "backend/shm/pipeline.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::shm {
namespace {

/// A piece is a window on all ranks' rows. Every rank deposits what it has for the others, and
/// reduces what they have for it straight into its output.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Arena& arena, Batch given, int index, Hosts hosts)
      : Pipeline(arena, std::move(given), index, std::move(hosts)),
        windows_(batch(), piece_bytes()) {}

 private:
  struct Slot {
    Window window{};
    DType wire = DType::u8;
  };

  Next begin(std::size_t number) override {
    Slot& slot = slots_[number];
    if (!windows_.next(slot.window)) return Next::none;
    slot.wire = fusion::wire_type(slot.window.member->dtype, batch().kind.compression);
    return Next::piece;
  }

  void deposit(std::size_t number) override {
    const Slot& slot = slots_[number];
    for (int owner = 0; owner < size(); ++owner) {
      if (reads_input(slot, owner)) continue;
      const std::int64_t elements = slot.window.elements_of(owner, size());
      fusion::convert(slot.window.input_of(owner, size()), slot.window.member->dtype, elements,
                      part_for(slot, number, index(), owner), slot.wire);
      worked(2 * elements * signed_size_of(slot.wire));
    }
  }

  bool collect(std::size_t number) override {
    const Slot& slot = slots_[number];
    const std::int64_t elements = slot.window.elements_of(index(), size());
    if (elements == 0) return true;
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank)
      inputs_.push_back(rank == index() && reads_input(slot, rank)
                            ? slot.window.input_of(rank, size())
                            : part_for(slot, number, rank, index()));
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), slot.wire);
    arithmetic.result = slot.window.member->dtype;
    reduction::reduce(arithmetic, inputs_, elements, slot.window.output());
    worked((size() + 1) * elements * signed_size_of(slot.wire));
    return true;
  }

  /// What a rank has for itself need not be deposited unless it is converted.
  [[nodiscard]] bool reads_input(const Slot& slot, int owner) const {
    return owner == index() && slot.wire == slot.window.member->dtype;
  }

  /// In the slot of `rank`, what it has for `owner`.
  [[nodiscard]] std::byte* part_for(const Slot& slot, std::size_t number, int rank,
                                    int owner) const {
    return memory(rank, number) + owner * slot.window.most * signed_size_of(slot.wire);
  }

  Windows windows_;
  std::array<Slot, slot_count> slots_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<Reducescatter>(arena, std::move(batch), index, std::move(hosts));
}

}  // namespace kolo::backend::shm
