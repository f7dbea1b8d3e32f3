// CUDA's function qualifiers under nvcc, empty under a C++ compiler.
// HADAL_UNROLL, HADAL_UNROLL_BY(count): before a loop; unrolls it completely, or `count` iterations at a time.
// HADAL_LAUNCH_BOUNDS(most threads of a block, least blocks on a multiprocessor): limits the registers.
#pragma once

#if defined(__CUDACC__)
#define HADAL_KERNEL __global__
#define HADAL_LAUNCH_BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#define HADAL_DEVICE __device__ __forceinline__
#define HADAL_HOST_DEVICE __host__ __device__ __forceinline__
#define HADAL_UNROLL _Pragma("unroll")
#define HADAL_QUOTED(...) #__VA_ARGS__
#define HADAL_UNROLL_BY(...) _Pragma(HADAL_QUOTED(unroll(__VA_ARGS__)))
#else
#define HADAL_KERNEL
#define HADAL_LAUNCH_BOUNDS(...)
#define HADAL_DEVICE inline
#define HADAL_HOST_DEVICE inline
#define HADAL_UNROLL
#define HADAL_UNROLL_BY(...)
#endif
