/** Absolute path of `libtessera-hip.so`. The file is there once the package is built or installed prebuilt. */
export declare const library: string;
