#include <algorithm>
#include <utility>
#include <vector>

#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend::mpi {
namespace {

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

/// A piece is, of one member, the elements at the same place in every rank's rows: every rank sends
/// each slice to the rank that gets it, and reduces its own.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Context& context, Batch given, int index)
      : Pipeline(context, std::move(given), index, most_slots) {}

 private:
  struct Slot {
    const Member* member = nullptr;
    DType wire = DType::u8;
    std::int64_t place = 0;         // of the piece's first element in each rank's rows
    std::int64_t most = 0;          // elements of a slice
    std::byte* packed = nullptr;    // slices, `most` elements apart; null without conversion
    std::byte* versions = nullptr;  // the others' of this rank's slice
    int sending = 0;
    int receiving = 0;
    bool reduced = false;
  };

  bool begin(std::size_t number) override {
    while (member_ < members().size() && place_ >= elements_of(*members()[member_], 0)) {
      ++member_;
      place_ = 0;
    }
    if (member_ == members().size()) return false;
    Slot& slot = slots_[number];
    slot.member = members()[member_];
    slot.wire = fusion::wire_type(slot.member->dtype, batch().kind.compression);
    slot.place = place_;
    slot.most = std::max<std::int64_t>(piece_bytes() / bytes_of(slot.wire) / size(), 1);
    slot.reduced = false;
    place_ += slot.most;
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

  /// Of all of the rank's rows.
  [[nodiscard]] std::int64_t elements_of(const Member& member, int owner) const {
    return reducescatter_rows(member.rows, owner, size()) * member.row_elements;
  }

  [[nodiscard]] std::int64_t slice_elements(const Slot& slot, int owner) const {
    return std::clamp<std::int64_t>(elements_of(*slot.member, owner) - slot.place, 0, slot.most);
  }

  /// In the member's input.
  [[nodiscard]] const std::byte* slice_input(const Slot& slot, int owner) const {
    const Member& member = *slot.member;
    const std::int64_t rows_before =
        owner * (member.rows / size()) + std::min<std::int64_t>(owner, member.rows % size());
    return static_cast<const std::byte*>(member.input) +
           (rows_before * member.row_elements + slot.place) * bytes_of(member.dtype);
  }

  /// As it travels.
  [[nodiscard]] const std::byte* slice(const Slot& slot, int owner) const {
    return slot.packed == nullptr ? slice_input(slot, owner)
                                  : slot.packed + owner * slot.most * bytes_of(slot.wire);
  }

  [[nodiscard]] std::byte* version(const Slot& slot, int from) const {
    const int before = from < index() ? from : from - 1;
    return slot.versions + before * slice_elements(slot, index()) * bytes_of(slot.wire);
  }

  void pack(Slot& slot) {
    slot.packed = nullptr;
    if (slot.wire == slot.member->dtype) return;
    const std::int64_t stride = slot.most * bytes_of(slot.wire);
    slot.packed = exchange().take(size() * stride);
    for (int owner = 0; owner < size(); ++owner)
      fusion::convert(slice_input(slot, owner), slot.member->dtype, slice_elements(slot, owner),
                      slot.packed + owner * stride, slot.wire);
    worked(size() * stride, slot.wire);
  }

  void post(Slot& slot, int lane) {
    const std::int64_t own_bytes = slice_elements(slot, index()) * bytes_of(slot.wire);
    slot.versions = size() > 1 ? exchange().take((size() - 1) * own_bytes) : nullptr;
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (index() + size() - distance) % size();
      exchange().receive(rank_of(from), lane, version(slot, from), own_bytes, slot.receiving);
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (index() + distance) % size();
      exchange().send(rank_of(to), lane, slice(slot, to),
                      slice_elements(slot, to) * bytes_of(slot.wire), slot.sending);
    }
  }

  void reduce(const Slot& slot) {
    const std::int64_t elements = slice_elements(slot, index());
    if (elements == 0) return;
    inputs_.clear();
    for (int from = 0; from < size(); ++from)
      inputs_.push_back(from == index() ? slice(slot, from) : version(slot, from));
    const Descriptor& kind = batch().kind;
    const reduction::Arithmetic arithmetic{
        .op = kind.op,
        .dtype = slot.wire,
        .prescale = kind.prescale,
        .postscale = kind.postscale,
        .divisor = kind.op == ReduceOp::average ? batch().divisor : 1,
        .result = slot.member->dtype};
    reduction::reduce(
        arithmetic, inputs_, elements,
        static_cast<std::byte*>(slot.member->output) + slot.place * bytes_of(slot.member->dtype));
    worked(size() * elements * bytes_of(slot.wire), slot.wire);
  }

  std::array<Slot, most_slots> slots_{};
  std::vector<const std::byte*> inputs_{};
  // Where the next piece begins.
  std::size_t member_ = 0;
  std::int64_t place_ = 0;
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Context& context, Batch batch, int index) {
  return std::make_unique<Reducescatter>(context, std::move(batch), index);
}

}  // namespace kolo::backend::mpi
