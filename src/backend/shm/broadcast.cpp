#include <array>
#include <cstring>
#include <utility>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/executions.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::backend::shm {
namespace {

/// Out of the root's slots.
class Broadcast : public Pipeline {
 public:
  Broadcast(Arena& arena, Batch given, int index, Hosts hosts)
      : Pipeline(arena, std::move(given), index, std::move(hosts)),
        root_(root_index(batch())),
        cutter_(byte_runs(batch()), piece_bytes()) {
    collect_from(root_);
  }

 private:
  Next begin(std::size_t number) override {
    return cutter_.next(pieces_[number]) ? Next::piece : Next::none;
  }

  void deposit(std::size_t number) override {
    if (index() != root_ || size() == 1) return;
    fusion::pack(pieces_[number].parts, DType::u8, DType::u8, memory(root_, number));
    worked(2 * pieces_[number].wire_bytes());
  }

  bool collect(std::size_t number) override {
    const Piece& piece = pieces_[number];
    if (index() == root_) {
      for (const fusion::Part& part : piece.parts)
        if (part.output != nullptr)
          fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
    } else {
      fusion::unpack(memory(root_, number), DType::u8, DType::u8, piece.parts);
    }
    worked(2 * piece.wire_bytes());
    return true;
  }

  int root_;
  Cutter cutter_;
  std::array<Piece, slot_count> pieces_{};
};

/// The length in a piece of its own, since the others do not know it, then the bytes.
class TextBroadcast : public Pipeline {
 public:
  TextBroadcast(Arena& arena, Batch given, int index, Hosts hosts)
      : Pipeline(arena, std::move(given), index, std::move(hosts)),
        root_(root_index(batch())),
        text_(text_of(batch())) {
    collect_from(root_);
  }

 private:
  struct Section {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    bool is_length = false;
  };

  Next begin(std::size_t number) override {
    if (!std::exchange(length_begun_, true)) {
      sections_[number] = {.is_length = true};
      return Next::piece;
    }
    if (!length_known_) return Next::later;
    const std::size_t bytes =
        std::min(text_.size() - begun_, static_cast<std::size_t>(piece_bytes()));
    if (bytes == 0) return Next::none;
    sections_[number] = {begun_, bytes};
    begun_ += bytes;
    return Next::piece;
  }

  void deposit(std::size_t number) override {
    if (index() != root_) return;
    const Section& section = sections_[number];
    const std::size_t length = text_.size();
    if (section.is_length) {
      std::memcpy(memory(root_, number), &length, sizeof length);
    } else {
      std::memcpy(memory(root_, number), text_.data() + section.begin, section.bytes);
    }
    worked(static_cast<std::int64_t>(section.bytes));
  }

  bool collect(std::size_t number) override {
    const Section& section = sections_[number];
    if (section.is_length) length_known_ = true;
    if (index() == root_) return true;
    if (section.is_length) {
      std::size_t length = 0;
      std::memcpy(&length, memory(root_, number), sizeof length);
      text_.resize(length);
    } else {
      std::memcpy(text_.data() + section.begin, memory(root_, number), section.bytes);
    }
    worked(static_cast<std::int64_t>(section.bytes));
    return true;
  }

  int root_;
  std::string& text_;
  std::array<Section, slot_count> sections_{};
  bool length_begun_ = false;
  bool length_known_ = false;
  std::size_t begun_ = 0;  // bytes of the text
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<Broadcast>(arena, std::move(batch), index, std::move(hosts));
}

std::unique_ptr<Execution> make_text_broadcast(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<TextBroadcast>(arena, std::move(batch), index, std::move(hosts));
}

}  // namespace kolo::backend::shm
