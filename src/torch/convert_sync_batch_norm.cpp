// SyncBatchNorm in place of batch normalisations.
#include "kolo/error.hpp"
#include "kolo/torch/sync_batch_norm.hpp"

namespace kolo {
namespace {

namespace nn = ::torch::nn;

// Nothing if the module is no batch normalisation.
std::shared_ptr<SyncBatchNormImpl> synchronized_form_of(const nn::Module& module,
                                                        const ProcessSet& set) {
  if (const auto* norm = module.as<nn::BatchNorm1d>()) {
    return std::make_shared<SyncBatchNormImpl>(*norm, set);
  }
  if (const auto* norm = module.as<nn::BatchNorm2d>()) {
    return std::make_shared<SyncBatchNormImpl>(*norm, set);
  }
  if (const auto* norm = module.as<nn::BatchNorm3d>()) {
    return std::make_shared<SyncBatchNormImpl>(*norm, set);
  }
  return nullptr;
}

void require_none_inside(const std::string& name, const nn::Module& module) {
  for (const auto& inner : module.named_modules(name, /*include_self=*/false)) {
    const bool is_norm = inner.value()->as<nn::BatchNorm1d>() != nullptr ||
                         inner.value()->as<nn::BatchNorm2d>() != nullptr ||
                         inner.value()->as<nn::BatchNorm3d>() != nullptr;
    if (!is_norm) continue;
    throw InvalidArgument("convert_sync_batchnorm: '" + inner.key() +
                          "' is inside a module of another kind than Sequential. Declare it as "
                          "kolo::SyncBatchNorm there");
  }
}

}  // namespace

nn::Sequential convert_sync_batchnorm(const nn::Sequential& model, const ProcessSet& set) {
  nn::Sequential converted;
  const auto names = model->named_children();
  auto module = model->begin();
  for (std::size_t i = 0; i < names.size(); ++i, ++module) {
    const std::string& name = names[i].key();
    if (const auto norm = synchronized_form_of(*names[i].value(), set)) {
      converted->push_back(name, norm);
    } else {
      require_none_inside(name, *names[i].value());
      converted->push_back(name, *module);
    }
  }
  converted->train(model->is_training());
  return converted;
}

}  // namespace kolo
