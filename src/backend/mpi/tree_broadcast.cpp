#include "backend/mpi/tree_broadcast.hpp"

#include <utility>

namespace kolo::backend::mpi {

TreeBroadcast::TreeBroadcast(Context& context, Batch given, int index, int root,
                             std::vector<Run> runs)
    : Pipeline(context, std::move(given), index, most_slots),
      root_(root),
      cutter_(std::move(runs), piece_bytes()) {
  // Counted from the root, the parent of a rank is that rank without its lowest bit.
  const int place = (index - root + size()) % size();
  int bit = 1;
  while (bit < size() && (place & bit) == 0) bit *= 2;
  if (place != 0) parent_ = (place - bit + root) % size();
  for (int step = bit / 2; step > 0; step /= 2)
    if (place + step < size()) children_.push_back((place + step + root) % size());
}

bool TreeBroadcast::begin(std::size_t number) {
  Slot& slot = slots_[number];
  if (!cutter_.next(slot.piece)) return false;
  slot.arrived = false;
  slot.packed = slot.piece.in_place() ? nullptr : exchange().take(slot.piece.wire_bytes());
  const int lane = static_cast<int>(number);
  if (index() == root_) {
    if (slot.packed != nullptr) {
      fusion::pack(slot.piece.parts, DType::u8, DType::u8, slot.packed);
      worked(slot.piece.wire_bytes(), DType::u8);
    }
    send_on(slot, lane);
  } else {
    std::byte* const to = slot.packed != nullptr ? slot.packed : slot.piece.parts.front().output;
    exchange().receive(rank_of(parent_), lane, to, slot.piece.wire_bytes(), slot.receiving);
  }
  return true;
}

Progress TreeBroadcast::advance(std::size_t number) {
  Slot& slot = slots_[number];
  bool moved = false;
  if (!slot.arrived && slot.receiving == 0) {
    send_on(slot, static_cast<int>(number));
    moved = true;
  }
  if (slot.arrived && slot.sending == 0) {
    finish(slot);
    return Progress::done;
  }
  return moved ? Progress::moved : Progress::waiting;
}

void TreeBroadcast::send_on(Slot& slot, int lane) {
  const fusion::Part& part = slot.piece.parts.front();
  const std::byte* const from = slot.packed != nullptr ? slot.packed
                                : index() == root_     ? part.input
                                                       : part.output;
  for (const int child : children_)
    exchange().send(rank_of(child), lane, from, slot.piece.wire_bytes(), slot.sending);
  slot.arrived = true;
}

void TreeBroadcast::finish(Slot& slot) {
  if (index() == root_) {
    for (const fusion::Part& part : slot.piece.parts) {
      if (part.output == nullptr || part.output == part.input) continue;
      fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
      worked(part.elements, DType::u8);
    }
  } else if (slot.packed != nullptr) {
    fusion::unpack(slot.packed, DType::u8, DType::u8, slot.piece.parts);
    worked(slot.piece.wire_bytes(), DType::u8);
  }
  exchange().give_back(slot.packed);
}

}  // namespace kolo::backend::mpi
