#include "agreement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace cifar10 {
namespace {

// "" if it went well.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const kolo::Error&) {
    throw;  // Kolo tells the other ranks itself.
  } catch (const std::exception& error) {
    return *error.what() != '\0' ? error.what() : "unknown error";
  }
  return {};
}

}  // namespace

void on_every_rank(const std::function<void()>& work) {
  std::string error = error_of(work);
  std::vector<std::int32_t> failed(static_cast<std::size_t>(kolo::size()), 0);
  failed[static_cast<std::size_t>(kolo::rank())] = error.empty() ? 0 : 1;
  kolo::allreduce(failed, {.op = kolo::ReduceOp::sum});

  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return;
  const auto rank = static_cast<int>(first - failed.begin());
  kolo::broadcast(error, rank);
  throw std::runtime_error(error + " (on rank " + std::to_string(rank) + ")");
}

void on_rank_0(const std::function<void()>& work) {
  std::string error = kolo::rank() == 0 ? error_of(work) : std::string();
  kolo::broadcast(error, 0);
  if (!error.empty()) throw std::runtime_error(error + " (on rank 0)");
}

}  // namespace cifar10
