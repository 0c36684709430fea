// SPDX-License-Identifier: Apache-2.0
// Numbers do not depend on the program's locale, nor on those of other ranks.
#include <locale>
#include <optional>
#include <sstream>

#include "../session/fixture.hpp"
#include "../support/german_numbers.hpp"
#include "kolo/diagnostics.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/training.hpp"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

/// The ranks have different locales.
class Locales : public WithSession {
 protected:
  Locales() {
    if (me_ % 2 == 0) german_.emplace();
  }

 private:
  std::optional<GermanNumbers> german_{};
};

struct LargeTrainer {
  std::vector<float> gradient = std::vector<float>(1'234'567, 1.0F);
  std::vector<NamedTensor> gradients() { return {{"gradient", gradient}}; }
  void step() {}
};

TEST_F(Locales, DoNotMakeOptionsDiffer) {
  LargeTrainer trainer;
  DistributedOptimizer optimizer(
      trainer, {.backward_passes_per_step = 1234, .gradient_predivide_factor = 1.5});
  optimizer.step();
}

TEST_F(Locales, AreNotThoseOfMessages) {
  std::ostringstream number;
  number << 1234.5;
  ASSERT_EQ(number.str(), me_ % 2 == 0 ? "1.234,5" : "1234.5");
  LargeTrainer trainer;
  const auto refused = thrown_by<InvalidArgument>(
      [&] { DistributedOptimizer(trainer, {.gradient_predivide_factor = -1234.5}); });
  EXPECT_THAT(refused.what(), HasSubstr("-1234.5"));
  if (n_ == 1) return;
  std::vector<float> odd(static_cast<std::size_t>(1'234'567 + me_));
  const auto mismatch = thrown_by<Mismatch>([&] { allreduce(odd, {.name = "odd"}); });
  EXPECT_THAT(mismatch.what(), HasSubstr("1234567"));
}

TEST_F(Locales, AreNotThoseOfStatisticsAndStates) {
  for (int i = 0; i < 1234; ++i) expect_usable();
  const Statistics counted = statistics();
  const std::string here = to_string(counted);
  std::ostringstream streamed;
  streamed << counted;
  EXPECT_EQ(streamed.str(), here);
  const std::locale own = std::locale::global(std::locale::classic());
  EXPECT_EQ(to_string(counted), here);
  std::locale::global(own);
  LossScale scale({.initial = 1536.5});
  std::string state = scale.state();
  broadcast(state, 0);  // from a rank with the comma
  LossScale other;
  other.load_state(state);
  EXPECT_EQ(other.value(), 1536.5);
}

}  // namespace
}  // namespace kolo::internal
