// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

const std::vector<Lengths> batches{
    {}, {0}, {1}, {1000}, {1, 1, 1}, {0, 40, 0, 500, 2}, {32, 32, 1000}};

template <typename T>
class BroadcastOf : public BackendTest {};
TYPED_TEST_SUITE(BroadcastOf, AllTypes);

TYPED_TEST(BroadcastOf, EveryRootsTensorsReachAll) {
  using T = TypeParam;
  const auto value = [](int rank, std::size_t i, std::int64_t k) {
    return make<T>((k + static_cast<std::int64_t>(i)) % 13 + 20 * (rank + 1));
  };
  for (int root = 0; root < this->size_; ++root) {
    for (const Lengths& lengths : batches) {
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE(testing::Message() << testing::PrintToString(lengths) << " from " << root);
        const auto own = [&](std::size_t i, std::int64_t k) { return value(this->rank_, i, k); };
        Tensors<T> tensors(lengths, in_place, own);
        this->run(this->batch_of(operation_of(OperationType::broadcast, root), tensors));
        EXPECT_TRUE(
            tensors.hold([&](std::size_t i, std::int64_t k) { return value(root, i, k); }, own));
      }
    }
  }
}

class Broadcast : public BackendTest {};

TEST_F(Broadcast, OfALargeTensor) {
  start_anew(default_piece_bytes());
  const auto own = [&](std::size_t, std::int64_t k) { return k * 10 + rank_; };
  const int root = size_ - 1;
  Tensors<std::int64_t> tensors({1'000'000, 3}, true, own);
  run(batch_of(operation_of(OperationType::broadcast, root), tensors));
  EXPECT_TRUE(tensors.hold([=](std::size_t, std::int64_t k) { return k * 10 + root; }, own));
}

TEST_F(Broadcast, RefusesARootThatTakesNoPart) {
  Tensors<float> tensors({1}, true, [](std::size_t, std::int64_t) { return 1.0F; });
  EXPECT_THROW(static_cast<void>(backend_->start(
                   batch_of(operation_of(OperationType::broadcast, size_), tensors))),
               InvalidArgument);
}

class StringBroadcast : public BackendTest {
 protected:
  void broadcast(int root, std::string& text) {
    const BatchTensor member{.text = &text};
    Batch batch = batch_of(operation_of(OperationType::broadcast_string, root));
    batch.tensors.push_back(&member);
    run(std::move(batch));
  }
};

TEST_F(StringBroadcast, OfAnyLengthFromEveryRoot) {
  for (const std::size_t length : {0U, 1U, 255U, 256U, 257U, 100'000U}) {
    for (int root = 0; root < size_; ++root) {
      SCOPED_TRACE(testing::Message() << length << " bytes from " << root);
      std::string expected(length, '\0');
      for (std::size_t i = 0; i < length; ++i)
        expected[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(root));
      std::string text = rank_ == root ? expected : "what was there before";
      broadcast(root, text);
      EXPECT_TRUE(text == expected);
    }
  }
}

TEST_F(StringBroadcast, OfAMillionBytes) {
  start_anew(default_piece_bytes());
  const std::string expected(1'000'000, 'x');
  std::string text = rank_ == 0 ? expected : "";
  broadcast(0, text);
  EXPECT_TRUE(text == expected);
}

TEST_F(StringBroadcast, TakesOneText) {
  EXPECT_THROW(static_cast<void>(
                   backend_->start(batch_of(operation_of(OperationType::broadcast_string, 0)))),
               InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
