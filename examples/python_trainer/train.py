#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of points on the arms of a spiral, with NumPy. KOLO marks what is new.

Usage: kolorun -np 2 python3 train.py
"""
import numpy

import kolo_train as kolo  # KOLO

POINTS, ARMS, HIDDEN, STEPS, RATE = 300, 3, 64, 1500, 0.5


def spiral():
    """The points, and the arms to which they belong."""
    number = numpy.arange(POINTS)
    radius = (number + 1) / POINTS
    angle = 4.0 * radius + number % ARMS * 2.0 * numpy.pi / ARMS
    points = numpy.stack([radius * numpy.cos(angle), radius * numpy.sin(angle)], axis=1)
    return (3.0 * points).astype(numpy.float32), number % ARMS


def gradients_of(parameters, points, arms):
    """The sum of the points' losses, and its gradients."""
    weights, biases, out_weights, out_biases = parameters
    hidden = numpy.tanh(points @ weights + biases)
    scores = hidden @ out_weights + out_biases
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = numpy.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    right = numpy.arange(len(arms)), arms
    loss = -numpy.log(probabilities[right]).sum()
    probabilities[right] -= 1.0
    before = (probabilities @ out_weights.T) * (1.0 - hidden * hidden)
    return loss, [points.T @ before, before.sum(axis=0), hidden.T @ probabilities, probabilities.sum(axis=0)]


def main():
    kolo.init()  # KOLO
    random = numpy.random.default_rng(kolo.rank())  # other parameters on each rank
    shapes = {"weights": (2, HIDDEN), "biases": (HIDDEN,), "out_weights": (HIDDEN, ARMS), "out_biases": (ARMS,)}
    parameters = {name: 0.5 * random.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}
    kolo.broadcast_parameters(parameters, root_rank=0)  # KOLO
    points, arms = spiral()
    own = slice(kolo.rank(), None, kolo.size())  # KOLO: every n-th point
    for step in range(1, STEPS + 1):
        loss, gradients = gradients_of(list(parameters.values()), points[own], arms[own])
        kolo.grouped_allreduce_(gradients, op=kolo.Sum, name="gradients")  # KOLO
        for parameter, gradient in zip(parameters.values(), gradients):
            parameter -= RATE / POINTS * gradient
        if step % 300 == 0:
            loss = kolo.allreduce(loss, op=kolo.Sum, name="loss")  # KOLO
            if kolo.rank() == 0:
                print(f"step {step}: loss {loss / POINTS:.4f}")


main()
