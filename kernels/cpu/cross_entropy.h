// CPU backend of kernels/cross_entropy.h.
#pragma once

#include "kernels/cross_entropy.h"

namespace hadal::cpu {

// REQUIRES: as checked by hadal::CrossEntropy.
void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args);

}  // namespace hadal::cpu
