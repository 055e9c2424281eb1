/** The descriptors of the Backend interface, by the names that tessera.h has for them. */
import type { BackendContext } from "@tessera/core";

export type AttentionDesc = Parameters<BackendContext["attention"]>[0];
export type AppendDesc = Parameters<BackendContext["append"]>[0];
export type TensorDesc = AttentionDesc["q"];
export type BackendBuffer = ReturnType<BackendContext["alloc"]>;
