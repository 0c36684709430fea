// Every rank's optimizer starts from the same state and options.
#include "kolo/torch/state.hpp"

#include <c10/util/Type.h>

#include <typeinfo>

#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"

namespace kolo {
namespace {

using ::torch::optim::Optimizer;

void require_same_structure(const Optimizer& optimizer, const ProcessSet& set) {
  std::vector<detail::Item> items{{"class", c10::demangle(typeid(optimizer).name())}};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      items.push_back(
          {"group" + std::to_string(i) + "." + std::to_string(j), detail::describe(tensors[j])});
    }
  }
  detail::require_agreement("kolo.optimizer_state", "The optimizers", items, set);
}

}  // namespace

void broadcast_optimizer_state(Optimizer& optimizer, int root, const ProcessSet& set) {
  const std::string function = "broadcast_optimizer_state";
  detail::require_root(function, root, set);
  require_same_structure(optimizer, set);
  std::string bytes;
  const auto save_here = [&] {
    if (rank() == root) bytes = to_bytes(optimizer);
  };
  detail::require_success(function, "save", detail::failure_of(save_here), set);
  broadcast(bytes, root, {.name = "kolo.optimizer_state.bytes", .process_set = set});
  const auto load_here = [&] {
    if (rank() != root) from_bytes(bytes, optimizer);
  };
  detail::require_success(function, "load", detail::failure_of(load_here), set);
}

}  // namespace kolo
