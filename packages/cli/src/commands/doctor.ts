import type { Command } from "commander";
import type { Io } from "../ui/io.js";
export function addDoctor(_program: Command, _io: Io): void {}
