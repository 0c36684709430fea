// SPDX-License-Identifier: Apache-2.0
// Kolo for LibTorch: collectives on LibTorch tensors, distributed and sharded optimizers, fully
// sharded models, mixed precision, synchronized batch normalization, gradients in shared memory,
// equal initial states, checkpoints, and safetensors files.
#pragma once

#include "kolo/kolo.hpp"
#include "kolo/torch/amp.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/checkpointed.hpp"
#include "kolo/torch/collectives.hpp"
#include "kolo/torch/elastic.hpp"
#include "kolo/torch/fully_sharded.hpp"
#include "kolo/torch/gradients.hpp"
#include "kolo/torch/optimizer.hpp"
#include "kolo/torch/reproducible.hpp"
#include "kolo/torch/sampler.hpp"
#include "kolo/torch/sharded_module.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "kolo/torch/state.hpp"
#include "kolo/torch/sync_batch_norm.hpp"
