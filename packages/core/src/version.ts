/** This package's version. Written by scripts/platform-packages.mjs; a bundle has no package.json to read it from. */
export const version = "0.0.0";
