#!/usr/bin/env node
// A file of its own, so that the bin link of a fresh clone exists before the build does.
import "../dist/main.js";
