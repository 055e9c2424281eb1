import type { Case } from "../case.js";
import { caches } from "./caches.js";
import { decoding } from "./decoding.js";
import { large } from "./large.js";
import { layoutCases } from "./layouts.js";
import { masks } from "./masks.js";
import { merges } from "./merges.js";
import { numbers } from "./numbers.js";
import { scores } from "./scores.js";
import { sequences } from "./sequences.js";
import { shapes } from "./shapes.js";
import { tiles } from "./tiles.js";
import { elementTypes } from "./types.js";
import { visibility } from "./visibility.js";

/** The case table. Names are unique; test/table.test.ts checks it. */
export const cases: readonly Case[] = [
  ...shapes,
  ...elementTypes,
  ...visibility,
  ...scores,
  ...masks,
  ...sequences,
  ...numbers,
  ...layoutCases,
  ...decoding,
  ...caches,
  ...merges,
  ...large,
  ...tiles,
];
