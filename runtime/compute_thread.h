// Settings of every thread that computes, made once, so that all threads compute alike.
//
// 1. Libraries with OpenMP threads of their own (oneDNN) run serially on it. We split the rows ourselves, so that the
//    number of threads changes no bit.
// 2. Subnormal floats count as zero (x86: MXCSR's FTZ and DAZ; Arm: FPCR's FZ). A gradient that vanishes through 2,500
//    sublayers reaches 1e-38 and would slow every product that reads it: a Post-LN step of 500L-500L took ten times as
//    long. Numbers of that size change no weight, but the mode must be the same on all threads, or layouts would differ
//    in their last bits.
// 3. Signal handlers installed with SA_ONSTACK get a stack of their own. oneDNN 2.6's matrix products use the stack
//    pointer as one more general register (seen: it pointed into an operand). A handler that ran on "the stack" would
//    write its frame, some 11 KB with AVX-512 and AMX, over the heap. So every handler of this program must have that
//    flag.
#pragma once

namespace hadal {

// Call once on every thread that runs kernels; workers of a ThreadTeam call it themselves.
void PrepareComputeThread();

}  // namespace hadal
