/** Absolute path of `libggml-tessera-2.so`; undefined if it is neither built here nor installed for this platform. */
export declare const library: string | undefined;
/** Name of the package that brings it to this platform. */
export declare const platformPackage: string;
