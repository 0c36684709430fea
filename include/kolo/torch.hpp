// Kolo for LibTorch: collectives on its tensors, its optimizers over many ranks, and what a model
// needs to start alike on all of them.
#pragma once

#include "kolo/kolo.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/clip_gradients.hpp"
#include "kolo/torch/collectives.hpp"
#include "kolo/torch/device.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/state.hpp"
#include "kolo/torch/sync_batch_norm.hpp"
