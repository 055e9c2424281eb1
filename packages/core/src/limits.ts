/** A finite bias is clamped to ±2^126, so that it stays finite in base-2 arithmetic: TSR_BIAS_LIMIT of tessera.h. */
export const biasLimit = 2 ** 126;

/** Largest D and Dv that the reference takes, as the CPU does. */
export const maxHeadDim = 512;
