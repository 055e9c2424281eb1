import type { Command } from "commander";
import type { Io } from "../ui/io.js";
export function addDevices(_program: Command, _io: Io): void {}
