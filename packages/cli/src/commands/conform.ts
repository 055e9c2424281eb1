import type { Command } from "commander";
import type { Io } from "../ui/io.js";
export function addConform(_program: Command, _io: Io): void {}
