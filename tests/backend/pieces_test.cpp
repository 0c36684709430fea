// SPDX-License-Identifier: Apache-2.0
#include "backend/pieces.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

using testing::ElementsAre;

constexpr std::int64_t max_bytes = 256;

/// Cuts f32 tensors: the elements of every part of every piece.
std::vector<std::vector<std::int64_t>> cut(const std::vector<std::int64_t>& lengths) {
  std::vector<Run> runs;
  for (const std::int64_t length : lengths)
    runs.push_back({{nullptr, nullptr, length}, DType::f32, DType::f32});
  Cutter cutter(runs, max_bytes);
  std::vector<std::vector<std::int64_t>> pieces;
  Piece piece;
  while (cutter.next(piece)) {
    auto& parts = pieces.emplace_back();
    std::int64_t elements = 0;
    for (const fusion::Part& part : piece.parts) elements += parts.emplace_back(part.elements);
    EXPECT_EQ(piece.elements, elements);
    EXPECT_EQ(piece.wire_bytes(), 4 * elements);
    EXPECT_LE(piece.wire_bytes(), max_bytes);
  }
  return pieces;
}

TEST(Cutter, CutsWhatIsLarge) {
  EXPECT_THAT(cut({150}), ElementsAre(ElementsAre(64), ElementsAre(64), ElementsAre(22)));
}

TEST(Cutter, JoinsWhatIsSmall) {
  EXPECT_THAT(cut({1, 2, 3}), ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(cut({30, 30, 30}), ElementsAre(ElementsAre(30, 30, 4), ElementsAre(26)));
}

TEST(Cutter, LeavesWhatIsLargeOutOfAPieceOfSmallOnes) {
  EXPECT_THAT(cut({5, 40, 7}), ElementsAre(ElementsAre(5, 7), ElementsAre(40)));
  EXPECT_THAT(cut({70, 5}), ElementsAre(ElementsAre(5), ElementsAre(64), ElementsAre(6)));
}

TEST(Cutter, KeepsTheOrderOfWhatIsLarge) {
  EXPECT_THAT(cut({60, 1, 50, 2, 40}),
              ElementsAre(ElementsAre(1, 2), ElementsAre(60), ElementsAre(50), ElementsAre(40)));
}

TEST(Cutter, PassesOverWhatIsEmpty) {
  EXPECT_THAT(cut({}), ElementsAre());
  EXPECT_THAT(cut({0, 0}), ElementsAre());
  EXPECT_THAT(cut({0, 5, 0, 6, 0}), ElementsAre(ElementsAre(5, 6)));
}

TEST(Cutter, CutsHalvesShorter) {
  Cutter cutter({{{nullptr, nullptr, 100}, DType::f16, DType::f16}}, max_bytes);
  Piece piece;
  ASSERT_TRUE(cutter.next(piece));
  EXPECT_EQ(piece.wire_bytes(), max_bytes / 2);
}

TEST(Cutter, NeverMixesTypes) {
  Cutter cutter({{{nullptr, nullptr, 4}, DType::f16, DType::f16},
                 {{nullptr, nullptr, 3}, DType::f32, DType::f16},
                 {{nullptr, nullptr, 5}, DType::f16, DType::f16}},
                max_bytes);
  std::vector<Piece> pieces(2);
  for (Piece& piece : pieces) ASSERT_TRUE(cutter.next(piece));
  std::ranges::sort(pieces, {}, &Piece::elements);
  EXPECT_EQ(pieces[0].dtype, DType::f32);
  EXPECT_EQ(pieces[0].elements, 3);
  EXPECT_EQ(pieces[0].wire_bytes(), 6);
  EXPECT_FALSE(pieces[0].in_place());
  EXPECT_EQ(pieces[1].dtype, DType::f16);
  EXPECT_EQ(pieces[1].elements, 9);
  EXPECT_FALSE(cutter.next(pieces[0]));
}

TEST(Cutter, APieceOfOnePartWithoutConversionIsInPlace) {
  std::vector<float> tensor(100);
  auto* const bytes = reinterpret_cast<std::byte*>(tensor.data());
  Cutter cutter({{{bytes, bytes, 100}, DType::f32, DType::f32}}, max_bytes);
  Piece piece;
  ASSERT_TRUE(cutter.next(piece));
  EXPECT_TRUE(piece.in_place());
  ASSERT_TRUE(cutter.next(piece));
  EXPECT_TRUE(piece.in_place());
  EXPECT_EQ(piece.parts.front().input, bytes + 256);
  EXPECT_EQ(piece.parts.front().output, bytes + 256);
}

/// Copies what a piece of the root reads to where the same piece of another rank is written.
void transfer(const Piece& from, const Piece& to) {
  ASSERT_EQ(from.elements, to.elements);
  ASSERT_EQ(from.parts.size(), 1U);
  std::copy_n(from.parts.front().input, from.elements, to.parts.front().output);
}

TEST(BroadcastPieces, OfATextBeginWithItsLength) {
  for (const std::size_t length : {0U, 1U, 64U, 1000U}) {
    SCOPED_TRACE(length);
    std::string sent(length, 'a');
    std::string received = "what was there before";
    const BatchTensor of_root{.text = &sent};
    const BatchTensor of_other{.text = &received};
    Batch batch;
    batch.kind.type = OperationType::broadcast_string;
    batch.tensors = {&of_root};
    BroadcastPieces root(batch, true, 64);
    batch.tensors = {&of_other};
    BroadcastPieces other(batch, false, 64);
    Piece from;
    Piece to;
    ASSERT_EQ(root.next(from), NextPiece::piece);
    ASSERT_EQ(other.next(to), NextPiece::piece);
    Piece early;
    EXPECT_EQ(other.next(early), NextPiece::later);
    for (;;) {
      transfer(from, to);
      root.arrived(from);
      other.arrived(to);
      const NextPiece next = root.next(from);
      ASSERT_EQ(other.next(to), next);
      if (next == NextPiece::none) break;
    }
    EXPECT_EQ(received, sent);
  }
}

TEST(BroadcastPieces, OfATextTakeOneText) {
  Batch batch;
  batch.kind.type = OperationType::broadcast_string;
  EXPECT_THROW(BroadcastPieces(batch, true, 64), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
