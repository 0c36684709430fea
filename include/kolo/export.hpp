// SPDX-License-Identifier: Apache-2.0
// Marks the names that a shared library of Kolo exports. All other names are hidden, because Kolo
// is compiled with -fvisibility=hidden. Other headers include this one first, so it also checks the
// version of C++.
#pragma once

#if __cplusplus < 202002L
#error \
    "Kolo's headers in C++ need C++20: compile with -std=c++20. Programs in C or in older C++ include \
kolo/c/kolo.h."
#endif

/// Write this macro before a function declaration, or between `class` and the name of a class. A
/// class that is thrown or has virtual functions is exported as a whole, because programs need its
/// type information. Other classes export only their non-inline member functions.
#define KOLO_EXPORT [[gnu::visibility("default")]]
