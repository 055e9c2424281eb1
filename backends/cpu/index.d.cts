/** Absolute path of `libtessera-cpu.so`. The file is there once the package is built or installed prebuilt. */
export declare const library: string;
