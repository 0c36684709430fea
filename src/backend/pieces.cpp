// SPDX-License-Identifier: Apache-2.0
#include "backend/pieces.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backend/batch.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend {
namespace {

constexpr std::int64_t min_alone = 32 << 10;

/// One run for each tensor. `make` sets the types and the length.
template <typename Make>
std::vector<Run> runs_of(const Batch& batch, Make make) {
  std::vector<Run> runs;
  runs.reserve(batch.tensors.size());
  for (const BatchTensor* tensor : batch.tensors) {
    runs.push_back(make(*tensor));
    runs.back().part.input = static_cast<const std::byte*>(tensor->input);
    runs.back().part.output = static_cast<std::byte*>(tensor->output);
  }
  return runs;
}

/// A run of bytes that are read and written in the same place.
Run run_of(void* data, std::int64_t bytes) {
  auto* const place = static_cast<std::byte*>(data);
  return {{place, place, bytes}, DType::u8, DType::u8};
}

}  // namespace

std::vector<Run> element_runs(const Batch& batch) {
  return runs_of(batch, [&](const BatchTensor& tensor) {
    const DType wire = fusion::wire_type(tensor.dtype, batch.kind.op, batch.kind.compression);
    return Run{{.elements = tensor.elements()}, tensor.dtype, wire};
  });
}

std::vector<Run> byte_runs(const Batch& batch) {
  return runs_of(batch,
                 [](const BatchTensor& tensor) { return Run{{.elements = tensor.bytes()}}; });
}

std::int64_t Piece::wire_bytes() const { return elements * signed_size_of(wire); }

Cutter::Cutter(std::vector<Run> runs, std::int64_t piece_bytes)
    : runs_(std::move(runs)), piece_bytes_(piece_bytes) {
  std::erase_if(runs_, [](const Run& run) { return run.part.elements == 0; });
  // Sort, so that short runs between long ones, such as the biases of a network, share pieces.
  const auto order = [this](const Run& run) {
    return travels_alone(run) ? std::tuple(true, DType{}, DType{})
                              : std::tuple(false, run.dtype, run.wire);
  };
  if (!std::ranges::is_sorted(runs_, {}, order)) std::ranges::stable_sort(runs_, {}, order);
}

bool Cutter::next(Piece& piece) {
  piece.parts.clear();
  piece.elements = 0;
  if (first_ == runs_.size()) return false;
  piece.dtype = runs_[first_].dtype;
  piece.wire = runs_[first_].wire;
  // Half types get half as many bytes: their arithmetic takes longer.
  const std::int64_t max_elements =
      piece_bytes_ / (is_half(piece.wire) ? 4 : signed_size_of(piece.wire));
  const bool alone = travels_alone(runs_[first_]);
  do {
    Run& run = runs_[first_];
    take(run, max_elements - piece.elements, piece);
    if (run.part.elements > 0) break;
    ++first_;
  } while (!alone && first_ < runs_.size() && piece.elements < max_elements &&
           runs_[first_].dtype == piece.dtype && !travels_alone(runs_[first_]));
  return true;
}

bool Cutter::travels_alone(const Run& run) const {
  return run.part.elements * signed_size_of(run.wire) >= std::min(min_alone, piece_bytes_ / 2);
}

void Cutter::take(Run& run, std::int64_t room, Piece& piece) {
  fusion::Part& left = run.part;
  const std::int64_t elements = std::min(left.elements, room);
  piece.parts.push_back({left.input, left.output, elements});
  piece.elements += elements;
  const std::int64_t bytes = elements * signed_size_of(run.dtype);
  if (left.input != nullptr) left.input += bytes;
  if (left.output != nullptr) left.output += bytes;
  left.elements -= elements;
}

BroadcastPieces::BroadcastPieces(const Batch& batch, bool is_root, std::int64_t piece_bytes)
    : piece_bytes_(piece_bytes), is_root_(is_root), cutter_({}, piece_bytes) {
  if (batch.kind.type != OperationType::broadcast_string) {
    cutter_ = Cutter(byte_runs(batch), piece_bytes);
    total_bytes_ = backend::total_bytes(batch);
    return;
  }
  text_ = &text_of(batch);
  length_ = std::make_unique<std::int64_t>(static_cast<std::int64_t>(text_->size()));
  length_arrived_ = false;
  text_cut_ = false;
  cutter_ = Cutter({run_of(length_.get(), sizeof(std::int64_t))}, piece_bytes);
}

BroadcastPieces::~BroadcastPieces() {
  if (!length_arrived_) static_cast<void>(length_.release());
}

NextPiece BroadcastPieces::next(Piece& piece) {
  if (cutter_.next(piece)) return NextPiece::piece;
  if (text_cut_) return NextPiece::none;
  // The text is cut once its length, the first piece, has arrived.
  if (!length_arrived_ && !is_root_) return NextPiece::later;
  text_cut_ = true;
  total_bytes_ = *length_;
  cutter_ = Cutter({run_of(text_->data(), *length_)}, piece_bytes_);
  return cutter_.next(piece) ? NextPiece::piece : NextPiece::none;
}

void BroadcastPieces::arrived(const Piece& piece) {
  const auto* const length = reinterpret_cast<const std::byte*>(length_.get());
  if (length == nullptr || piece.parts.front().input != length) return;
  length_arrived_ = true;
  if (!is_root_) text_->resize(static_cast<std::size_t>(*length_));
}

}  // namespace kolo::internal::backend
