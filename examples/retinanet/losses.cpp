#include "losses.hpp"

#include "matching.hpp"

namespace retinanet {

torch::Tensor focal_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  constexpr double alpha = 0.25;
  const torch::Tensor counted = labels.ne(ignored).unsqueeze(2).to(logits.dtype());
  // One place for each category; those without one have their 1 in none.
  const torch::Tensor truth =
      torch::arange(logits.size(2), labels.options()).eq(labels.unsqueeze(2)).to(logits.dtype());
  const torch::Tensor sign = 2 * truth - 1;
  const torch::Tensor probability = torch::sigmoid(sign * logits);  // of what is true
  const torch::Tensor entropy = -torch::log_sigmoid(sign * logits);
  const torch::Tensor weight = alpha * truth + (1 - alpha) * (1 - truth);
  return (counted * weight * (1 - probability).square() * entropy).sum();
}

torch::Tensor box_loss(const torch::Tensor& offsets, const torch::Tensor& wanted,
                       const torch::Tensor& labels) {
  constexpr double beta = 1.0 / 9;
  const torch::Tensor found = labels.ge(0).unsqueeze(2);
  return torch::smooth_l1_loss(offsets.masked_select(found), wanted.masked_select(found),
                               at::Reduction::Sum, beta);
}

}  // namespace retinanet
