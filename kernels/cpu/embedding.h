// Token embedding on the CPU. Forward splits rows over threads. Backward splits columns, so that no two threads write
// the same elements of the table. kernels/embedding.cc checks the arguments.
#pragma once

#include "kernels/embedding.h"

namespace hadal::cpu {

void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal::cpu
