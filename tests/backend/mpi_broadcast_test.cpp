#include <string>

#include "mpi_backend_fixture.hpp"

namespace kolo::backend {
namespace {

const std::vector<Lengths> batches{{0}, {1}, {1000}, {1, 1, 1}, {0, 40, 0, 500, 2}, {32, 32, 1000}};

template <typename T>
class MpiBroadcastOf : public MpiBackendTest {};
using AllTypes =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                   std::int32_t, std::uint64_t, std::int64_t, F16, BF16, float, double, bool>;
TYPED_TEST_SUITE(MpiBroadcastOf, AllTypes);

TYPED_TEST(MpiBroadcastOf, EveryRootsTensorsReachAll) {
  using T = TypeParam;
  for (int root = 0; root < this->size_; ++root) {
    for (const Lengths& lengths : batches) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(lengths) << " from " << root);
      const auto value = [](int rank, std::size_t i, std::size_t k) {
        return make<T>(static_cast<std::int64_t>((k + i) % 13) + 20 * (rank + 1));
      };
      const auto tensors = make_tensors<T>(
          lengths, [&](std::size_t i, std::size_t k) { return value(this->rank_, i, k); });
      this->run(make_batch<T>(broadcast_of(dtype<T>(), root), tensors, lengths));
      EXPECT_TRUE(all_equal<T>(tensors, lengths,
                               [&](std::size_t i, std::size_t k) { return value(root, i, k); }));
    }
  }
}

class MpiTextBroadcast : public MpiBackendTest {};

TEST_F(MpiTextBroadcast, OfAnyLengthFromEveryRoot) {
  for (const std::size_t length : {0U, 1U, 255U, 256U, 257U, 100'000U}) {
    for (int root = 0; root < size_; ++root) {
      SCOPED_TRACE(testing::Message() << length << " bytes from " << root);
      std::string expected(length, '\0');
      for (std::size_t i = 0; i < length; ++i)
        expected[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(root));
      std::string text = rank_ == root ? expected : "what was there before";
      run(text_from(root, text));
      EXPECT_TRUE(text == expected);
    }
  }
}

TEST_F(MpiTextBroadcast, OfAMillionBytes) {
  MpiBackend backend(comm_);
  const std::string expected(1'000'000, 'x');
  std::string text = rank_ == 0 ? expected : "";
  finish(*backend.start(text_from(0, text)));
  EXPECT_TRUE(text == expected);
}

}  // namespace
}  // namespace kolo::backend
