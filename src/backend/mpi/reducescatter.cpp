#include <algorithm>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend::mpi {
namespace {

/// A piece is, of one member, the elements at the same place in every rank's rows: every rank sends
/// each slice to the rank that gets it, and reduces its own.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Context& context, Batch given, int index)
      : Pipeline(context, std::move(given), index, most_slots), windows_(batch(), piece_bytes()) {}

 private:
  struct Slot {
    Window window{};
    DType wire = DType::u8;
    std::byte* packed =
        nullptr;  // slices, as far apart as windows are long; null without conversion
    std::byte* versions = nullptr;  // the others' of this rank's slice
    int sending = 0;
    int receiving = 0;
    bool reduced = false;
  };

  bool begin(std::size_t number) override {
    Slot& slot = slots_[number];
    if (!windows_.next(slot.window)) return false;
    slot.wire = fusion::wire_type(slot.window.member->dtype, batch().kind.compression);
    slot.reduced = false;
    pack(slot);
    post(slot, static_cast<int>(number));
    return true;
  }

  Progress advance(std::size_t number) override {
    Slot& slot = slots_[number];
    bool moved = false;
    if (!slot.reduced && slot.receiving == 0) {
      reduce(slot);
      slot.reduced = moved = true;
    }
    if (slot.reduced && slot.sending == 0) {
      exchange().give_back(slot.packed);
      exchange().give_back(slot.versions);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  [[nodiscard]] std::int64_t slice_elements(const Slot& slot, int owner) const {
    return slot.window.elements_of(owner, size());
  }

  /// As it travels.
  [[nodiscard]] const std::byte* slice(const Slot& slot, int owner) const {
    return slot.packed == nullptr
               ? slot.window.input_of(owner, size())
               : slot.packed + owner * slot.window.most * signed_size_of(slot.wire);
  }

  [[nodiscard]] std::byte* version(const Slot& slot, int from) const {
    const int before = from < index() ? from : from - 1;
    return slot.versions + before * slice_elements(slot, index()) * signed_size_of(slot.wire);
  }

  void pack(Slot& slot) {
    slot.packed = nullptr;
    if (slot.wire == slot.window.member->dtype) return;
    const std::int64_t stride = slot.window.most * signed_size_of(slot.wire);
    slot.packed = exchange().take(size() * stride);
    for (int owner = 0; owner < size(); ++owner)
      fusion::convert(slot.window.input_of(owner, size()), slot.window.member->dtype,
                      slice_elements(slot, owner), slot.packed + owner * stride, slot.wire);
    worked(size() * stride, slot.wire);
  }

  void post(Slot& slot, int lane) {
    const std::int64_t own_bytes = slice_elements(slot, index()) * signed_size_of(slot.wire);
    slot.versions = size() > 1 ? exchange().take((size() - 1) * own_bytes) : nullptr;
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (index() + size() - distance) % size();
      exchange().receive(rank_of(from), lane, version(slot, from), own_bytes, slot.receiving);
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (index() + distance) % size();
      exchange().send(rank_of(to), lane, slice(slot, to),
                      slice_elements(slot, to) * signed_size_of(slot.wire), slot.sending);
    }
  }

  void reduce(const Slot& slot) {
    const std::int64_t elements = slice_elements(slot, index());
    if (elements == 0) return;
    inputs_.clear();
    for (int from = 0; from < size(); ++from)
      inputs_.push_back(from == index() ? slice(slot, from) : version(slot, from));
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), slot.wire);
    arithmetic.result = slot.window.member->dtype;
    reduction::reduce(arithmetic, inputs_, elements, slot.window.output());
    worked(size() * elements * signed_size_of(slot.wire), slot.wire);
  }

  Windows windows_;
  std::array<Slot, most_slots> slots_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Context& context, Batch batch, int index) {
  return std::make_unique<Reducescatter>(context, std::move(batch), index);
}

}  // namespace kolo::backend::mpi
