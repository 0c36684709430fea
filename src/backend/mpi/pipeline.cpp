#include "backend/mpi/pipeline.hpp"

#include <algorithm>
#include <utility>

namespace kolo::backend::mpi {
namespace {

constexpr std::size_t most_under_way = 4;

}  // namespace

Pipeline::Pipeline(Context& context, std::vector<Member> members, std::size_t element_bytes,
                   std::size_t wire_bytes)
    : context_(context),
      turn_(context),
      members_(std::move(members)),
      element_bytes_(element_bytes),
      piece_elements_(context.piece_bytes / static_cast<std::int64_t>(wire_bytes)) {
  std::erase_if(members_, [](const Member& member) { return member.elements == 0; });
}

Pipeline::~Pipeline() {
  for (Piece& piece : under_way_) static_cast<void>(piece.buffer.release());
}

Progress Pipeline::step() {
  bool moved = false;
  if (!prepared_ && member_ < members_.size() && under_way_.size() < most_under_way) {
    next_ = next_piece();
    prepare(next_);
    prepared_ = moved = true;
  }
  if (turn_.has_come()) {
    if (prepared_) {
      under_way_.push_back(std::move(next_));
      prepared_ = false;
      call(under_way_.back());
      moved = true;
    }
    if (member_ == members_.size()) turn_.pass_on();
  }
  if (!under_way_.empty() && test(under_way_.front().request)) {
    Piece& piece = under_way_.front();
    finish(piece);
    if (piece.buffer) context_.buffers.give_back(std::move(piece.buffer));
    under_way_.pop_front();
    moved = true;
  }
  if (turn_.is_over() && under_way_.empty()) return Progress::done;
  return moved ? Progress::moved : Progress::waiting;
}

Piece Pipeline::next_piece() {
  Piece piece;
  while (member_ < members_.size() && piece.elements < piece_elements_) {
    const Member& member = members_[member_];
    const std::int64_t elements =
        std::min(member.elements - offset_, piece_elements_ - piece.elements);
    piece.parts.push_back(
        {static_cast<std::byte*>(member.data) + offset_ * static_cast<std::int64_t>(element_bytes_),
         elements});
    piece.elements += elements;
    offset_ += elements;
    if (offset_ == member.elements) {
      ++member_;
      offset_ = 0;
    }
  }
  return piece;
}

void Pipeline::take_buffer(Piece& piece) const {
  piece.buffer = context_.buffers.take(2 * static_cast<std::size_t>(context_.piece_bytes));
}

}  // namespace kolo::backend::mpi
