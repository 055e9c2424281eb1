// For build scripts: the folder to give a compiler so that #include "tessera/tessera.h" is found.
exports.include = __dirname;
