// The names that HIP's headers would give these attributes. Before anything that declares device functions.
#pragma once

#if defined(__HIP__) && !defined(TSR_EMULATED)
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#endif
