/** Absolute path of the folder that holds `tessera/tessera.h`. */
export declare const include: string;
