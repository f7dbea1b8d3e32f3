// Token embedding on the CPU. Forward splits rows over threads. Backward splits columns, so that no two threads write
// to the same elements of the table. Arguments are checked by the caller (kernels/embedding.cc).
#pragma once

#include "kernels/embedding.h"

namespace hadal::cpu {

void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal::cpu
