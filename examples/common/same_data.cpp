#include "same_data.hpp"

#include <cstddef>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>

namespace examples {
namespace {

std::string listed(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

}  // namespace

void check_same_sizes(const std::vector<std::int64_t>& images) {
  std::vector<std::int64_t> of_rank_0 = images;
  kolo::broadcast(of_rank_0, /*root=*/0);
  kolo::on_every_rank([&] {
    if (images == of_rank_0) return;
    throw std::runtime_error("this rank found sets of " + listed(images) +
                             " images, but rank 0 of " + listed(of_rank_0));
  });
}

}  // namespace examples
