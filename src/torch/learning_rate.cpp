#include "kolo/torch/state.hpp"

namespace kolo {

void set_learning_rate(::torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace kolo
