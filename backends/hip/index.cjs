const { join } = require("node:path");

exports.library = join(__dirname, "lib", "libtessera-hip.so");
