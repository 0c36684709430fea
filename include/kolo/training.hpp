// SPDX-License-Identifier: Apache-2.0
// Helpers for training loops, for any framework: averaged metrics, learning-rate schedules,
// early stopping, loss scales, samplers, shares of uneven ranks, background loading, checkpoints,
// fully sharded models, reproducible gradients and a progress bar.
#pragma once

#include "kolo/training/background_loader.hpp"
#include "kolo/training/batch_shares.hpp"
#include "kolo/training/best_metric.hpp"
#include "kolo/training/checkpoint.hpp"
#include "kolo/training/early_stopping.hpp"
#include "kolo/training/learning_rate.hpp"
#include "kolo/training/loss_scale.hpp"
#include "kolo/training/metrics.hpp"
#include "kolo/training/progress_bar.hpp"
#include "kolo/training/reproducible.hpp"
#include "kolo/training/sampler.hpp"
#include "kolo/training/sharded_model.hpp"
